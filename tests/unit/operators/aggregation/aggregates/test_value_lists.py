"""LIST and STRING_AGG follow the changes of their rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.oracle.world import World
from tests.tools.changes_play import check_changes, plan_query

from millpond.engine.dataflow.dataflow import Dataflow
from millpond.errors import MillpondError
from millpond.operators.aggregation import list_measures
from millpond.operators.aggregation.aggregates.value_lists import NAMES
from millpond.operators.recompute import Recompute
from millpond.operators.recompute_groups import RecomputeGroups
from millpond.synopses import ordered_texts
from millpond.synopses.key_lists import KeyLists

SECOND = 1_000_000
CUTS = [0, 3 * SECOND, 3 * SECOND + 1, 9 * SECOND, 40 * SECOND]
VALUES: dict[str, tuple[str, list[Any]]] = {
    "v": ("INTEGER", [None, 0, 1, 2]),
    "x": ("DOUBLE", [None, 0.5, 1.5, float("nan"), float("inf"), -2.5]),
    "t": ("VARCHAR", [None, "", "a", "b", "a,b", ",", "é"]),
    "w": ("DECIMAL(30,2)", [None, "12345678901234567890.12", "-0.01"]),
    "b": ("BOOLEAN", [None, True, False]),
    "u": ("BLOB", [None, b"", b"\0", b"\xff"]),
    "z": ("TIMESTAMP", [None, "2013-01-01 10:00:00", "1969-12-31 23:59:59"]),
}
GROUPS = "FROM s [RANGE 4 SECONDS] GROUP BY k"
INCREMENTAL = [
    f"SELECT k, string_agg(t, ',') AS a, string_agg(t) AS b, listagg(t, '') AS c {GROUPS}",
    f"SELECT k, group_concat(t, ' it''s é ') AS a, string_agg(upper(t), '--') AS b {GROUPS}",
    f"SELECT k, list(v) FILTER (WHERE v > 0) AS a, list(v) FILTER (WHERE b) AS b {GROUPS}",
    f"SELECT k, string_agg(t, ',') FILTER (WHERE v > 0) AS a, array_agg(v + 1) AS b {GROUPS}",
    f"SELECT k, len(list(v)) AS n, list(v)[1] AS f, count(*) AS m {GROUPS} HAVING len(list(v)) > 1",
    f"SELECT k, string_agg(v::VARCHAR, ',') AS a, last(v) AS b, max(v) AS c {GROUPS}",
    f"SELECT k, list(v ORDER BY x) AS a, string_agg(t, ',' ORDER BY v DESC) AS b {GROUPS}",
    f"SELECT k, array_agg(t ORDER BY b NULLS FIRST, u DESC) AS a, list(v) AS b {GROUPS}",
    f"SELECT k, string_agg(t, ',' ORDER BY t) FILTER (WHERE v > 0) AS a {GROUPS}",
    "SELECT k, list(b ORDER BY t DESC NULLS FIRST, w) AS a FROM s [ROWS 9] GROUP BY k",
    "SELECT list(v) AS a, string_agg(t, ',') AS b FROM s [RANGE 2 SECONDS]",
    "SELECT k, list(v) AS a, string_agg(t, ',') AS b FROM s GROUP BY k",
    "SELECT k, list(b) AS a, string_agg(t, ',') AS b FROM s [ROWS 5] GROUP BY k",
    "SELECT list(b) AS a FROM s [ROWS 3]",
    "SELECT string_agg(t, ',') AS a FROM s [ROWS 2]",
    "SELECT k, list(t) AS a FROM s [PARTITION BY k ROWS 3] GROUP BY k",
    "SELECT k, list(v) AS a FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE v > 0 GROUP BY k",
    "SELECT k, list(v) AS a FROM s [RANGE 6 SECONDS] WHERE v IN"
    " (SELECT v FROM s [RANGE 1 SECOND]) GROUP BY k",
    "SELECT DISTINCT list(b) AS a FROM s [RANGE 1 SECOND] GROUP BY k",
]
ANEW = [
    f"SELECT k, list(v ORDER BY [v], x, b) AS a {GROUPS}",
    f"SELECT k, list(DISTINCT v ORDER BY v) AS a {GROUPS}",
    f"SELECT k, list([v]) AS a {GROUPS}",
    f"SELECT k, string_agg(t, chr(10)) AS a {GROUPS}",
    "SELECT k, list(v) AS a FROM (SELECT * FROM s [RANGE 4 SECONDS]) GROUP BY k",
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


@pytest.mark.parametrize("seed", range(3))
def test_values_of_any_type_are_listed(seed: int) -> None:
    calls = ", ".join(f"list({name}) AS l_{name}" for name in VALUES)
    check(make_world(seed), f"SELECT k, {calls} {GROUPS}")


def test_every_function_is_compared() -> None:
    assert all(any(f"{name}(" in text for text in INCREMENTAL) for name in NAMES)


@pytest.mark.parametrize("text", INCREMENTAL)
def test_they_stand_where_aggregates_stand(text: str) -> None:
    for seed in (3, 4):
        check(make_world(seed), text)


@pytest.mark.parametrize("text", ANEW)
def test_the_rest_is_answered_anew(text: str) -> None:
    plan = plan_query(make_world(1), text)
    assert plan.fallback or any(isinstance(node, RecomputeGroups) for node in plan.nodes())
    check_changes(make_world(1), text, CUTS)


def advance(flow: Dataflow, first: int, last: int) -> list[dict[str, Any]]:
    """Give a dataflow one element at each instant, of three groups by turns."""
    ((name, columns),) = flow.needs.items()
    at = np.arange(first, last)
    some = {"__ts": at, "__seq": at, "k": [f"k{n % 3}" for n in at.tolist()]}
    some |= {"t": [f"t{n % 10}" for n in at.tolist()], "v": pa.array(at, pa.int32())}
    table = pa.table({c: some[c] for c in ("__ts", "__seq", *columns)})
    given = flow.advance({name: table}, last - 1).values()
    return [change for table in given for change in table.to_pylist()]


@pytest.mark.parametrize("is_narrow", [False, True])
def test_steps_of_any_length_add_up_to_the_lists(
    is_narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where labels have so little room that all are given anew."""
    rekey, rekeyed = KeyLists.rekey, []
    if is_narrow:
        for name, value in (("_LOWEST", -(2**12)), ("_HIGHEST", 2**12), ("_STRIDE", 8)):
            monkeypatch.setattr(ordered_texts, name, value)
    monkeypatch.setattr(KeyLists, "rekey", lambda *keys: (rekeyed.append(1), rekey(*keys)))
    text = "SELECT k, list(v) AS a, string_agg(t, ';') AS b FROM s [ROWS 50] GROUP BY k"
    flow = Dataflow(plan_query(make_world(1), text))
    held: Counter[str] = Counter()
    first, random = 0, Random(5)
    while first < 2_000:
        last = first + random.choice([1, 2, 30, 200])
        for change in advance(flow, first, last):
            held[repr((change["k"], change["a"], change["b"]))] += change["__sign"]
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for n in range(max(0, last - 50), last):
            groups[f"k{n % 3}"].append(n)
        expected = {
            repr((k, own, ";".join(f"t{n % 10}" for n in own))): 1 for k, own in groups.items()
        }
        assert {row: many for row, many in held.items() if many} == expected
        first = last
    assert bool(rekeyed) == is_narrow


@pytest.mark.parametrize(("call", "most"), [("list(v)", "VALUES"), ("string_agg(t, ',')", "BYTES")])
def test_lists_that_are_too_long_for_one_step_are_refused(
    call: str, most: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_measures, f"MOST_{most}", 2_000)
    flow = Dataflow(plan_query(make_world(1), f"SELECT k, {call} AS a FROM s GROUP BY k"))
    assert advance(flow, 0, 20)
    assert not flow.failed
    advance(flow, 20, 400)
    (error,) = flow.failed.values()
    assert isinstance(error, MillpondError)
    assert error.code == "POND-405"
