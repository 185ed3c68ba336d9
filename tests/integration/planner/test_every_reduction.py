"""Every kind of operator × every reduction: what may be reduced gives parts of the exact changes.

The operators are those of the directory, each with a query whose plan has it; the forms of queries
are those that the rules of safety are tested with. Each reduced query is planned, and its dataflow
is run over small random histories; at every instant its rows are a sub-bag of the oracle's.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from tests.integration.service.test_every_operator_fails import QUERIES as OF_OPERATORS
from tests.oracle.changes import OracleChange, changes
from tests.oracle.oracle_pond import OraclePond
from tests.oracle.world import OutsideTheOracle, World
from tests.tools.changes_play import BEFORE, WorldNames, plan_query, run
from tests.unit.planner.approximate.test_safety import QUERIES, STREAM_VALUED

from millpond.catalog.tolerance import Reduction
from millpond.cql import parse_query
from millpond.planner.approximate.reductions import reduce_query, survey
from millpond.planner.bind.bind import bind
from millpond.planner.dataflow.plan import plan_changes

SECOND = 1_000_000
REDUCTIONS = {
    "window": Reduction(3 * SECOND),
    "sample": Reduction(None, 50.0),
    "shares": Reduction(None, 30.0, (70.0, 30.0, 100.0)),
    "both": Reduction(5 * SECOND, 60.0),
}
#: The operators over which nothing may be reduced, in the queries that stand for them: what they
#: give may change, or a row may come, when a row below is missing.
NEVER = {
    "GroupBy", "Grouping",  # estimated from a sample, and then their changes are exact
    "Negation", "Recompute", "RecomputeGroups", "RunningFrames", "TopK",
    "RowsWindow", "RelationVersions",  # a window of rows has no time to shorten
}  # fmt: skip
#: Those that may be reduced in one of the ways alone: a sample of a sample is none.
IN_PART = {"Sample": {"window", "both"}}


def make_world(
    seed: int, streams: Iterable[str], columns: str, values: dict[str, list[Any]]
) -> Any:
    """A history of a few elements a stream, within half a minute, and rows of relations."""
    chosen = random.Random(seed)
    pond = OraclePond()
    pond.execute("CREATE RELATION r (k STRING, d INTEGER)")
    pond.execute("CREATE NON RETROACTIVE RELATION n (k STRING, d INTEGER)")
    pond.execute("INSERT INTO r VALUES ('a', 1), ('b', 2)")
    pond.execute("INSERT INTO n VALUES ('a', 1), ('b', 2)")
    for stream in streams:
        pond.execute(f"CREATE STREAM {stream} (ts TIMESTAMP, {columns}) TIMESTAMP BY ts")
        at = sorted(chosen.choices(range(1, 30), k=12))
        pond.ingest(
            stream,
            [
                {
                    "ts": f"2024-01-01 00:00:{second:02}",
                    **{name: chosen.choice(some) for name, some in values.items()},
                }
                for second in at
            ],
        )
    return pond.world


END = 1_704_067_200 * SECOND + 100 * SECOND


def find_reduced_changes(
    world: World, text: str, wanted: Reduction, strategy: str = "aware"
) -> tuple[list[OracleChange], bool] | None:
    """The changes of a query that is reduced, and whether it is stream-valued; None: it is not."""
    names = WorldNames(world)
    bound = bind(parse_query(text), text, names)
    reduced = reduce_query(bound, survey(bound), wanted)
    if reduced is None or reduced.estimates:
        return None
    plan = plan_changes(reduced.bound, names, strategy=strategy)
    given, _ = run(world, [plan], [END])
    return given[plan.key], bound.to_stream is not None


def find_exact_changes(world: World, text: str) -> list[OracleChange]:
    """The changes that a query means; those of its own plan where the oracle has no SAMPLE."""
    try:
        return changes(world, parse_query(text), BEFORE, END)
    except OutsideTheOracle:
        plan = plan_query(world, text)
        return run(world, [plan], [END])[0][plan.key]


def check_parts(
    text: str, exact: Sequence[OracleChange], given: Sequence[OracleChange], streamed: bool
) -> None:
    """Raise AssertionError if changes ever have a row that the exact ones have not."""
    if streamed:
        left = Counter((c.at, c.row) for c in given) - Counter((c.at, c.row) for c in exact)
        assert not left, f"{text}: {left}"
        return
    for at in sorted({c.at for c in [*given, *exact]}):
        some, whole = (_add_up(of, at) for of in (given, exact))
        assert some <= whole, f"{text} at {at}: {some - whole}"


def _add_up(of: Sequence[OracleChange], at: int) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for change in of:
        if change.at <= at:
            found[change.row] += change.sign
    return found


def reduce_in_every_way(world: World, text: str, strategy: str = "aware") -> set[str]:
    """Check a query under each of the reductions; return those by which it is reduced."""
    taken = {}
    for name, wanted in REDUCTIONS.items():
        found = find_reduced_changes(world, text, wanted, strategy)
        if found is not None:
            taken[name] = found
    if taken:
        exact = find_exact_changes(world, text)
        for given, streamed in taken.values():
            check_parts(text, exact, given, streamed)
    return set(taken)


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("operator", OF_OPERATORS)
def test_every_operator_under_every_reduction(operator: str, seed: int) -> None:
    text, strategy = OF_OPERATORS[operator]
    values = {"k": ["a", "b"], "v": [0, 1, 4, 5]}
    world = make_world(seed, "st", "k STRING, v INTEGER", values)
    expected = IN_PART.get(operator, set() if operator in NEVER else set(REDUCTIONS))
    assert reduce_in_every_way(world, text, strategy) == expected


FORMS = [
    # One round in the short suite, where the rules are tested on smaller bags, too.
    pytest.param(text, seed, marks=() if place % 4 == seed == 0 else pytest.mark.slow)
    for place, text in enumerate((*QUERIES, *STREAM_VALUED))
    for seed in range(6)
]


@pytest.mark.parametrize(("text", "seed"), FORMS)
def test_every_form_of_query_under_every_reduction(text: str, seed: int) -> None:
    world = make_world(seed, "stu", "a INTEGER, b INTEGER", {"a": [0, 1, 1, None], "b": [0, 1, 2]})
    safe = {**QUERIES, **STREAM_VALUED}[text]
    assert bool(reduce_in_every_way(world, text)) == bool(safe)
