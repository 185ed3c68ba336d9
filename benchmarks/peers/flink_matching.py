"""Elements through N range queries in Flink SQL: one statement set, so that it reads them once.

The queries share sinks, fifty each, and say which of them a row is for: with a sink of its own
every query would be a task of its own, and a thousand of them are slower still (and in need of
more network buffers than Flink takes by default); more than some hundred in one UNION ALL are too
deep for its planner.

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
A_SINK = 50
SETTINGS = {
    "parallelism.default": "2",
    "pipeline.object-reuse": "true",
    "taskmanager.memory.network.min": "1gb",
    "taskmanager.memory.network.max": "1gb",
}


def main(elements: int, queries: int) -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in SETTINGS.items():
        tables.get_config().set(name, value)
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
    tables.execute_sql(f"CREATE TABLE found (q INT, {columns}) WITH ('connector' = 'blackhole')")
    selections = []
    for number in range(queries):
        lows = [chance.randrange(SPAN - WIDTH) for _ in ATTRIBUTES]
        where = " AND ".join(
            f"{a} BETWEEN {low} AND {low + WIDTH}" for a, low in zip(ATTRIBUTES, lows, strict=True)
        )
        selections.append(f"SELECT {number}, s.* FROM s WHERE {where}")
    for first in range(0, queries, A_SINK):
        union = " UNION ALL ".join(selections[first : first + A_SINK])
        together.add_insert_sql(f"INSERT INTO found {union}")
    begun = time.perf_counter()
    together.execute().wait()
    print(json.dumps({"seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
