"""The supervisor: a source that ends Spark whenever it is read does not take the others along."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.waiting import wait_until

from millpond.errors import MillpondError
from millpond.runtime.spark import supervisor
from millpond.runtime.spark.supervisor import SupervisedQuery, Supervisor

ENDED = MillpondError("POND-415", "Spark has ended")


class Pipeline:
    """What the supervisor tells."""

    def __init__(self) -> None:
        self.stopped: dict[int, Exception] = {}
        self.read: list[float] = []

    def counts_idle(self, stream_id: int) -> bool:
        return True

    def report_read(self, stream_id: int, seconds: float) -> None:
        self.read.append(seconds)

    def report_stopped(self, stream_id: int, reason: Exception) -> None:
        self.stopped[stream_id] = reason

    def report_resumed(self, stream_id: int) -> None:
        self.stopped.pop(stream_id, None)


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline()


@pytest.fixture
def kept(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    monkeypatch.setattr(supervisor, "_LOOK_SECONDS", 3600)
    monkeypatch.setattr(supervisor, "is_alive", lambda query: True)
    kept = Supervisor(cast(Any, pipeline))
    for number in (1, 2):
        stream = cast(Any, SimpleNamespace(id=number, name=f"s{number}"))
        query = cast(Any, SimpleNamespace(stop=lambda: None))
        kept.keep(SupervisedQuery(stream, lambda query=query: query))  # type: ignore[misc]
    yield kept
    kept._stopping.set()


def end_while_reading(kept: Supervisor, stream_id: int) -> None:
    with pytest.raises(RuntimeError), kept.reading(stream_id):
        raise RuntimeError("Answer from Java side is empty")
    kept.pause(ENDED)
    kept.resume()


def test_a_source_that_ends_spark_twice_waits(kept: Supervisor, pipeline: Pipeline) -> None:
    end_while_reading(kept, 1)
    assert pipeline.stopped == {}
    end_while_reading(kept, 1)
    assert list(pipeline.stopped) == [1]
    assert "Spark ended 2 times in a row" in str(pipeline.stopped[1])
    suspect, other = kept.get(1), kept.get(2)
    assert suspect is not None
    assert (suspect.query, suspect.retry_at is None) == (None, False)
    assert other is not None
    assert other.query is not None


def test_a_batch_that_is_read_clears_a_source(kept: Supervisor, pipeline: Pipeline) -> None:
    for _ in range(5):
        end_while_reading(kept, 1)
        with kept.reading(1):
            pass
    assert pipeline.stopped == {}


def test_waits_keep_spark_from_being_given_up() -> None:
    """Of ends that far apart, no six are within ten minutes."""
    from millpond.runtime.spark.machine import _MOST_ENDS, _WITHIN_SECONDS

    waits = [*supervisor._SUSPECT_SECONDS[1:], *[supervisor._SUSPECT_SECONDS[-1]] * 10]
    for first in range(len(waits) - _MOST_ENDS):
        assert sum(waits[first : first + _MOST_ENDS]) > _WITHIN_SECONDS


class Query:
    """A streaming query that opens its source until it is told that it has."""

    isActive, lastProgress = True, None

    def __init__(self, started: list[Query]) -> None:
        self.said = "Initializing sources"
        self._jsq = SimpleNamespace(status=lambda: SimpleNamespace(message=lambda: self.said))
        started.append(self)

    def stop(self) -> None: ...


def test_few_sources_begin_at_a_time(
    kept: Supervisor, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each waits for all others' processes, longer than Spark waits for its own."""
    monkeypatch.setattr(supervisor, "_MOST_BEGIN", 2)
    started: list[Query] = []
    kept.pause(ENDED)
    for number in range(3, 8):
        stream = cast(Any, SimpleNamespace(id=number, name=f"s{number}"))
        kept.keep(SupervisedQuery(stream, lambda: cast(Any, Query(started))))
    kept.resume()
    assert len(started) == 2
    assert sorted(pipeline.stopped) == [5, 6, 7]  # Spark starts, for them

    def look() -> None:
        for number in range(3, 8):
            kept._check(cast(Any, kept.get(number)))

    monkeypatch.setattr(Pipeline, "counts_idle", lambda *_: False, raising=False)
    look()
    assert len(started) == 2
    started[0].said = "Getting offsets from KafkaRanges"
    look()
    assert len(started) == 3
    for query in started:
        query.said = "Waiting for data to arrive"
    look()
    assert len(started) == 5
    assert not pipeline.stopped

    more = SupervisedQuery(
        cast(Any, SimpleNamespace(id=9, name="s9")), lambda: cast(Any, Query(started))
    )
    thread = threading.Thread(target=kept.keep, args=(more,))
    thread.start()
    thread.join(0.2)
    assert len(started) == 5
    inbox = SupervisedQuery(None, lambda: cast(Any, Query([])))
    kept.keep(inbox)  # rows that are pushed wait for no source
    assert inbox.query is not None
    started[4].said = "Waiting for data to arrive"
    wait_until(lambda: len(started) == 6)
    thread.join()


def test_a_source_that_is_long_in_beginning_keeps_nobody_waiting(
    kept: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_MOST_BEGIN", 1)
    monkeypatch.setattr(supervisor, "_BEGIN_SECONDS", 0.1)
    started: list[Query] = []
    for number in (3, 4, 5):
        stream = cast(Any, SimpleNamespace(id=number, name=f"s{number}"))
        kept.keep(SupervisedQuery(stream, lambda: cast(Any, Query(started))))
    assert len(started) == 3


WAITS, LOOKS, READS = "Waiting for data to arrive", "Getting offsets from x", "Processing new data"


@pytest.mark.parametrize(
    ("messages", "read"),
    [
        # Between two looks a quarter of a second apart, Spark may have slept.
        ([WAITS, WAITS], []),
        ([WAITS, WAITS, WAITS, WAITS], [0.5, 0.5]),
        ([WAITS, LOOKS, LOOKS, WAITS, WAITS], [0.75]),
        ([WAITS, LOOKS, LOOKS, LOOKS], []),
        ([WAITS, WAITS, READS, WAITS, WAITS], []),
        ([READS, WAITS, LOOKS, WAITS, READS], [0.5]),
    ],
)
def test_up_to_when_a_source_was_read(
    kept: Supervisor,
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    messages: list[str],
    read: list[float],
) -> None:
    now = 100.0
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: now))
    one = kept.get(1)
    assert one is not None
    for message in messages:
        status = SimpleNamespace(message=lambda message=message: message)
        one.query = cast(Any, SimpleNamespace(_jsq=SimpleNamespace(status=lambda s=status: s)))
        kept._report_read(one)
        now += 0.25
    assert pipeline.read == read


def test_what_was_seen_of_a_query_does_not_count_for_the_next_one(kept: Supervisor) -> None:
    one = kept.get(1)
    assert one is not None
    one.waits.append(1.0)
    one.begin()
    assert not one.waits
