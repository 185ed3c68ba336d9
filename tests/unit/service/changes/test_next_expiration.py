"""When time alone changes a window: the first instant is found, and none is missed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.service.versions import segment, stream, version_of

from millpond.catalog.objects import RelationDef
from millpond.model.schema import Schema
from millpond.model.time import END
from millpond.model.windows import Bound, Now, Period, Range, Rows, Unbounded, Window, interval
from millpond.service.changes.next_expiration import next_expiration
from millpond.state.version import SegmentRef, StreamState

STAMPS = {1: [3, 10, 10, 11], 2: [25, 40]}
SEGMENTS = tuple(segment(1, min(t), max(t), id=id) for id, t in STAMPS.items())
VERSION = version_of(
    stream(1, "s"), RelationDef(2, "r", Schema(())), states={1: StreamState(data=SEGMENTS)}
)
WINDOWS = [
    Range(10),
    Range(1),
    Range(10, slide=4),
    Range(3, slide=20),
    Now(),
    Period(Bound(offset=-6), Bound(offset=0)),
    Period(Bound(offset=-9), Bound(offset=-4)),
    Period(Bound(instant=5), Bound(offset=-4)),
]


class Opened:
    """Opens the segments, and knows which were opened."""

    def __init__(self) -> None:
        self.opened: list[int] = []

    def segment(self, ref: SegmentRef) -> Any:
        self.opened.append(ref.id)
        return SimpleNamespace(ts=np.array(STAMPS[ref.id]))


def found(*windows: Window, at: int, files: Any = None, stream: str = "s") -> int:
    bound: Any = SimpleNamespace(
        streams=[SimpleNamespace(stream=stream, window=window) for window in windows]
    )
    return next_expiration(files or Opened(), VERSION, bound, at)


def contents(window: Window, at: int) -> list[int]:
    low, high = interval(window, at)
    return [t for own in STAMPS.values() for t in own if t <= high and (low is None or t >= low)]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("at", [3, 4, 9, 10, 11, 12, 15, 21, 30, 45, 49])
def test_no_change_of_what_has_come_is_missed(window: Window, at: int) -> None:
    """Elements after the position are new when they come, and are no expirations."""
    known = [t for own in STAMPS.values() for t in own if t <= at]

    def held(instant: int) -> list[int]:
        return [t for t in contents(window, instant) if t in known]

    changes = [n for n in range(at + 1, 80) if held(n) != held(n - 1)]
    soonest = found(window, at=at)
    assert soonest > at
    assert soonest <= (changes[0] if changes else END)


def test_the_instant_is_exact_where_windows_change_by_the_clock() -> None:
    assert found(Range(10), at=11) == 13
    assert found(Range(10), at=13) == 20
    assert found(Now(), at=10) == 11
    assert found(Range(10, slide=4), at=11) == 12
    assert found(Range(10), at=50) == END


def test_the_first_of_several_windows_counts() -> None:
    assert found(Range(30), Range(10), at=11) == 13


@pytest.mark.parametrize(
    "window", [Unbounded(), Rows(2), Period(Bound(instant=1), Bound(instant=9))], ids=str
)
def test_some_windows_never_change_by_themselves(window: Window) -> None:
    assert found(window, at=11) == END


def test_only_segments_with_something_due_are_opened() -> None:
    files = Opened()
    assert found(Range(10), at=30, files=files) == 35
    assert files.opened == [2]


def test_what_is_no_stream_any_more_is_passed_over() -> None:
    assert found(Range(10), at=11, stream="r") == END
