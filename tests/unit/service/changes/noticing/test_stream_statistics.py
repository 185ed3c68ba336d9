"""What is known of streams: looked at when there is enough, and again when there is much more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.service.versions import segment, stream, version_of

from millpond.errors import MillpondError
from millpond.planner.optimize.statistics import ObservedStatistics
from millpond.service.changes.noticing.stream_statistics import StreamObserver
from millpond.state.version import SegmentRef, StreamState, Version

SECOND = 1_000_000


class Opened:
    """Opens segments of as many rows as they are said to have."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.error: MillpondError | None = None

    def segment(self, ref: SegmentRef) -> Any:
        self.opened.append(ref.id)
        if self.error is not None:
            raise self.error
        numbers = np.arange(ref.rows)
        return SimpleNamespace(table=pa.table({"__ts": numbers, "__seq": numbers, "v": numbers}))


def version(*rows: int, seconds: int = 100, epoch: int = 50, kind: str = "data") -> Version:
    """A stream with a segment for each number of rows, all over the same time."""
    held = tuple(
        segment(1, 0, seconds * SECOND, id=id, rows=count) for id, count in enumerate(rows, 1)
    )
    own = stream(1, "s", kind=kind)
    return version_of(own, epoch=epoch, states={1: StreamState(data=held)})


def look(
    observer: StreamObserver, version: Version, functions: tuple[str, ...] = ()
) -> ObservedStatistics:
    bound: Any = SimpleNamespace(streams=[SimpleNamespace(stream="s")], functions=functions)
    return observer.of(version, bound, frozenset())


@pytest.fixture
def files() -> Opened:
    return Opened()


@pytest.fixture
def observer(files: Any) -> StreamObserver:
    return StreamObserver(files)


def test_few_elements_say_too_little(observer: StreamObserver, files: Opened) -> None:
    assert look(observer, version(500, 499)).basis("s") == "guessed"
    assert files.opened == []
    assert look(observer, version(500, 500)).basis("s") != "guessed"


def test_rates_are_of_the_time_between_first_and_last(observer: StreamObserver) -> None:
    known = look(observer, version(3_000, 1_000, seconds=80, epoch=40))
    assert known.rate("s") == 50
    assert known.steps == 0.5


def test_the_largest_segment_is_sampled_evenly(observer: StreamObserver, files: Opened) -> None:
    look(observer, version(1_000, 50_000, 2_000))
    assert files.opened == [2]
    sample = observer._summaries[1].sample
    assert sample.rows.column_names == ["v"]
    assert sample.rows.num_rows == 10_000
    assert sample.rows["v"][-1].as_py() == 49_999
    assert sample.total == 53_000


def test_it_is_looked_at_again_when_it_has_grown_fourfold(
    observer: StreamObserver, files: Opened
) -> None:
    first = look(observer, version(2_000)).rate("s")
    assert look(observer, version(7_999)).rate("s") == first
    assert look(observer, version(8_000)).rate("s") == 4 * first
    assert len(files.opened) == 2


@pytest.mark.parametrize("case", ["of one instant", "unreadable", "rejects"])
def test_of_some_streams_nothing_is_known(
    observer: StreamObserver, files: Opened, case: str
) -> None:
    files.error = MillpondError("STORE-602", "torn") if case == "unreadable" else None
    seconds = 0 if case == "of one instant" else 100
    kind = case if case == "rejects" else "data"
    known = look(observer, version(5_000, seconds=seconds, kind=kind))
    assert known.basis("s") == "guessed"


def test_users_functions_are_not_called_for_an_estimate(observer: StreamObserver) -> None:
    types = pa.schema([("v", pa.int64())])

    def share(*functions: str) -> float:
        known = look(observer, version(10_000), functions)
        return known.estimate_selectivity("s", ["v"], types, ["v < 1000"])

    assert share() == pytest.approx(0.1, abs=0.01)
    assert share("f") != pytest.approx(0.1, abs=0.01)


def test_constraints_are_observed_over_small_segments_together(observer: StreamObserver) -> None:
    """What was just pushed lies in as many segments as there were epochs."""
    small = version(*[200] * 10)
    look(observer, small)
    known = observer.constraints_of(small, small.streams[1])
    assert [c.name for c in known] == ["observed clustered (v)", "observed ordered (v)"]
