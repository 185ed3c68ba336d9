"""The plans that run are found by name, and by what their operators are."""

from __future__ import annotations

import pytest

from millpond.errors import MillpondError
from millpond.service.plans.running_plans import RunningPlans, find_operators
from millpond.service.pond import Pond


def test_plans_and_their_operators(pond: Pond) -> None:
    pond.execute("CREATE STREAM late AS ISTREAM(SELECT k, v FROM s [RANGE 2 SECONDS])")
    pond.execute("CREATE QUERY nobody AS SELECT k FROM s [RANGE 1 SECOND]")
    components = pond._components
    version = components.log.version
    running = RunningPlans(version, components.derivations)
    assert set(running.by_name) >= {"three", "kinds", "late"}
    assert running.find("late").query is None
    with pytest.raises(MillpondError, match="CQL-201"):
        running.find("nobody")
    assert [p.name for p in running.choose(["kinds", "late"])] == ["kinds", "late"]
    assert len(running.choose(None)) == len(running.by_name)
    grouping = next(
        n for n in running.find("counts").plan.nodes() if type(n).__name__ == "Grouping"
    )
    touched = {p.name for p in running.list_touched({grouping.logical_key})}
    assert "counts" in touched
    assert "three" not in touched
    assert set(find_operators(version, components.derivations)) == set(running.operators)
