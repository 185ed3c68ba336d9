"""NOW: the clock or the greatest timestamp, by which streams there are and which a query reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.service.versions import stream, version_of

from millpond.catalog.objects import Derived, RelationDef, StreamDef
from millpond.model.schema import Schema
from millpond.model.time import BEGINNING
from millpond.service.answers.present import Present
from millpond.service.ingest.floors import ClockReading
from millpond.state.version import StreamClock, StreamState, Version

READING = ClockReading(1_000, {})
A, B = stream(1, "a"), stream(2, "b")
CLOCKED = stream(3, "clocked", timestamp_by=None)
DERIVED = stream(4, "d", timestamp_by=None, derived=Derived("SELECT …"))
R = RelationDef(5, "r", Schema(()))


def version(*definitions: Any, **highs: int) -> Version:
    named = {d.name: d for d in definitions}
    states = {
        named[name].id: StreamState(clock=StreamClock(high=high)) for name, high in highs.items()
    }
    return version_of(*definitions, states=states)


def present(of: Version, latest: int = 7, derived_from: tuple[StreamDef, ...] = ()) -> Present:
    log: Any = SimpleNamespace(version=of)
    floors: Any = SimpleNamespace(capture=lambda: READING)
    relations: Any = SimpleNamespace(
        read_rows=lambda version, relation: SimpleNamespace(latest=latest)
    )
    followers: Any = SimpleNamespace(
        sources_of=lambda version, s: list(derived_from) if s.derived else [s]
    )
    return Present(log, floors, relations, followers)


def bound(*relations: str) -> Any:
    return SimpleNamespace(relations=[SimpleNamespace(relation=name) for name in relations])


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (version(), BEGINNING),
        (version(A, B), BEGINNING),
        (version(A, B, a=10), 10),
        (version(A, B, a=10, b=20), 20),
        (version(A, CLOCKED, a=10), READING.now),
        (version(A, CLOCKED), BEGINNING),
        (version(A, DERIVED, a=10), 10),  # what is derived has no present of its own
    ],
)
def test_the_ponds_present(of: Version, expected: int) -> None:
    assert present(of).read() == expected


@pytest.mark.parametrize(
    ("of", "read", "expected"),
    [
        (version(A, B, a=10, b=20), [A], 10),
        (version(A, B, a=10), [A, B], 10),
        (version(A, B, b=20), [A], BEGINNING),
        (version(A, CLOCKED, a=10), [A, CLOCKED], 10),
        (version(A, CLOCKED, a=10), [CLOCKED], READING.now),
    ],
)
def test_now_is_of_the_streams_that_are_read(
    of: Version, read: list[StreamDef], expected: int
) -> None:
    assert present(of).now_of(of, bound(), read, READING) == expected


def test_a_derived_stream_counts_as_those_it_is_derived_from() -> None:
    of = version(A, CLOCKED, DERIVED, a=10)
    assert present(of, derived_from=(A,)).now_of(of, bound(), [DERIVED], READING) == 10
    assert present(of, derived_from=(CLOCKED,)).now_of(of, bound(), [DERIVED], READING) == 1_000


def test_without_streams_now_is_the_present_or_what_relations_were_told_last() -> None:
    for of, expected in (
        (version(A, R, a=10), 10),
        (version(A, R), 7),
        (version(R), 7),
        (version(A, CLOCKED, R), READING.now),
    ):
        assert present(of).now_of(of, bound("r"), [], READING) == expected
    assert present(version(A)).of(version(A), bound(), READING) == BEGINNING
