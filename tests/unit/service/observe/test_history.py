"""Figures are sampled, kept for an hour and a week, and counts are told as rates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.service.observe.history import COARSE_SECONDS, FINE_SECONDS, MOST_FIGURES, History
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_local(tmp_path / "store", ManualClock()) as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
        yield pond


class Clock:
    """A clock that somebody sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_rows_are_told_as_rates(pond: Pond) -> None:
    clock = Clock()
    history = History(pond._components, pond._metrics, clock)
    assert history.tell() == {"every_seconds": FINE_SECONDS, "at": [], "series": {}}
    history.look()
    pond.execute("CREATE QUERY q AS SELECT v FROM s WHERE v > 29")
    pond.ingest("s", [{"ts": "1970-01-01 00:00:01", "v": n} for n in range(50)] + [{"ts": "no"}])
    pond.catch_up()
    clock.now += 10
    history.look()
    clock.now += 10
    pond.execute("CREATE STREAM t (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    history.look()
    told = history.tell()
    assert told["at"] == [1_000_000.0, 1_000_010.0, 1_000_020.0]
    assert told["series"]["rows/s of s"] == [None, 5.0, 0.0]
    assert told["series"]["matches/s"] == [None, 2.0, 0.0]
    assert told["series"]["rejects/s"] == [None, 0.1, 0.0]
    assert told["series"]["epochs/s"][1] > 0
    assert told["series"]["seconds until visible"][1] >= 0
    assert told["series"]["rows/s of t"] == [None, None, None]
    assert min(told["series"]["process memory"]) > 1e6
    assert {len(values) for values in told["series"].values()} == {3}


def test_the_history_is_bounded(pond: Pond) -> None:
    for number in range(40):
        pond.execute(f"CREATE STREAM s{number} (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    clock = Clock()
    history = History(pond._components, pond._metrics, clock)
    for _ in range(400):
        history.look()
        clock.now += FINE_SECONDS
    hour, week = history.tell("hour"), history.tell("week")
    assert len(hour["at"]) == 3600 / FINE_SECONDS
    assert len(week["at"]) == 1 + 399 * FINE_SECONDS // COARSE_SECONDS
    assert len(hour["series"]) <= MOST_FIGURES


def test_samples_are_taken_when_it_is_time(pond: Pond) -> None:
    history = History(pond._components, pond._metrics)
    history.work()
    assert history.tell()["at"] == []
    history._looked_at -= FINE_SECONDS
    assert history.wait_seconds() == pytest.approx(0.1, abs=0.05)
    history.work()
    history.work()
    assert len(history.tell()["at"]) == 1
