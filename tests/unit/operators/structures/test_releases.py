"""Joins of streams with constraints: which rows they hold, which they read back, what they see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import BEFORE, plan_query

from millpond.engine.dataflow.dataflow import Dataflow
from millpond.model.constraints import CLUSTERED, FOREIGN_KEY, ORDERED, UNIQUE, Constraint
from millpond.operators.protocol.releasing import ReleaseFigures
from millpond.operators.structures import releases
from millpond.operators.structures.adherence import watch
from millpond.planner.dataflow.plan import Plan

SECOND = 1_000_000
FIELDS = ("__ts", "__seq", "id", "v")
JOIN = "SELECT f.v, o.v AS w FROM f [RANGE 100 SECONDS], o [RANGE 100 SECONDS] WHERE f.id = o.id"
UNBOUNDED = "SELECT f.v, o.v AS w FROM f, o WHERE f.id = o.id"
U = Constraint("u", UNIQUE, ("id",))


@pytest.fixture(scope="module")
def pond() -> OraclePond:
    pond = OraclePond()
    for name in ("f", "o"):
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, id BIGINT, v BIGINT) TIMESTAMP BY ts")
    return pond


def table(elements: Sequence[tuple[int, int]]) -> pa.Table:
    """Elements (second, id), in the order of the seconds; v is the place."""
    at, ids = (np.array(c, np.int64) for c in zip(*elements, strict=True))
    places = np.arange(len(at))
    return pa.table(dict(zip(FIELDS, (at * SECOND, places, ids, places), strict=True)))


class Play:
    """A join of two histories that is advanced second by second."""

    def __init__(
        self,
        plan: Plan,
        histories: Mapping[str, pa.Table],
        constraints: Mapping[str, Sequence[Constraint]],
    ) -> None:
        self.histories = histories
        self.flow = Dataflow(plan, since=BEFORE)
        self.flow.constrain(constraints)
        self.reads = 0
        self.key = plan.key

    def _between(self, name: str, after: int, upto: int) -> pa.Table:
        ts = self.histories[name]["__ts"].to_numpy()
        lo, hi = np.searchsorted(ts, (after, upto), side="right")
        return self.histories[name].slice(lo, hi - lo)

    def _read_back(self, name: str, upto: int) -> Iterator[pa.Table]:
        self.reads += 1
        whole = self._between(name, BEFORE, upto)
        for start in range(0, whole.num_rows, 500):
            yield whole.slice(start, 500)

    def advance(self, second: int) -> pa.Table:
        upto, after = second * SECOND, self.flow.position
        feeds = {name: self._between(name, after, upto) for name in self.histories}
        found = self.flow.advance(feeds, upto, self._read_back)
        assert not self.flow.failed, self.flow.failed
        return found[self.key]

    def figures(self) -> dict[str, ReleaseFigures]:
        found = self.flow.list_release_figures().values()
        return {one.rule.constraint.name: one for some in found for one in some}

    def held(self) -> int:
        return sum(self.flow.sizes().values())


def play(pond, text, f, o, constraints, upto=165):  # type: ignore[no-untyped-def]
    """Run a join with and without constraints; changes must agree at every second."""
    plan = plan_query(pond.world, text, lazy_expiration=0)
    histories = {"f": table(f), "o": table(o)}
    free, bound = (Play(plan, histories, some) for some in ({}, constraints))
    for second in range(1, upto):
        assert free.advance(second).equals(bound.advance(second)), second
    return free, bound


ORDERS = [(i, i) for i in range(1, 151)]
PARTS = [(i + 1, i) for i in range(1, 150) for _ in range(3)]


def test_a_row_whose_unique_partner_came_is_released(pond) -> None:  # type: ignore[no-untyped-def]
    free, bound = play(pond, UNBOUNDED, PARTS, ORDERS, {"o": [U]})
    assert (free.held(), bound.held(), bound.reads) == (450 + 147, 150, 0)
    figures = bound.figures()["u"]
    assert (figures.held, figures.released, figures.violations) == (0, 447, 0)
    assert figures.observed is None


def test_what_a_second_partner_needs_is_read_back(pond) -> None:  # type: ignore[no-untyped-def]
    again = sorted([*ORDERS, (155, 3), (155, 3), (160, 3), (161, 77)])
    _, bound = play(pond, UNBOUNDED, PARTS, again, {"o": [U]})
    figures = bound.figures()["u"]
    assert (figures.violations, figures.recalled, bound.reads) == (4, 9, 3)


@pytest.mark.parametrize(("k", "held"), [(0, 149 + 1), (9, 149 + 1 + 9), (1_000, 149 + 150)])
def test_a_cluster_that_is_over_is_released(pond, k: int, held: int) -> None:  # type: ignore[no-untyped-def]
    once = [(i + 1, i) for i in range(1, 150)]
    clustered = Constraint("c", CLUSTERED, ("id",), rows=k)
    _, bound = play(pond, UNBOUNDED, once, ORDERS, {"f": [clustered]})
    # The last order has no part, so its cluster has not begun.
    assert bound.held() == held + 1 - (k == 1_000)
    assert (bound.figures()["c"].observed, bound.reads) == (0, 0)


def test_how_far_a_cluster_is_spread_is_seen(pond) -> None:  # type: ignore[no-untyped-def]
    parts = [(1, 7), (1, 8), (2, 9), (2, 7), (3, 9), (9, 7)]
    by_rows = Constraint("c", CLUSTERED, ("id",), rows=2)
    by_time = Constraint("t", CLUSTERED, ("id",), time=2 * SECOND)
    _, bound = play(pond, UNBOUNDED, parts, [(1, 7)], {"f": [by_rows, by_time]}, upto=12)
    figures = bound.figures()
    assert (figures["c"].observed, figures["c"].violations) == (3, 1)
    assert (figures["t"].observed, figures["t"].violations) == (8 * SECOND, 1)


@pytest.mark.parametrize(("k", "held"), [(0, 2), (10, 22), (1_000, 299)])
def test_values_below_an_orders_reach_are_released(pond, k, held) -> None:  # type: ignore[no-untyped-def]
    once = [(i + 1, i) for i in range(1, 150)]
    ordered = Constraint("c", ORDERED, ("id",), rows=k)
    constraints = {"f": [ordered], "o": [ordered]}
    _, bound = play(pond, UNBOUNDED, once, ORDERS, constraints)
    assert abs(bound.held() - held) <= 2
    assert bound.reads == 0


def test_how_late_smaller_values_come_is_seen(pond) -> None:  # type: ignore[no-untyped-def]
    parts = [(1, 5), (2, 9), (3, 9), (3, 7), (5, 10), (6, 8)]
    by_rows = Constraint("c", ORDERED, ("id",), rows=3)
    by_time = Constraint("t", ORDERED, ("id",), time=SECOND)
    _, bound = play(pond, UNBOUNDED, parts, [(1, 8)], {"f": [by_rows, by_time]}, upto=12)
    figures = bound.figures()
    assert (figures["c"].observed, figures["c"].violations) == (4, 1)
    assert (figures["t"].observed, figures["t"].violations) == (4 * SECOND, 1)


@pytest.mark.parametrize(("k", "waiting"), [(0, 0), (20, 19), (1_000, 149)])
def test_who_got_no_partner_in_time_is_released(pond, k, waiting) -> None:  # type: ignore[no-untyped-def]
    known = Constraint("k", FOREIGN_KEY, ("id",), "O", rows=k)
    strangers = [(i, -i) for i in range(1, 150)]
    _, bound = play(pond, UNBOUNDED, strangers, ORDERS, {"f": [known], "o": [U]})
    assert bound.figures()["k"].held == waiting


def test_a_partner_that_comes_too_late_is_seen(pond) -> None:  # type: ignore[no-untyped-def]
    known = Constraint("k", FOREIGN_KEY, ("id",), "o", time=2 * SECOND)
    orders = [(1, 1), (2, 2), (6, 3), (11, 4)]
    parts = [(1, 4), (4, 3), (5, 2)]
    _, bound = play(pond, UNBOUNDED, parts, orders, {"f": [known], "o": [U]}, upto=15)
    figures = bound.figures()["k"]
    # The part of order 4 was released when its partner was late, and read back.
    assert (figures.observed, figures.violations, figures.recalled) == (10 * SECOND, 1, 1)


def test_released_rows_expire_as_others_do(pond) -> None:  # type: ignore[no-untyped-def]
    free, bound = play(pond, JOIN, PARTS, ORDERS, {"o": [U]}, upto=160)
    assert bound.figures()["u"].released == sum(1 for at, _ in PARTS if at + 100 > 159)
    for second in (230, 300):
        assert free.advance(second).equals(bound.advance(second))
    assert bound.figures()["u"].released == 0


def test_a_constraint_that_goes_still_recalls(pond) -> None:  # type: ignore[no-untyped-def]
    plan = plan_query(pond.world, UNBOUNDED, lazy_expiration=0)
    orders = sorted([*ORDERS, (100, 5), (120, 6)])
    histories = {"f": table(PARTS), "o": table(orders)}
    free, bound = Play(plan, histories, {}), Play(plan, histories, {"o": [U]})
    for second in range(1, 180):
        if second == 90:
            bound.flow.constrain({})
        assert free.advance(second).equals(bound.advance(second)), second
    assert bound.reads == 2
    assert bound.figures() == {}
    assert free.held() > bound.held() > 150


def test_who_reads_back_too_much_stops_releasing(pond, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    clustered = Constraint("c", CLUSTERED, ("id",), rows=0)
    scattered = sorted((i + j, i % 40) for i in range(1, 150) for j in range(3))
    orders = [(i, i % 40) for i in range(1, 150)]
    plan = plan_query(pond.world, UNBOUNDED, lazy_expiration=0)
    reads = []
    for each in (1_000, 0):
        monkeypatch.setattr(releases, "_READ_FIRST", each)
        monkeypatch.setattr(releases, "_READ_EACH", each)
        one = Play(plan, {"f": table(scattered), "o": table(orders)}, {"f": [clustered]})
        for second in range(1, 160):
            one.advance(second)
        reads.append(one.reads)
    # What was released before is read back once more.
    assert 1 <= 3 * reads[1] < reads[0]


def test_few_rows_are_not_looked_through(pond) -> None:  # type: ignore[no-untyped-def]
    plan = plan_query(pond.world, UNBOUNDED)
    one = Play(plan, {"f": table(PARTS), "o": table(ORDERS)}, {"o": [U]})
    held = []
    for second in range(1, 160):
        one.advance(second)
        held.append(one.figures()["u"].held)
    assert 60 <= max(held) <= 70


RULES = [
    ("f.id = o.id", {"o": [U]}, ["unique 0"]),
    ("f.id = o.id", {"o": [Constraint("u", UNIQUE, ("id", "v"))]}, []),
    ("f.id = o.id AND f.v = o.v", {"o": [U]}, ["unique 0"]),
    ("f.id = o.id AND f.v = o.v", {"o": [Constraint("c", CLUSTERED, ("id",), rows=1)]}, []),
    ("f.v = o.v AND f.id = o.id", {"o": [Constraint("c", ORDERED, ("V",), rows=1)]}, ["ordered 0"]),
    ("f.id = o.id + 1", {"o": [U]}, []),
    ("f.id < o.id", {"o": [U]}, []),
    ("f.id = o.id", {"f": [Constraint("k", FOREIGN_KEY, ("id",), "o", rows=1)]}, []),
    (
        "f.v = o.id",
        {"f": [Constraint("k", FOREIGN_KEY, ("v",), "o", rows=1)], "o": [U]},
        ["foreign key 0", "unique 0"],
    ),
]


@pytest.mark.parametrize(("condition", "constraints", "expected"), RULES)
def test_which_constraints_release_rows(pond, condition, constraints, expected) -> None:  # type: ignore[no-untyped-def]
    text = f"SELECT f.v, o.v AS w FROM f [RANGE 9 SECONDS], o [RANGE 9 SECONDS] WHERE {condition}"
    plan = plan_query(pond.world, text)
    (join,) = [node for node in plan.nodes() if len(node.inputs) == 2]
    rules = join.find_release_rules(constraints)
    assert sorted(f"{rule.constraint.kind} {rule.side}" for rule in rules) == expected
    for rule in rules:
        assert watch(rule).violations == 0


@pytest.mark.parametrize(
    "window", ["f [ROWS 5]", "(SELECT DISTINCT id, v FROM f [RANGE 9 SECONDS]) f"]
)
def test_only_streams_under_windows_over_time_are_read_back(pond, window: str) -> None:  # type: ignore[no-untyped-def]
    text = f"SELECT f.v FROM {window}, o [RANGE 9 SECONDS] WHERE f.id = o.id"
    nodes = plan_query(pond.world, text).nodes()
    assert not any(node.find_release_rules({"o": [U]}) for node in nodes)


def test_a_partner_that_was_released_counts_as_come(pond) -> None:  # type: ignore[no-untyped-def]
    clustered = Constraint("c", CLUSTERED, ("id",), rows=0)
    plan = plan_query(pond.world, UNBOUNDED)
    strangers = [(i, -i) for i in range(1, 150)]
    histories = {"f": table(sorted([*PARTS, *strangers])), "o": table(ORDERS)}
    one = Play(plan, histories, {"o": [U], "f": [clustered]})
    for second in range(1, 160):
        one.advance(second)
    one.flow.purge({plan.key: [0]})
    one.advance(161)
    # The orders are looked through more often than the parts, among which the strangers stay.
    assert one.figures()["u"].held == len(strangers)


def test_a_reference_whose_partner_comes_at_its_instant_waits_for_nothing(pond) -> None:  # type: ignore[no-untyped-def]
    """Beside one that another row waited for; that the partner comes again breaks UNIQUE alone."""
    parts = [(5, 1), (6, 2)]
    orders = [(6, 1), (6, 2), *((7 + i, 100 + i) for i in range(20)), (40, 2)]
    known = Constraint("known", FOREIGN_KEY, ("id",), "o", rows=10)
    _, bound = play(pond, JOIN, parts, orders, {"o": [U], "f": [known]}, upto=50)
    figures = bound.figures()
    assert (figures["known"].violations, figures["u"].violations) == (0, 1)
