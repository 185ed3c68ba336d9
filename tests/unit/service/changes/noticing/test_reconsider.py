"""Which plans are proposed by what was measured: the number of partitions as in figure 10."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.service.conftest import components_of

from millpond.operators.expire import Expire
from millpond.operators.windows.shared_window import SharedWindow
from millpond.planner.dataflow.plan import Plan, plan_changes
from millpond.planner.optimize.cost import sum_cost
from millpond.service.changes.noticing.flows import Flows
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

#: Query 1 of the update-pattern paper, with windows of two lengths: results wait by expiration.
JOIN = "SELECT s.v, t.v AS w FROM s [RANGE 1 HOUR], t [RANGE 2 HOURS] WHERE s.k = t.k"


def list_waiting(plan: Plan) -> list[tuple[str, int]]:
    """What waits for its expiration, and in how many partitions; in none below a window."""
    found = [(n.input.name, n.partitions) for n in plan.nodes() if isinstance(n, Expire)]
    return found + [(n.name, 0) for n in plan.nodes() if isinstance(n, SharedWindow)]


@pytest.mark.parametrize(
    ("rate", "steps", "waiting"),
    [
        (1.0, 1, [("join", 10)]),
        (10.0, 10, [("join", 50)]),
        (1.0, 100, [("join", 200)]),
        (1000.0, 1, [("window", 0), ("window", 0)]),
    ],
    ids=["UPA(10)", "UPA(50)", "UPA(200)", "announced by windows"],
)
def test_partitions_follow_the_measured_rates_and_steps(
    tmp_path: Path, rate: float, steps: int, waiting: list[tuple[str, int]]
) -> None:
    with open_local(tmp_path / "store", ManualClock()) as pond:
        for name in "st":
            pond.execute(
                f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER, v INTEGER) TIMESTAMP BY ts"
            )
        pond.execute(f"CREATE QUERY q AS {JOIN}")
        pond.query("q").fetch()
        parts = components_of(pond)
        version = parts.log.version
        log = version.change_log(pond.query("q").definition.id)
        assert log is not None
        guess = parts.derivations.of(version, log).plan
        rates = {n.key: rate for n in guess.nodes() if n.feed is not None}
        flows = Flows("g", frozenset({log.id}), 1_000, 1.0, steps, rates)
        reconsideration = parts.plan_monitor._reconsideration
        found = reconsideration.propose(version, flows, {}, {})
        made = found.moved[0].plan if found.moved else guess
        assert list_waiting(made) == waiting
        assert found.after <= found.before

        # Nobody who knew the rates would find a number of partitions that is cheaper.
        group = reconsideration._list_group(version, flows)
        known = reconsideration._measure(version, group, flows)
        names = parts.registrar.names
        costs = [
            sum_cost(plan_changes(group[0].bound, names, known=known, partitions=n).root, known)
            for n in (10, 50, 200)
        ]
        assert sum_cost(made.root, known) <= 1.1 * min(costs)
