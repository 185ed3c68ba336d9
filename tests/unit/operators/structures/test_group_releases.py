"""Groupings of clustered streams: groups leave memory when their cluster is over, and come back."""

from __future__ import annotations

import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import BEFORE, plan_query
from tests.unit.operators.structures.test_releases import Play, pond, table

from millpond.engine.dataflow.dataflow import Dataflow
from millpond.model.constraints import CLUSTERED, UNIQUE, Constraint

assert pond  # the fixture
C = Constraint("c", CLUSTERED, ("id",), rows=2)
COUNTS = "SELECT id, count(*) AS n, sum(v) AS t, median(v) AS m FROM f GROUP BY id"
#: A thousand clusters of four, the elements of neighbours mixed.
CLUSTERS = [(1 + i // 40, (i + i % 2) // 4) for i in range(4_000)]
#: What breaks the constraint: two groups of long ago, one of them twice.
LATE = [(120, 7), (121, 900), (122, 7)]


def play(pond: OraclePond, text: str, elements: list[tuple[int, int]]) -> tuple[Play, Play]:
    """Run a grouping with and without the constraint; changes must agree at every second."""
    plan = plan_query(pond.world, text)
    histories = {"f": table(elements)}
    free, bound = (Play(plan, histories, some) for some in ({}, {"f": (C,)}))
    for second in range(1, 125):
        assert free.advance(second).equals(bound.advance(second)), second
    return free, bound


def test_a_group_whose_cluster_is_over_is_released(pond: OraclePond) -> None:
    free, bound = play(pond, COUNTS, CLUSTERS)
    figures = bound.figures()["c"]
    assert free.held() >= 1_000
    assert bound.held() <= 260
    assert (figures.held + figures.released, figures.violations, bound.reads) == (1_001, 0, 0)


def test_a_group_of_which_a_row_comes_is_followed_again(pond: OraclePond) -> None:
    _, bound = play(pond, COUNTS, [*CLUSTERS, *LATE])
    figures = bound.figures()["c"]
    assert (bound.reads, figures.recalled, figures.violations) == (2, 2, 2)


def test_who_comes_later_shares_a_grouping_that_has_released(pond: OraclePond) -> None:
    """Each of two dataflows has released other groups when one takes the other's plan over."""
    first, second = (
        plan_query(pond.world, text)
        for text in (COUNTS, "SELECT id, max(v) AS w, count(*) AS n FROM f GROUP BY id")
    )
    histories = {"f": table([*CLUSTERS, *LATE])}
    free = {plan.key: Play(plan, histories, {}) for plan in (first, second)}
    one, other = (Play(plan, histories, {"f": (C,)}) for plan in (first, second))
    for at in range(1, 111):
        for flow in (*free.values(), one):
            flow.advance(at)
    other.advance(57)  # in steps of its own: it looks for groups to release at other times
    other.advance(110)
    one.flow.attach(other.flow)
    for at in range(111, 125):
        upto, after = at * 1_000_000, one.flow.position
        given = one.flow.advance({"f": one._between("f", after, upto)}, upto, one._read_back)
        for key, flow in free.items():
            assert flow.advance(at).equals(given[key]), at


@pytest.mark.parametrize(
    ("text", "constraint", "found"),
    [
        (COUNTS, C, True),
        (COUNTS.replace("FROM f", "FROM f SAMPLE (50) WHERE v > 3"), C, True),
        (COUNTS, Constraint("c", CLUSTERED, ("id", "v")), False),
        (COUNTS, Constraint("u", UNIQUE, ("id",)), False),
        (COUNTS.replace("FROM f", "FROM f [RANGE 9 SECONDS]"), C, False),
        ("SELECT count(*) AS n, sum(v) AS t FROM f", C, False),
    ],
)
def test_which_groupings_release(
    pond: OraclePond, text: str, constraint: Constraint, found: bool
) -> None:
    plan = plan_query(pond.world, text)
    nodes = [node for node in plan.nodes() if node.name == "grouping"]
    rules = [rule for n in nodes for rule in n.find_release_rules({"f": (constraint,)})]
    assert nodes
    assert bool(rules) == found
    Dataflow(plan, since=BEFORE).constrain({"f": (constraint,)})
