"""Promises: readers never take a heartbeat further than what is in flight allows."""

from __future__ import annotations

import pytest

from millpond.catalog.objects import StreamDef
from millpond.engine.admission.heartbeat import (
    StreamProgress,
    after_arrivals,
    after_heartbeat,
    current_heartbeat,
    merge_progress,
)
from millpond.model.schema import Field, Schema
from millpond.model.time import BEGINNING, END
from millpond.service.ingest.floors import FloorsInFlight
from millpond.testing.manual_clock import ManualClock

SCHEMA = Schema((Field("ts", "TIMESTAMP"),))


def stream(by: str | None = "ts", delay: int = 0, idle: int | None = None) -> StreamDef:
    return StreamDef(1, "s", SCHEMA, by, delay, idle)


# -- what is in flight --------------------------------------------------------------------------


def test_a_reader_is_capped_by_the_least_floor_in_flight() -> None:
    promises = FloorsInFlight(ManualClock(100))
    first, _, _ = promises.hold(lambda now: {1: 40, 2: 90})
    second, now, floors = promises.hold(lambda now: {1: now})
    assert (now, floors) == (100, {1: 100})
    moment = promises.capture()
    assert moment.now == 100
    assert [moment.cap(id, 1_000) for id in (1, 2, 3)] == [40, 90, 1_000]
    assert moment.cap(1, 30) == 30
    promises.release(first)
    assert promises.capture().cap(1, 1_000) == 100
    assert moment.cap(1, 1_000) == 40, "a moment is a value"
    promises.release(second)
    promises.release(second)
    assert promises.capture().floors == {}


def test_a_floor_that_cannot_be_judged_is_not_held() -> None:
    promises = FloorsInFlight(ManualClock(100))

    def fail(now: int) -> dict[int, int]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        promises.hold(fail)
    assert promises.capture().floors == {}


def test_the_clock_of_streams_never_goes_back() -> None:
    """A clock that is set back must not put elements before what readers were told is final."""
    shown = iter([100, 90, 95, 120, 110])
    promises = FloorsInFlight(lambda: next(shown))
    assert promises.capture().now == 100
    assert promises.hold(lambda now: {1: now})[1] == 100
    assert [promises.capture().now for _ in range(3)] == [100, 120, 120]


# -- heartbeats ---------------------------------------------------------------------------------


def test_the_clock_of_streams_goes_on_slowly_until_the_machine_has_caught_up() -> None:
    hour = 3_600_000_000
    shown, seconds = [hour], [0.0]
    floors = FloorsInFlight(lambda: shown[0], None, lambda: seconds[0])
    assert floors.capture().now == hour
    shown[0] = 0
    for second in (2, 4):
        seconds[0] = second
        assert floors.capture().now == hour + second * 500_000
    assert floors.capture().behind == hour + 2_000_000
    shown[0] = hour + 3_000_000
    assert (floors.capture().now, floors.capture().behind) == (hour + 3_000_000, 0)


def test_the_clock_of_streams_begins_where_it_was_before() -> None:
    shown = [10]
    floors = FloorsInFlight(lambda: shown[0], 100)
    assert (floors.capture().now, floors.capture().behind) == (100, 90)
    shown[0] = 101
    assert floors.capture().now == 101


def test_application_time_follows_the_greatest_timestamp() -> None:
    s = stream(delay=5)
    one = after_arrivals(StreamProgress(), s, 100, arrival=1)
    assert one == StreamProgress(100, 95, 1)
    assert after_arrivals(one, s, 97, arrival=2) == StreamProgress(100, 95, 2)
    assert after_arrivals(one, s, None, arrival=3) == StreamProgress(100, 95, 3)
    assert current_heartbeat(one, s, 10**9) == 95


def test_system_time_follows_the_clock() -> None:
    s = stream(by=None)
    assert current_heartbeat(StreamProgress(), s, 7) == 7
    assert after_arrivals(StreamProgress(), s, 7, arrival=7).heartbeat == 7
    assert current_heartbeat(StreamProgress(heartbeat=9), s, 7) == 9


def test_an_ended_stream_has_nothing_to_come() -> None:
    assert current_heartbeat(StreamProgress(ended=True), stream(), 0) == END


def test_an_idle_stream_follows_the_clock_as_far_behind_as_it_was() -> None:
    s = stream(idle=30)
    heard = StreamProgress(95, 95, arrived_at=100)
    assert [current_heartbeat(heard, s, clock) for clock in (100, 129, 130, 200)] == [
        95,
        95,
        125,
        195,
    ]
    late = after_arrivals(heard, s, 150, arrival=200)
    assert late.heartbeat == 195, "what it followed the clock to is not taken back"
    assert current_heartbeat(StreamProgress(), s, 10**9) == BEGINNING, (
        "what was never heard of is not idle"
    )


@pytest.mark.parametrize("at", [0, 95, 194, 195, 196, 210])
def test_a_promise_of_an_idle_stream_goes_as_far_as_it_says(at: int) -> None:
    s = stream(idle=30)
    after = after_heartbeat(StreamProgress(95, 95, arrived_at=100), s, at, 200)
    reached = max(195, at)
    assert [current_heartbeat(after, s, clock) for clock in (200, 229)] == [reached, reached]
    assert current_heartbeat(after, s, 230) == max(reached, 230 - (200 - reached))


def test_a_promise_before_any_element() -> None:
    s = stream(idle=30)
    after = after_heartbeat(StreamProgress(), s, 50, 1_000)
    assert after == StreamProgress(None, 50, 1_000)
    assert current_heartbeat(after, s, 1_029) == 50


def test_progress_does_not_go_back_whichever_comes_first() -> None:
    early, late = StreamProgress(10, 5, 1), StreamProgress(30, 25, 3)
    assert merge_progress(early, late) == merge_progress(late, early) == late
    assert merge_progress(StreamProgress(), early) == early
    assert merge_progress(StreamProgress(40, 2, None), late) == StreamProgress(40, 25, 3)
