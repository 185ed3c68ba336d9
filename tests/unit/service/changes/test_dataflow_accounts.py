"""What workers told of released rows: added up, and forgotten with the derivations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from millpond.model.constraints import CLUSTERED, UNIQUE, Constraint
from millpond.operators.protocol.releasing import ReleaseFigures, ReleaseRule
from millpond.runtime.advance_job import AdvanceResult
from millpond.service.changes.dataflow_accounts import (
    DataflowAccounts,
    describe_releases,
    sum_figures,
)

C = ReleaseRule(Constraint("c", CLUSTERED, ("id",), rows=5), "f", 1)
U = ReleaseRule(Constraint("u", UNIQUE, ("id",)), "o", 0)


def job(group: str, *ids: int) -> Any:
    return SimpleNamespace(group=group, sinks=[SimpleNamespace(stream_id=id) for id in ids])


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
