"""Sliding group-bys in Flink SQL: an OVER window by key for each query, in one statement set.

It is the nearest Flink SQL has: a row for every arrival, with the aggregates of its key over the
window behind it. What changes when a row leaves the window is not told, so it does about half of
what following every change takes.

python flink_sliding.py ELEMENTS QUERIES
"""

from __future__ import annotations

import json
import sys
import time

from pyflink.table import EnvironmentSettings, TableEnvironment

KEYS, RATE = 1_000, 200
AGGREGATES = (
    ("n BIGINT, a BIGINT", "COUNT(*) OVER w, SUM(size) OVER w"),
    ("n BIGINT, a DOUBLE", "COUNT(*) OVER w, AVG(price) OVER w"),
    ("n BIGINT, a DOUBLE", "COUNT(price) OVER w, SUM(price) OVER w"),
    ("n BIGINT, a BIGINT", "COUNT(*) OVER w, AVG(size) OVER w"),
    ("n BIGINT, a BIGINT", "COUNT(*) OVER w, SUM(CASE WHEN size > 50 THEN 1 END) OVER w"),
    ("n BIGINT, a BIGINT", "COUNT(*) OVER w, SUM(CASE WHEN price > 500 THEN size END) OVER w"),
    ("n BIGINT, a DOUBLE", "COUNT(*) OVER w, MAX(price) OVER w"),
    ("n BIGINT, a DOUBLE, b DOUBLE", "COUNT(*) OVER w, MIN(price) OVER w, MAX(price) OVER w"),
    ("n BIGINT, a DOUBLE", "COUNT(*) OVER w, STDDEV_SAMP(price) OVER w"),
    ("n BIGINT, a BIGINT", "COUNT(*) OVER w, SUM(size * 2) OVER w"),
)


def main(elements: int, queries: int) -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", "1")
    tables.execute_sql(
        "CREATE TABLE s (id BIGINT, k INT, size BIGINT, price DOUBLE, "
        f"ts AS TO_TIMESTAMP_LTZ(id * {1_000 // RATE}, 3), WATERMARK FOR ts AS ts) WITH "
        "('connector' = 'datagen', 'rows-per-second' = '1000000000', "
        f"'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '{elements}', "
        f"'fields.k.min' = '0', 'fields.k.max' = '{KEYS - 1}', "
        "'fields.size.min' = '0', 'fields.size.max' = '99', "
        "'fields.price.min' = '0', 'fields.price.max' = '1000')"
    )
    together = tables.create_statement_set()
    for number in range(queries):
        columns, aggregates = AGGREGATES[number % 10]
        minutes = 10 - number // 10 % 10
        tables.execute_sql(
            f"CREATE TABLE q{number} (k INT, {columns}) WITH ('connector' = 'blackhole')"
        )
        together.add_insert_sql(
            f"INSERT INTO q{number} SELECT k, {aggregates} FROM s WINDOW w AS (PARTITION BY k "
            f"ORDER BY ts RANGE BETWEEN INTERVAL '{minutes}' MINUTE PRECEDING AND CURRENT ROW)"
        )
    begun = time.perf_counter()
    together.execute().wait()
    print(json.dumps({"seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
