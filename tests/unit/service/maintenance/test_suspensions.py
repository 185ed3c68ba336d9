"""Suspending queries: those whose own predicate failed, and no others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.service.versions import stream, version_of

from millpond.catalog.objects import QueryDef
from millpond.service.maintenance.suspensions import Suspensions
from millpond.state.version import LeafRef

QUERIES = [QueryDef(id, f"q{id}", "SELECT …") for id in (11, 12, 13)]


@pytest.fixture
def suspended() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def suspensions(suspended: list[tuple[str, str]]) -> Suspensions:
    leaves = {
        11: (LeafRef(11, 0, 1, 5), LeafRef(11, 1, 2, 6)),
        12: (LeafRef(12, 0, 1, 6),),
        13: (LeafRef(13, 0, 1, None),),
    }
    version = version_of(stream(1, "s"), stream(2, "t"), *QUERIES, leaves=leaves)
    log: Any = SimpleNamespace(version=version)
    registrar: Any = SimpleNamespace(
        suspend=lambda query, reason: suspended.append((query.name, reason))
    )
    return Suspensions(log, registrar)


def test_only_who_has_the_slot_on_that_stream_is_suspended(
    suspensions: Suspensions, suspended: list[tuple[str, str]]
) -> None:
    suspensions.suspend_failed(1, {5: "division by zero"})
    assert suspended == [("q11", "Its predicate could not be evaluated: division by zero")]
    suspended.clear()
    suspensions.suspend_failed(1, {6: "no"})
    assert [name for name, _ in suspended] == ["q12"]
    suspended.clear()
    suspensions.suspend_failed(2, {6: "no"})
    assert [name for name, _ in suspended] == ["q11"]


def test_nothing_failed(suspensions: Suspensions, suspended: list[tuple[str, str]]) -> None:
    suspensions.suspend_failed(1, {})
    suspensions.suspend_failed(1, {99: "no"})
    assert suspended == []


def test_a_query_that_is_gone_is_not_suspended(
    suspensions: Suspensions, suspended: list[tuple[str, str]]
) -> None:
    suspensions.suspend(99, "why")
    suspensions.suspend(12, "why")
    assert suspended == [("q12", "why")]
