"""What workers told of released rows: added up, and forgotten with the derivations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from millpond.engine.dataflow.state_limit import OperatorState
from millpond.errors import MillpondError
from millpond.model.constraints import CLUSTERED, UNIQUE, Constraint
from millpond.operators.protocol.releasing import ReleaseFigures, ReleaseRule
from millpond.runtime.advance_job import AdvanceResult, StateShare
from millpond.service.changes.dataflow_accounts import (
    DataflowAccounts,
    describe_releases,
    sum_figures,
)

C = ReleaseRule(Constraint("c", CLUSTERED, ("id",), rows=5), "f", 1)
U = ReleaseRule(Constraint("u", UNIQUE, ("id",)), "o", 0)


class Planned:
    """A plan with operators of these keys."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def nodes(self) -> list[Any]:
        return [
            SimpleNamespace(key=key, feed=("stream", key, ()) if key == "s" else None)
            for key in self.keys
        ]


PLAN = Planned("n", "m")


def job(group: str, *ids: int, plan: Planned = PLAN) -> Any:
    sinks = [SimpleNamespace(stream_id=id, plan=plan) for id in ids]
    share = StateShare(weight=float(ids[0]))
    return SimpleNamespace(group=group, sinks=sinks, share=share, position=0, upto=2_000_000)


def version(*ids: int) -> Any:
    return SimpleNamespace(streams=dict.fromkeys(ids))


def test_the_last_word_of_a_group_counts_as_long_as_it_is_there() -> None:
    accounts, first = DataflowAccounts(), ReleaseFigures(C, 3, 1, 10, 90, 2)
    accounts.note(job("g", 1, 2), AdvanceResult(releases={"n": [first]}))
    accounts.note(job("h", 3), AdvanceResult(releases={"n": [first], "m": [first]}))
    assert accounts.list_releases(version(2, 3)) == {"n": [first, first], "m": [first]}
    accounts.note(job("g", 1, 2), AdvanceResult())
    assert accounts.list_releases(version(2, 3)) == {"n": [first], "m": [first]}
    assert accounts.list_releases(version(2)) == {}


def test_what_operators_keep_is_known_until_they_are_gone() -> None:
    accounts = DataflowAccounts()
    held, less = OperatorState("join", 10, 800, 0), OperatorState("join", 5, 100, 300)
    accounts.note(job("g", 1, 2), AdvanceResult(state={"n": held, "m": held}))
    accounts.note(job("h", 3), AdvanceResult(state={"n": less}))
    accounts.note(job("g", 1, 2), AdvanceResult())
    assert accounts.list_state(version(1, 3), 1) == {"n": held, "m": held}
    assert accounts.list_state(version(1, 3), 3) == {"n": less}
    assert accounts.list_weighed_state(version(1, 3)) == {
        "g": (1.0, 1_600, 0),
        "h": (3.0, 100, 300),
    }
    # Also where a query failed, as one does whose state is beyond its limit.
    gone = {"n": OperatorState("", 0, 0, 0)}
    failures = {2: MillpondError("POND-405", "no room")}
    accounts.note(job("g", 1, 2), AdvanceResult(failures=failures, state=gone))
    assert [one.key for one in accounts.list_operators(version(1, 3))] == ["m", "n"]
    assert accounts.list_weighed_state(version(3)) == {"h": (3.0, 100, 300)}


def test_operators_of_plans_that_are_left_are_forgotten_whoever_ran_them() -> None:
    """As of a query that is reduced while it runs, by another process than before."""
    accounts, held = DataflowAccounts(), OperatorState("join", 10, 800, 0)
    accounts.note(job("g", 1, 2), AdvanceResult(state={"n": held, "m": held}))
    accounts.note(job("g", 2, plan=Planned("o")), AdvanceResult(state={"o": held}))
    assert accounts.list_state(version(1, 2), 1).keys() == {"n", "m"}
    assert accounts.list_state(version(1, 2), 2).keys() == {"o"}
    accounts.note(job("g", 1, plan=Planned("m")), AdvanceResult())
    assert accounts.list_state(version(1, 2), 1).keys() == {"m"}
    assert {one.key: one.derivations for one in accounts.list_operators(version(1, 2))} == {
        "m": {1},
        "o": {2},
    }


def test_figures_of_several_joins_are_added_up() -> None:
    assert sum_figures([]) is None
    total = sum_figures([ReleaseFigures(C, 3, 1, 10, 90, 2), ReleaseFigures(C, 7, 0, 1, 9, 0)])
    assert total == ReleaseFigures(C, 7, 1, 11, 99, 2)
    total = sum_figures([ReleaseFigures(U, None, 1, 1, 1, 1)] * 2)
    assert total == ReleaseFigures(U, None, 1, 2, 2, 2)


def test_rows_of_a_side_are_said_once() -> None:
    figures = [
        ReleaseFigures(C, 3, 1, 10, 1_990, 2),
        ReleaseFigures(ReleaseRule(C.constraint, "g", 1), 0, 0, 10, 1_990, 2),
        ReleaseFigures(U, None, 0, 5, 0, 0),
    ]
    text = "released by c of f, c of g, u of o: 15 rows held, 2,005 without"
    assert describe_releases(figures) == text
