"""Elements of two streams through Flink SQL's interval join, results thrown away.

python flink_window_join.py ELEMENTS KEYS SECONDS QUERIES

Several queries are one statement set, each with a selection of its own.
"""

from __future__ import annotations

import json
import sys
import time

from pyflink.table import EnvironmentSettings, TableEnvironment


def main(elements: int, keys: int, seconds: int, queries: int) -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", "2")
    for name in "lr":
        tables.execute_sql(
            f"CREATE TABLE {name} (id BIGINT, k INT, ts AS TO_TIMESTAMP_LTZ(id, 3),"
            " WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'datagen',"
            f" 'number-of-rows' = '{elements}', 'rows-per-second' = '1000000000',"
            " 'fields.id.kind' = 'sequence', 'fields.id.start' = '0',"
            f" 'fields.id.end' = '{elements - 1}', 'fields.k.min' = '0',"
            f" 'fields.k.max' = '{keys - 1}')"
        )
    together = tables.create_statement_set()
    for number in range(queries):
        tables.execute_sql(
            f"CREATE TABLE found{number} (a BIGINT, b BIGINT) WITH ('connector' = 'blackhole')"
        )
        low = number * 997 % (keys - keys // 20)
        own = f" AND l.k BETWEEN {low} AND {low + keys // 20 - 1}" if queries > 1 else ""
        together.add_insert_sql(
            f"INSERT INTO found{number} SELECT l.id, r.id FROM l, r WHERE l.k = r.k"
            " AND r.ts BETWEEN"
            f" l.ts - INTERVAL '{seconds}' SECOND(3) AND l.ts + INTERVAL '{seconds}' SECOND(3){own}"
        )
    begun = time.perf_counter()
    together.execute().wait()
    print(json.dumps({"seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:5]))
