"""Ponds in this process, over a store of the test's own, with a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.model.time import to_datetime
from millpond.service.components import Components
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000

OpenPond = Callable[[], Pond]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000 * SECOND)


@pytest.fixture
def open_pond(tmp_path: Path, clock: ManualClock) -> Iterator[OpenPond]:
    """Opens the test's store; opened again, what was open is closed first."""
    opened: list[Pond] = []

    def reopen() -> Pond:
        for pond in opened:
            pond.close()
        opened.append(open_local(tmp_path / "store", clock=clock))
        return opened[-1]

    yield reopen
    for pond in opened:
        pond.close()


@pytest.fixture
def pond(open_pond: OpenPond) -> Pond:
    return open_pond()


def rows(*seconds: int, **columns: Any) -> list[dict[str, Any]]:
    """Rows with these timestamps; `v` counts them unless it is given."""
    return [
        {"ts": to_datetime(at * SECOND), "v": number, **columns}
        for number, at in enumerate(seconds)
    ]


def values(answer: Any) -> list[Any]:
    """The only column of an answer, sorted."""
    return sorted(value for (value,) in answer.rows())


def components_of(pond: Pond) -> Components:
    """What a pond is made of."""
    return pond._components


class RecordedEvents:
    """The port of events with nobody behind it: what happened is written down."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *said: self.calls.append((event, *said))
