"""Elements through N range queries in Flink SQL: one statement set, so that it reads them once.

python flink_matching.py ELEMENTS QUERIES
"""

from __future__ import annotations

import json
import random
import sys
import time

from pyflink.table import EnvironmentSettings, TableEnvironment

ATTRIBUTES = "abcde"
SPAN = 1_000_000
WIDTH = int(SPAN * 0.06 ** (1 / len(ATTRIBUTES)))


def main(elements: int, queries: int) -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", "2")
    columns = ", ".join(f"{a} INT" for a in ATTRIBUTES)
    bounds = ", ".join(
        f"'fields.{a}.min' = '0', 'fields.{a}.max' = '{SPAN - 1}'" for a in ATTRIBUTES
    )
    tables.execute_sql(
        f"CREATE TABLE s ({columns}) WITH ('connector' = 'datagen', 'number-of-rows' = "
        f"'{elements}', 'rows-per-second' = '1000000000', {bounds})"
    )
    chance = random.Random(1)
    together = tables.create_statement_set()
    for number in range(queries):
        tables.execute_sql(f"CREATE TABLE q{number} ({columns}) WITH ('connector' = 'blackhole')")
        lows = [chance.randrange(SPAN - WIDTH) for _ in ATTRIBUTES]
        where = " AND ".join(
            f"{a} BETWEEN {low} AND {low + WIDTH}" for a, low in zip(ATTRIBUTES, lows, strict=True)
        )
        together.add_insert_sql(f"INSERT INTO q{number} SELECT * FROM s WHERE {where}")
    begun = time.perf_counter()
    together.execute().wait()
    print(json.dumps({"seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
