"""Constraints of streams never change an answer, whether they hold or not, and for whatever k."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import BEFORE, plan_query

from millpond.engine.dataflow.dataflow import Dataflow
from millpond.model.constraints import CLUSTERED, FOREIGN_KEY, KINDS, ORDERED, UNIQUE, Constraint
from millpond.operators import group_by
from millpond.operators.structures import observed_constraints, releases
from millpond.planner.optimize.statistics import GuessedStatistics

SECOND = 1_000_000
TEXTS = (
    "SELECT a.v, b.v AS w FROM a, b WHERE a.k = b.k",
    "SELECT a.v, b.v AS w FROM a [RANGE 9 SECONDS], b [RANGE 4 SECONDS] WHERE a.k = b.k",
    "SELECT x.v, b.v AS w FROM a [RANGE 30 SECONDS SLIDE 7 SECONDS] x, b "
    "WHERE x.k = b.k AND x.s = b.s",
    "SELECT a.k, count(*) AS n, sum(b.v) AS t FROM a, b [NOW] WHERE a.s = b.s GROUP BY a.k",
    "SELECT DISTINCT x.k FROM a [RANGE 8 SECONDS] x, a [RANGE 20 SECONDS] y "
    "WHERE x.v = y.k AND y.v > 2",
    "SELECT k, count(*) AS n, sum(v) AS t, min(v) AS m, count(DISTINCT s) AS d FROM a GROUP BY k",
    "SELECT s, max(v) AS m FROM a WHERE v > 1 GROUP BY s HAVING count(*) > 1",
    "SELECT a.v FROM a LEFT JOIN b [RANGE 5 SECONDS] ON a.k = b.k",
)
#: What elements satisfy: nearly the constraints, or nothing.
ROWS = st.tuples(st.integers(0, 4), st.integers(0, 6), st.sampled_from(("", "x", "y", None)))
LATENESS = st.lists(ROWS, min_size=1, max_size=60)


@pytest.fixture(scope="module")
def pond() -> OraclePond:
    pond = OraclePond()
    for name in "ab":
        pond.execute(
            f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT, v INTEGER, s VARCHAR) TIMESTAMP BY ts"
        )
    return pond


def make_history(draws: list[tuple[int, int, str | None]], ordered: bool) -> pa.Table:
    """Elements a few seconds apart; keys go up if `ordered`, now and then one step back."""
    steps = np.array([step for step, _, _ in draws], np.int64)
    values = np.array([value for _, value, _ in draws], np.int64)
    at = (1 + np.cumsum(steps)) * SECOND
    keys = np.arange(len(values)) - (values == 0) * 3 if ordered else values
    columns = {"__ts": at, "__seq": np.arange(len(at)), "k": keys}
    columns["v"] = pa.array(values, pa.int32())
    columns["s"] = pa.array([text for _, _, text in draws], pa.string())
    return pa.table(columns)


def between(history: pa.Table, after: int, upto: int) -> pa.Table:
    lo, hi = np.searchsorted(history["__ts"].to_numpy(), (after, upto), side="right")
    return history.slice(lo, hi - lo)


def read_back(histories: dict[str, pa.Table], name: str, upto: int) -> Iterator[pa.Table]:
    """The elements up to an instant, in parts in no order."""
    whole = between(histories[name], BEFORE, upto)
    for start in reversed(range(0, whole.num_rows, 7)):
        yield whole.slice(start, 7)


def constraints_of(kinds: set[str], k: int, is_time: bool, columns: tuple[str, ...]) -> tuple:  # type: ignore[type-arg]
    within = {"time": k * SECOND // 3} if is_time else {"rows": k}
    made = {
        UNIQUE: Constraint("u", UNIQUE, columns),
        CLUSTERED: Constraint("c", CLUSTERED, columns, **within),
        ORDERED: Constraint("o", ORDERED, ("k",), **within),
        FOREIGN_KEY: Constraint("f", FOREIGN_KEY, columns, "b", **within),
    }
    return tuple(made[kind] for kind in sorted(kinds))


def observe(
    histories: dict[str, pa.Table], columns: tuple[str, ...]
) -> dict[str, tuple[Constraint, ...]]:
    """What is observed of the first half of the histories; the other half may do otherwise."""
    first = {name: some.slice(0, (some.num_rows + 1) // 2) for name, some in histories.items()}
    found: dict[str, tuple[Constraint, ...]] = {}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_LEAST_ELEMENTS", "_LEAST_VALUES", "_PART"):
            patch.setattr(observed_constraints, name, 1)
        for name, run in first.items():
            own = observed_constraints.observe_constraints(run)
            key = observed_constraints.observe_key(run, columns) if len(columns) > 1 else None
            references = (
                observed_constraints.observe_reference(run, columns, first[other], columns, other)
                for other in "ab"
            )
            found[name] = (*own, *(one for one in (key, *references) if one is not None))
    return found


def check(pond: OraclePond, data: st.DataObject) -> None:
    """Raise AssertionError if constraints change what a dataflow gives at any step."""
    ordered = data.draw(st.booleans())
    histories = {name: make_history(data.draw(LATENESS), ordered) for name in "ab"}
    text = data.draw(st.sampled_from(TEXTS))
    k = data.draw(st.sampled_from((0, 1, 2, 5, 30, 1_000)))
    kinds = data.draw(st.sets(st.sampled_from(KINDS), min_size=1))
    columns = ("k", "s") if "x.s" in text else ("s",) if "a.s" in text or "BY s" in text else ("k",)
    own = constraints_of(kinds, k, data.draw(st.booleans()), columns)
    if data.draw(st.booleans()):  # as they are where nobody declared them
        own = tuple(replace(constraint, observed=True) for constraint in own)
    known = GuessedStatistics()
    known.constraints = {"a": own, "b": own}
    if data.draw(st.booleans()):
        known.constraints = observe(histories, columns)
    lazy = data.draw(st.sampled_from((None, 0, SECOND * 3)))
    plan = plan_query(pond.world, text, lazy_expiration=lazy, known=known)
    free, bound = Dataflow(plan, since=BEFORE), Dataflow(plan, since=BEFORE)
    bound.constrain(known.constraints)
    last = int(max(history["__ts"][-1].as_py() for history in histories.values())) // SECOND
    for second in sorted({*data.draw(st.sets(st.integers(1, 100), max_size=30)), last, last + 40}):
        upto = second * SECOND
        feeds = {name: between(some, free.position, upto) for name, some in histories.items()}
        expected = free.advance(feeds, upto)
        if data.draw(st.integers(0, 9)) == 0:
            bound = pickle.loads(pickle.dumps(bound))
        if data.draw(st.integers(0, 19)) == 0:
            bound.constrain({})
        assert bound.advance(feeds, upto, partial(read_back, histories)) == expected


@given(st.data())
@settings(max_examples=25)
def test_no_constraint_changes_an_answer(pond: OraclePond, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(releases, "_LEAST_ROWS", data.draw(st.sampled_from((0, 8))))
        patch.setattr(group_by, "_LEAST_GROUPS", data.draw(st.sampled_from((0, 3))))
        check(pond, data)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=2_000)
def test_no_constraint_changes_an_answer_of_many(pond: OraclePond, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(releases, "_LEAST_ROWS", data.draw(st.sampled_from((0, 8, 64))))
        patch.setattr(group_by, "_LEAST_GROUPS", data.draw(st.sampled_from((0, 3))))
        patch.setattr(releases, "_READ_FIRST", data.draw(st.sampled_from((0, 50, 10_000))))
        check(pond, data)
