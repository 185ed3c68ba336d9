"""FIRST, LAST, ANY_VALUE, ARG_MIN and ARG_MAX follow the changes of their rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.oracle.world import World
from tests.tools.changes_play import check_changes, plan_query

from millpond.engine.dataflow.dataflow import Dataflow
from millpond.operators.aggregation.aggregates.first_last import NAMES
from millpond.operators.recompute import Recompute
from millpond.operators.recompute_groups import RecomputeGroups

SECOND = 1_000_000
CUTS = [0, 3 * SECOND, 3 * SECOND + 1, 9 * SECOND, 40 * SECOND]
VALUES = {
    "v": ("INTEGER", [None, 0, 1, 2, 3, -5]),
    "x": ("DOUBLE", [None, 0.0, -0.0, 1.5, float("nan"), float("inf"), -2.5]),
    "f": ("FLOAT", [None, 0.5, -1.25]),
    "t": ("VARCHAR", [None, "", "a", "b", "é\x00b", "\x01"]),
    "d": ("DECIMAL(9,2)", [None, "1.50", "-0.01"]),
    "w": ("DECIMAL(30,2)", [None, "12345678901234567890.12", "-0.01"]),
    "b": ("BOOLEAN", [None, True, False]),
    "u": ("BLOB", [None, b"", b"\0", b"\0\0", b"\0\xff", b"\xff", b"\xff\0", b"\xff\xff", b"a"]),
    "day": ("DATE", [None, "2013-01-01", "1969-12-31"]),
    "z": ("TIMESTAMP", [None, "2013-01-01 10:00:00", "1969-12-31 23:59:59"]),
}
#: What the greatest is looked for among.
ORDERS = ["v", "x", "f", "d", "b", "day", "z", "v + 1", "abs(v)::UBIGINT", "ts::TIME", "ts"]
ORDERS += ["t", "u", "w", "upper(t)", "v::HUGEINT"]
CALLS = ("first", "last", "any_value", "arbitrary")
ARG_CALLS = [
    ("arg_min", "t"),
    ("arg_max", "v"),
    ("arg_min_null", "v"),
    ("arg_max_null", "t"),
    ("max_by", "x"),
]
GROUPS = "FROM s [RANGE 4 SECONDS] GROUP BY k"
INCREMENTAL = [
    f"SELECT k, last(v) FILTER (WHERE v > 0) AS a, first(t) FILTER (WHERE x > 0) AS b {GROUPS}",
    f"SELECT k, arg_max(t, v) FILTER (WHERE b) AS a, max_by(v, x) AS c {GROUPS}",
    f"SELECT k, last(abs(v)::UBIGINT) AS a, first(z::TIME) AS b, last(v::HUGEINT) AS c {GROUPS}",
    f"SELECT k, last(v + 1) AS a, first(upper(t)) AS b, arg_min(v * 2, x / 2) AS c {GROUPS}",
    f"SELECT k, last(v) - first(v) AS up, count(*) AS n, max(v) AS m {GROUPS} HAVING last(v) > 0",
    "SELECT first(v) AS a, last(v) AS b, any_value(v) AS c FROM s [RANGE 2 SECONDS]",
    "SELECT k, last(v) AS a, arg_max(v, x) AS b FROM s GROUP BY k",
    "SELECT k, last(v) AS a, arg_min(v, x) AS b FROM s [ROWS 5] GROUP BY k",
    "SELECT k, first(v) AS a FROM s [PARTITION BY k ROWS 3] GROUP BY k",
    "SELECT k, last(v) AS a FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE v > 0 GROUP BY k",
    f"SELECT k, arg_max(t, v) AS a, arg_max(v, v) AS b, arg_max(x, v) AS c {GROUPS}",
    f"SELECT k, arg_max(t, u) FILTER (WHERE v > 0) AS a, arg_min(u, t) AS b {GROUPS}",
    "SELECT k, arg_max(v, t) AS a, arg_min(t, w) AS b FROM s [ROWS 5] GROUP BY k",
    f"SELECT k, last(v ORDER BY x) AS a, first(t ORDER BY b DESC NULLS FIRST, t) AS b {GROUPS}",
    f"SELECT k, any_value(t ORDER BY u DESC, w NULLS FIRST) AS a, last(t ORDER BY w) AS b {GROUPS}",
    f"SELECT k, arg_max(t, b ORDER BY v DESC) AS a, arg_min(v, t ORDER BY b) AS b {GROUPS}",
    f"SELECT k, first(v ORDER BY v % 2, t) FILTER (WHERE x > 0) AS a {GROUPS}",
    "SELECT k, last(v ORDER BY b) AS a FROM s [ROWS 9] GROUP BY k",
    "SELECT k, last(v ORDER BY t NULLS FIRST) AS a FROM s GROUP BY k",
    "SELECT k, arg_min_null(v, u) AS a, arg_max(u, w) AS b FROM s GROUP BY k",
]
ANEW = [
    "SELECT k, last(v) AS a FROM (SELECT * FROM s [RANGE 4 SECONDS] WHERE v > 0) GROUP BY k",
    f"SELECT k, last(v ORDER BY [x]) AS a {GROUPS}",
    f"SELECT k, arg_max(v, [v]) AS a {GROUPS}",
    f"SELECT k, arg_max(v, x, 2) AS a {GROUPS}",
    f"SELECT k, last([v]) AS a {GROUPS}",
]


def make_world(seed: int) -> World:
    random = Random(seed)
    pond = OraclePond()
    columns = ", ".join(f"{name} {type_}" for name, (type_, _) in VALUES.items())
    pond.execute(f"CREATE STREAM s (ts TIMESTAMP, k VARCHAR, {columns}) TIMESTAMP BY ts")
    rows = [
        {
            "ts": f"1970-01-01 00:00:{i // 4:02d}",
            "k": random.choice([None, "a", "b"]),
            **{name: random.choice(values) for name, (_, values) in VALUES.items()},
        }
        for i in range(32)
    ]
    pond.ingest("s", rows)
    return pond.world


def check(world: World, text: str) -> None:
    plan = check_changes(world, text, CUTS, pickled=True)
    assert plan.fallback is None, plan.fallback
    assert not any(isinstance(node, Recompute | RecomputeGroups) for node in plan.nodes()), text


@pytest.mark.parametrize("number", range(3))
def test_values_of_any_type_are_picked(number: int) -> None:
    calls = ", ".join(
        f"{call}({name}) AS {call}_{name}" for name in list(VALUES)[number::3] for call in CALLS
    )
    check(make_world(number), f"SELECT k, {calls} {GROUPS}")


@pytest.mark.parametrize("number", range(4))
def test_values_of_extremes_are_picked(number: int) -> None:
    calls = [f"{call}({value}, {by})" for by in ORDERS[number::4] for call, value in ARG_CALLS]
    named = ", ".join(f"{call} AS c{place}" for place, call in enumerate(calls))
    check(make_world(number), f"SELECT k, {named} {GROUPS}")


def test_every_function_is_compared() -> None:
    assert set(NAMES) <= {*CALLS, *(call for call, _ in ARG_CALLS)}


@pytest.mark.parametrize("text", INCREMENTAL)
def test_they_stand_where_aggregates_stand(text: str) -> None:
    check(make_world(3), text)


#: Of a group's pairs (v, t) in their order.
WHOLE: dict[str, Callable[[list[tuple[int, str]]], Any]] = {
    "last(v)": lambda rows: rows[-1][0],
    "first(t)": lambda rows: rows[0][1],
    "arg_min(t, v)": lambda rows: min(rows)[1],
    "arg_max(t, v)": lambda rows: max(rows)[1],
    "arg_max(v, t)": lambda rows: max((t, v) for v, t in rows)[1],
    "arg_min(v, t)": lambda rows: min((t, v) for v, t in rows)[1],
    "first(v ORDER BY t DESC)": lambda rows: max((t, v) for v, t in rows)[1],
    "max(t)": lambda rows: max(t for _, t in rows),
    "min(v)": lambda rows: min(rows)[0],
    "max(v) - last(v)": lambda rows: max(rows)[0] - rows[-1][0],
}


@pytest.mark.parametrize("call", WHOLE)
def test_over_a_whole_stream_they_keep_no_more_than_they_give(call: str) -> None:
    """Nothing leaves, so the two ends of each group are enough."""
    plan = plan_query(make_world(1), f"SELECT k, {call} AS a FROM s GROUP BY k")
    flow = Dataflow(plan)
    ((name, columns),) = flow.needs.items()
    groups: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    kept, held = [], Counter[tuple[Any, ...]]()
    for step in range(12):
        at = np.arange(step * 1_000, (step + 1) * 1_000)
        v = at * 7_919 % 100_003
        t = [f"{n * 31 % 100_003:09d}" for n in v.tolist()]
        k = [f"k{n % 3}" for n in at.tolist()]
        some = {"__ts": at, "__seq": at, "k": k, "v": pa.array(v, pa.int32()), "t": t}
        given = pa.table({c: some[c] for c in ("__ts", "__seq", *columns)})
        for change in flow.advance({name: given}, int(at[-1]))[plan.key].to_pylist():
            held[change["k"], change["a"]] += change["__sign"]
        assert not flow.failed
        for key, *row in zip(k, v.tolist(), t, strict=True):
            groups[key].append((row[0], row[1]))
        expected = {(key, WHOLE[call](rows)): 1 for key, rows in groups.items()}
        assert {row: many for row, many in held.items() if many} == expected
        kept.append(sum(s.memory for s in flow.list_state(every=True).values()))
    assert kept[-1] <= 2 * kept[3]


@pytest.mark.parametrize("text", ANEW)
def test_the_rest_is_answered_anew(text: str) -> None:
    plan = plan_query(make_world(1), text)
    assert plan.fallback or any(isinstance(node, RecomputeGroups) for node in plan.nodes())
    check_changes(make_world(1), text, CUTS)
