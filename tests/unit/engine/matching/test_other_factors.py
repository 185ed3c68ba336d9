"""Other factors under the eddy: predicates that can fail, and functions, in any order.

The reference looks at rows one by one: a row matches when every factor is TRUE of it, and makes
the query fail when a factor fails on it and no other takes it away.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

import cloudpickle
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millpond.catalog.objects import FunctionDef
from millpond.engine.eddy.eddy import Router
from millpond.engine.eddy.routing import POLICIES, policy
from millpond.engine.matching.other_factors import OtherFactors, find_satisfying
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.engine.scalars.user_functions import functions
from millpond.model.function_names import name_inside, restore_names

SCALAR = ScalarEvaluator()
_NUMBERS = count()


def function(
    name: str, code: Callable[..., Any], cost: float | None = None, seconds: float = 5.0
) -> str:
    """The name inside of a function of one text; no two are the same."""
    inside = name_inside(name, [str(next(_NUMBERS)).encode()])
    pickled = bytes(cloudpickle.dumps(code))
    functions.add(FunctionDef(0, name, inside, ("VARCHAR",), "BIGINT", cost, seconds, pickled))
    return inside


def rows_given(inside: str) -> int:
    return functions.usage()[inside].rows


def decide(
    table: pa.Table, of_slot: dict[int, tuple[str, ...]], router: Router | None = None
) -> tuple[dict[int, list[int]], dict[int, str]]:
    others = OtherFactors(table, of_slot, SCALAR, router or Router(policy("ticket")))
    found = dict(others.decide(dict.fromkeys(of_slot)))
    assert all(len(rows) for rows in found.values())
    assert not found.keys() & others.failed.keys()
    return {slot: found[slot].tolist() if slot in found else [] for slot in of_slot}, others.failed


def naive(table: pa.Table, predicates: tuple[str, ...]) -> list[int] | None:
    """Row by row; None if the query fails."""
    rows = []
    for row in range(table.num_rows):
        verdicts = [SCALAR.select(table.slice(row, 1), p) for p in predicates]
        kept = [None if isinstance(v, duckdb.Error) else bool(len(v)) for v in verdicts]
        if False in kept:
            continue
        if None in kept:
            return None
        rows.append(row)
    return rows


FACTORS = (
    'CAST("s" AS INTEGER) > 3',
    'CAST("t" AS INTEGER) < 5',
    'CAST("s" AS INTEGER) + CAST("t" AS INTEGER) = 7',
    "\"s\" LIKE '%1%'",
    "\"s\" SIMILAR TO '[0-9]+'",
    'length("t") = 1',
    '"t" IS NULL OR CAST("t" AS INTEGER) > 2',
    'CAST("t" AS BOOLEAN)',
)
TEXTS = st.sampled_from(["1", "4", "12", "x", "", "true", None])


@settings(max_examples=60)
@example([("x", "9"), ("1", "y")], [(0, 1)], "fixed")
@given(
    st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=12),
    st.lists(
        st.lists(st.integers(0, len(FACTORS) - 1), min_size=1, max_size=4, unique=True).map(tuple),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(sorted(POLICIES)),
)
def test_every_policy_decides_as_row_by_row(
    rows: list[tuple[str | None, str | None]], queries: list[tuple[int, ...]], name: str
) -> None:
    table = pa.table(
        {
            "s": pa.array([s for s, _ in rows], "string"),
            "t": pa.array([t for _, t in rows], "string"),
        }
    )
    of_slot = {slot: tuple(FACTORS[f] for f in query) for slot, query in enumerate(queries)}
    router = Router(policy(name, 7))
    for _ in range(2):  # what was learnt changes the order, and nothing else
        found, failed = decide(table, of_slot, router)
        for slot, predicates in of_slot.items():
            expected = naive(table, predicates)
            assert (slot in failed) == (expected is None)
            assert found[slot] == (expected or [])


def test_rows_on_which_each_fails_but_the_other_takes_them_away() -> None:
    table = pa.table({"s": ["x", "1", "12"], "t": ["9", "y", "3"]})
    found = find_satisfying(SCALAR, table, FACTORS[:2])
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [2]
    table = pa.table({"s": ["x", "1", "12"], "t": ["3", "y", "3"]})
    failed = find_satisfying(SCALAR, table, FACTORS[:2])
    assert isinstance(failed, duckdb.Error)
    assert "Could not convert string 'x'" in str(failed)


def test_a_failure_on_rows_of_another_query_is_its_own() -> None:
    table = pa.table({"s": ["1", "x", "7"]})
    of_slot = {0: ("\"s\" LIKE '_' AND \"s\" <> 'x'", FACTORS[0]), 1: (FACTORS[0],)}
    found, failed = decide(table, of_slot)
    assert found == {0: [2], 1: []}
    assert list(failed) == [1]


# -- functions -------------------------------------------------------------------------------------


def lengths(s: pa.Array) -> pa.Array:
    return pc.utf8_length(s).cast("int64")


TABLE = pa.table({"s": [str(n) for n in range(100_000)]})


def test_a_function_sees_what_a_selective_factor_written_behind_it_leaves() -> None:
    dear = function("dear", lengths)
    predicates = (f'{dear}("s") > 0', 'CAST("s" AS INTEGER) < 500')
    found, failed = decide(TABLE, {0: predicates})
    assert not failed
    assert found == {0: list(range(500))}
    assert rows_given(dear) == 500, "as written: 100,000"


def test_the_order_adapts_to_what_functions_turn_out_to_cost_and_take_away() -> None:
    def slow(s: pa.Array) -> pa.Array:
        time.sleep(len(s) * 2e-6)
        return pc.utf8_length(s).cast("int64")

    dear, cheap = function("dear", slow), function("cheap", lengths)
    predicates = (f'{dear}("s") > 0', f'{cheap}("s") < 3')
    router = Router(policy("ticket", 5))
    found, _ = decide(TABLE, {0: predicates}, router)
    assert found == {0: list(range(100))}
    assert rows_given(cheap) > 90_000
    assert rows_given(dear) < 10_000, "the first morsel, and what was left of the others"


def test_declared_costs_decide_until_there_are_measured_ones() -> None:
    named = {n: function(n, lengths, cost) for n, cost in [("b", 5.0), ("a", 1.0), ("c", None)]}
    router = Router(policy("ticket"))
    others = OtherFactors(TABLE, {}, SCALAR, router)
    written = tuple(f'{named[n]}("s") > 0' for n in "cba")
    route = others._route(
        (*written, '"s" + 0 > 1', "\"s\" LIKE '%1'"),
        dict.fromkeys(written, 1) | {'"s" + 0 > 1': 1, "\"s\" LIKE '%1'": 1},
    )
    shown = [restore_names(e)[:4] for e in route]
    assert shown == ['"s" ', '"s" ', 'a("s', 'b("s', 'c("s']


def test_a_function_that_fails_early_is_not_tried_early_again() -> None:
    def picky(s: pa.Array) -> pa.Array:
        if "x" in s.to_pylist():
            raise ValueError("x")
        return pc.utf8_length(s).cast("int64")

    inside = function("picky", picky, cost=0.0)
    table = pa.table({"s": ["x", "12", "3"]})
    predicates = (f'{inside}("s") = 1', "regexp_matches(\"s\", '[0-9]')")
    router = Router(policy("ticket", 1))
    for _ in range(5):
        found, failed = decide(table, {0: predicates}, router)
        assert (found, failed) == ({0: [2]}, {})
    usage = functions.usage()[inside]
    assert usage.calls <= 6, "once early, then behind what guards it"


def test_a_function_that_raises_on_what_is_left_fails_its_query() -> None:
    def picky(s: pa.Array) -> pa.Array:
        raise ValueError("never")

    inside = function("picky", picky)
    table = pa.table({"s": ["x", "12", "3"]})
    for name in POLICIES:
        found, failed = decide(table, {0: (f'{inside}("s") = 1', FACTORS[4])}, Router(policy(name)))
        assert found == {0: []}
        assert failed == {0: 'function "picky" raised ValueError: never'}
        found, failed = decide(
            table, {0: (f'{inside}("s") = 1', "\"s\" LIKE '%y'")}, Router(policy(name))
        )
        assert (found, failed) == ({0: []}, {})


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_time_is_judged_on_the_rows_that_nothing_else_takes_away(name: str) -> None:
    def slow(s: pa.Array) -> pa.Array:
        if len(s) > 100:
            time.sleep(60)
        return pc.utf8_length(s).cast("int64")

    inside = function("slow", slow, seconds=0.05)
    predicates = (f'{inside}("s") > 0', 'CAST("s" AS INTEGER) < 50')
    found, failed = decide(TABLE.slice(0, 2_000), {0: predicates}, Router(policy(name, 1)))
    assert (found, failed) == ({0: list(range(50))}, {})
    found, failed = decide(TABLE.slice(0, 2_000), {0: (predicates[0], 'length("s") < 9')})
    assert failed == {0: 'function "slow" took longer than 0.05 seconds for one call'}
