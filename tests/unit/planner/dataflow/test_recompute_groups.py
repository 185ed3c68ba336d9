"""Window functions and unusual aggregates: answered anew by groups, held to the oracle."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.oracle.world import World
from tests.tools.changes_play import check_changes, plan_query

from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.operators.protocol.delta import Delta
from millpond.operators.recompute_groups import RecomputeGroups

SECOND = 1_000_000
CUTS = [0, 3 * SECOND, 3 * SECOND + 1, 9 * SECOND, 40 * SECOND]
S = "s [RANGE 4 SECONDS]"


BY_GROUP = [
    f"SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY ts, v) AS n FROM {S}",
    f"SELECT *, sum(v) OVER (PARTITION BY k) + 1 AS total FROM {S} WHERE v > 2",
    f"SELECT v, lag(v) OVER (PARTITION BY k, v % 2 ORDER BY ts) AS b,"
    f" count(*) OVER (PARTITION BY k) AS n FROM {S}",
    f"SELECT k, v, rank() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM {S} QUALIFY r = 1",
    f"SELECT k FROM {S} QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC) = 1",
    f"SELECT DISTINCT k, max(v) OVER (PARTITION BY k) AS m FROM {S} ORDER BY 2 LIMIT 2",
    "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM s [ROWS 5]",
    f"SELECT x.k, sum(y.v) OVER (PARTITION BY x.k) AS n FROM {S} x, t [RANGE 2 SECONDS] y"
    " WHERE x.k = y.k",
    f"SELECT k, string_agg(DISTINCT v::VARCHAR, ',' ORDER BY v::VARCHAR) AS vs, count(*) AS n"
    f" FROM {S} GROUP BY k",
    f"SELECT v % 3 AS m, list(DISTINCT v ORDER BY v) AS vs FROM {S} GROUP BY m HAVING count(*) > 1",
    f"SELECT k, bit_xor(v) AS x, max(v) FROM {S} GROUP BY ALL",
]

ANEW = [
    (f"SELECT v, row_number() OVER (ORDER BY v) AS n FROM {S}", "over all rows"),
    (f"SELECT v, sum(v) OVER (PARTITION BY k), sum(v) OVER () FROM {S}", "over all rows"),
    (
        f"SELECT k, rank() OVER (PARTITION BY k ORDER BY count(*)) FROM {S} GROUP BY k",
        "over groups",
    ),
    (f"SELECT list(DISTINCT v ORDER BY v) AS vs FROM {S}", "list"),
]


@pytest.mark.parametrize("text", BY_GROUP)
def test_what_is_by_group_is_right_and_answered_by_group(world: World, text: str) -> None:
    plan = check_changes(world, text, CUTS, pickled=True)
    assert plan.fallback is None, plan.fallback
    assert any(isinstance(node, RecomputeGroups) for node in plan.nodes())


@pytest.mark.parametrize(("text", "reason"), ANEW)
def test_the_rest_is_answered_anew_whole(world: World, text: str, reason: str) -> None:
    plan = plan_query(world, text)
    assert reason in (plan.fallback or "").lower()


def test_only_the_groups_that_change_are_answered(world: World) -> None:
    """A row of one key has no other key's rows looked at."""
    (node,) = (n for n in plan_query(world, BY_GROUP[3]).nodes() if isinstance(n, RecomputeGroups))
    asked: list[int] = []

    class Scalars(DuckDBScalars):
        def query(self, sql: str, tables: dict[str, pa.Table]) -> pa.Table:
            asked.append(tables["group_rows"].num_rows)
            return super().query(sql, tables)

    operator = node.operator()
    for step, keys in enumerate((["a"] * 3 + ["b"] * 5, ["a"], ["c"], ["b"])):
        types = node.input.schema.types
        at = np.full(len(keys), step, np.int64)
        values = {
            pa.string(): pa.array(keys, pa.string()),
            pa.int32(): pa.array(range(len(keys)), pa.int32()),
            pa.int64(): pa.array(at),
            pa.timestamp("us"): pa.array(at, pa.timestamp("us")),
        }
        rows = pa.RecordBatch.from_arrays([values[t] for t in types], schema=node.input.schema)
        operator.advance([Delta.of(rows, at)], step, Scalars())
    assert asked == [3 + 5, 4, 1, 6]
