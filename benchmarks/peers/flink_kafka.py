"""One topic of Kafka through N range queries in Flink SQL: how fast it is read, or how late it is.

Flink's own connector reads JSON. `read` stops at the topic's end and throws away what is selected.
`follow` goes on until it is ended, and writes what is selected into another topic: without
transactions, or ('exactly-once') with one for each checkpoint, once a second.

    python flink_kafka.py JAR BOOTSTRAP TOPIC read QUERIES
    python flink_kafka.py JAR BOOTSTRAP TOPIC follow OUT at-least-once|exactly-once
"""

from __future__ import annotations

import json
import sys
import time

from flink_matching import A_SINK, SETTINGS
from pyflink.table import EnvironmentSettings, TableEnvironment


def main(jar: str, bootstrap: str, topic: str, mode: str, *more: str) -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in (SETTINGS | {"pipeline.jars": f"file://{jar}"}).items():
        tables.get_config().set(name, value)
    columns = "a INT, b INT, c INT, d INT, e INT, sent BIGINT"
    of_kafka = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{bootstrap}'"
    start = "earliest-offset" if mode == "read" else "latest-offset"
    end = ", 'scan.bounded.mode' = 'latest-offset'" if mode == "read" else ""
    tables.execute_sql(
        f"CREATE TABLE s ({columns}) WITH ({of_kafka}, 'topic' = '{topic}', 'format' = 'json',"
        f" 'properties.group.id' = 'flink', 'scan.startup.mode' = '{start}'{end})"
    )
    together = tables.create_statement_set()
    if mode == "follow":
        out, guarantee = more
        if guarantee == "exactly-once":
            tables.get_config().set("execution.checkpointing.interval", "1 s")
        tables.execute_sql(
            f"CREATE TABLE found (q INT, {columns}) WITH ({of_kafka}, 'topic' = '{out}',"
            f" 'format' = 'json', 'sink.delivery-guarantee' = '{guarantee}',"
            " 'sink.transactional-id-prefix' = 'flink',"
            " 'properties.transaction.timeout.ms' = '60000')"
        )
    else:
        tables.execute_sql(
            f"CREATE TABLE found (q INT, {columns}) WITH ('connector' = 'blackhole')"
        )
    wheres = json.load(sys.stdin)
    selections = [f"SELECT {n}, s.* FROM s WHERE {where}" for n, where in enumerate(wheres)]
    for first in range(0, len(selections), A_SINK):
        union = " UNION ALL ".join(selections[first : first + A_SINK])
        together.add_insert_sql(f"INSERT INTO found {union}")
    begun = time.perf_counter()
    job = together.execute()
    print("running", flush=True)
    job.wait()
    print(json.dumps({"seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main(*sys.argv[1:])
