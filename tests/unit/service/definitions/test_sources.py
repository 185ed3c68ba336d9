"""Where rows come from: what is opened, what a drop closes, and how streams are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.conftest import RecordedEvents, components_of

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.service.components import Components
from millpond.service.pond import Pond
from millpond.testing.local_runtime import LocalRuntime
from millpond.testing.manual_clock import ManualClock

CREATE = "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts USING csv OPTIONS (path '{}')"


class Recording(LocalRuntime):
    """Knows what was opened and closed, and fails when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []
        self.failure: MillpondError | None = None
        self.frame: list[tuple[str, str]] = []

    def open_source(self, stream: StreamDef) -> None:
        self.calls.append(("open", stream.id))
        if self.failure is not None:
            raise self.failure
        super().open_source(stream)

    def close_source(self, stream_id: int) -> None:
        self.calls.append(("close", stream_id))
        super().close_source(stream_id)

    def columns(self, frame: Any) -> list[tuple[str, str]]:
        return self.frame

    def open_frame(self, stream: StreamDef, frame: Any) -> None:
        self.calls.append(("frame", stream.id))


@pytest.fixture
def runtime() -> Recording:
    return Recording()


@pytest.fixture
def pond(tmp_path: Path, runtime: Recording, clock: ManualClock) -> Iterator[Pond]:
    with Pond(tmp_path / "store", runtime, clock=clock) as pond:
        yield pond


@pytest.fixture
def parts(pond: Pond) -> Components:
    return components_of(pond)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.csv"
    path.write_text("1970-01-01 00:00:01,1\n1970-01-01 00:00:02,2\n")
    return path


def find(parts: Components, name: str) -> Any:
    found = parts.log.version.find(name)
    assert found is not None
    return found


def state(pond: Pond, name: str) -> str:
    (result,) = pond.execute("SHOW STREAMS")
    assert result.table is not None
    return {row["name"]: row["state"] for row in result.table.to_pylist()}[name]


def test_a_source_is_opened_and_closed_with_its_stream(
    pond: Pond, parts: Components, runtime: Recording, data: Path
) -> None:
    pond.execute(CREATE.format(data))
    stream = find(parts, "s")
    assert runtime.calls == [("open", stream.id)]
    assert pond.ask("SELECT count(*) FROM s").rows() == [(2,)]
    pond.execute("DROP STREAM s")
    assert runtime.calls[1:] == [("close", stream.id)]


def test_a_source_that_is_not_there_makes_no_stream(pond: Pond, tmp_path: Path) -> None:
    with pytest.raises(MillpondError, match="DATA-502"):
        pond.execute(CREATE.format(tmp_path / "nothing"))
    assert pond.streams() == []


def test_a_source_that_cannot_be_opened_stops_its_stream_alone(
    pond: Pond, parts: Components, runtime: Recording, data: Path
) -> None:
    runtime.failure = MillpondError("DATA-502", "the disk is gone")
    pond.execute(f"{CREATE.format(data)}; CREATE STREAM t (v INTEGER)")
    assert (state(pond, "s"), state(pond, "t")) == ("stopped", "running")
    reading = parts.floors.capture()
    described = parts.sources.describe(parts.log.version, find(parts, "s"), reading)
    assert (described["state"], "the disk is gone" in described["reason"]) == ("stopped", True)


def test_a_stream_that_has_ended_is_not_opened_again(
    pond: Pond, parts: Components, runtime: Recording, data: Path
) -> None:
    pond.execute(CREATE.format(data))
    parts.sources.read_to_end()
    assert state(pond, "s") == "ended"
    events: Any = RecordedEvents()
    parts.sources._events = events
    runtime.calls.clear()
    parts.sources.open(find(parts, "s"))
    parts.sources.read_to_end()
    assert (runtime.calls, events.calls) == ([], [])


def test_records_go_with_the_relation_that_they_feed(pond: Pond, parts: Components) -> None:
    pond.execute(
        "CREATE RELATION r (k INTEGER, PRIMARY KEY (k)) USING push OPTIONS (op_column 'op');"
        "CREATE RELATION view AS SELECT k FROM r"
    )
    records = find(parts, "r$changes")
    assert parts.sources.records_of(find(parts, "r")) is records
    assert parts.sources.records_of(find(parts, "view")) is None
    assert parts.sources.records_of(records) is None
    pond.execute("DROP RELATION view; DROP RELATION r")
    assert parts.log.version.find("r$changes") is None


def test_rows_are_pushed_to_streams_alone(pond: Pond, parts: Components) -> None:
    pond.execute("CREATE STREAM s (v INTEGER); CREATE RELATION r (v INTEGER)")
    assert parts.sources.find_pushed_stream("S").name == "s"
    for name in ("r", "s$rejects", "nothing"):
        with pytest.raises(MillpondError, match=f'CQL-201: no stream "{name.replace("$", ".")}"'):
            parts.sources.find_pushed_stream(name)


def test_a_frame_is_the_same_stream_when_it_comes_again(
    parts: Components, runtime: Recording
) -> None:
    runtime.frame = [("at", "TIMESTAMP"), ("the v", "int")]
    made = parts.sources.from_frame("f", None, "at", 1.5)
    assert [(f.name, f.type) for f in made.schema.fields] == [
        ("at", "TIMESTAMP"),
        ("the v", "INTEGER"),
    ]
    assert (made.timestamp_by, made.delay) == ("at", 1_500_000)
    assert parts.sources.from_frame("F", None, "at", 1.5) is made
    assert runtime.calls == [("frame", made.id)] * 2
    runtime.frame = [("at", "TIMESTAMP")]
    with pytest.raises(MillpondError, match=r"CQL-208: the name .* is taken by another stream"):
        parts.sources.from_frame("f", None, "at", 1.5)
    runtime.frame = [("l", "array<int>")]
    with pytest.raises(MillpondError, match="CQL-210: the frame's column"):
        parts.sources.from_frame("g", None, None, 0)


def test_a_stream_says_for_whom_it_waits(pond: Pond, parts: Components) -> None:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE STREAM one AS SELECT 10 // v AS v FROM s;"
        "CREATE STREAM two AS SELECT v FROM one"
    )
    assert state(pond, "two") == "running"
    parts.advancer.retries.note(find(parts, "one").id, MillpondError("POND-404", "no"))
    assert (state(pond, "one"), state(pond, "two")) == ("stopped", "waits for one")
