"""The plan by which a derivation is to go on is made once, and is taken over by who commits it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.catalog.tolerance import NO_REDUCTION, Reduction
from millpond.model.time import LAST
from millpond.planner.bind.bound_query import BoundQuery
from millpond.service.changes.derivation import Derivation
from millpond.service.changes.giving_way.reducing import Decision
from millpond.service.changes.giving_way.switches import Switches
from millpond.service.pond import Pond
from millpond.service.queries.reductions import reduce_changes
from millpond.state.version import Version

SHORT = Reduction(2_000_000)


class Made:
    """Makes derivations without plans of their own, and remembers how far they are reduced."""

    def __init__(self, like: Derivation) -> None:
        self._like = like
        self.reductions: list[Reduction] = []

    def __call__(
        self,
        version: Version,
        stream: StreamDef,
        whole: BoundQuery,
        reduction: Reduction,
        query: QueryDef | None,
    ) -> Derivation:
        self.reductions.append(reduction)
        return replace(self._like, stream=stream, reduced=reduce_changes(whole, reduction))


@pytest.fixture
def followed(pond: Pond) -> tuple[Version, Derivation]:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.register("SELECT v FROM s [RANGE 9 SECONDS]", "q", tolerate="window 2 seconds").fetch()
    version: Any = pond._components.log.version
    (query,) = version.queries.values()
    return version, pond._components.derivations.of(version, version.change_log(query.id))


def test_what_is_decided_is_made_once_and_taken_over(followed: tuple[Version, Derivation]) -> None:
    version, derivation = followed
    made = Made(derivation)
    switches = Switches(made, threading.RLock())
    assert switches.find(version, derivation) == (None, LAST)
    switches.decide = lambda query, after: Decision(SHORT, 77)
    found, upto = switches.find(version, derivation)
    assert (found is not None, upto) == (True, 77)
    assert switches.find(version, derivation)[0] is found
    assert made.reductions == [SHORT]
    assert found is not None
    assert found.reduction == SHORT
    assert found.leaves is derivation.plan
    assert switches.take(derivation.stream, NO_REDUCTION) is None  # another one was committed
    assert switches.find(version, derivation)[0] is not None
    taken = switches.take(derivation.stream, SHORT)
    assert taken is not None
    assert taken.leaves is None
    assert switches.take(derivation.stream, SHORT) is None
    assert made.reductions == [SHORT, SHORT]


def test_what_is_not_needed_any_more_is_forgotten(followed: tuple[Version, Derivation]) -> None:
    version, derivation = followed
    switches = Switches(Made(derivation), threading.RLock())
    for forget in (switches.forget, lambda: switches.find(version, derivation)):
        switches.decide = lambda query, after: Decision(SHORT, 77)
        assert switches.find(version, derivation)[0] is not None
        switches.decide = lambda query, after: Decision(NO_REDUCTION, 78)
        forget()
        assert switches.take(derivation.stream, SHORT) is None
    assert switches.weight == 0.0
