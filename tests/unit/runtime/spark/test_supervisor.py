"""The supervisor: a source that ends Spark whenever it is read does not take the others along."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millpond.errors import MillpondError
from millpond.runtime.spark import supervisor
from millpond.runtime.spark.supervisor import SupervisedQuery, Supervisor

ENDED = MillpondError("POND-415", "Spark has ended")


class Pipeline:
    """What the supervisor tells."""

    def __init__(self) -> None:
        self.stopped: dict[int, Exception] = {}

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
