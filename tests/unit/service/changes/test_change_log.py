"""Reading changes: pages, cursors, and up to which instant a page is complete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.service.conftest import SECOND, RecordedEvents, components_of

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.model.time import to_datetime
from millpond.service.changes import change_log
from millpond.service.changes.change_log import ChangeReader
from millpond.service.changes.cursor import parse_cursor
from millpond.service.pond import Pond
from millpond.service.results import Changes
from millpond.state.segment_file import open_rows

Read = Callable[..., Changes]


@pytest.fixture
def log(pond: Pond) -> StreamDef:
    """The log of `q`: one change a second from 1 to 3, three at 5, one at 6."""
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.register("SELECT v FROM s", "q", changes="from beginning")
    for v, at in enumerate((1, 2, 3, 5, 5, 5, 6, 9)):
        pond.ingest("s", [{"ts": to_datetime(at * SECOND), "v": v}])
    pond.query("q").fetch()
    found = components_of(pond).log.version.change_log(pond.query("q").definition.id)
    assert found is not None
    return found


@pytest.fixture
def read(pond: Pond, log: StreamDef) -> Read:
    reader = components_of(pond).reader
    return lambda after=None, limit=None: reader.read(log, "q", after, limit)


def test_pages_put_together_are_all_changes(read: Read) -> None:
    everything = read()
    assert [row[-1] for row in everything.rows()] == [0, 1, 2, 3, 4, 5, 6]
    assert [row[0] for row in everything.rows()] == [1, 2, 3, 4, 5, 6, 7]
    for size in (1, 2, 3, 5, 7, 8):
        found, cursor = [], 0
        while len(page := read(cursor, size)):
            assert len(page) <= size
            found += page.rows()
            cursor = page.cursor
        assert found == everything.rows()
        assert cursor == everything.cursor
        assert page.position == everything.newest == 7


@pytest.mark.parametrize(("limit", "upto"), [(1, 1), (3, 3), (4, 5), (5, 5), (6, 5)])
def test_a_page_is_complete_up_to_before_its_last_instant(
    read: Read, limit: int, upto: int
) -> None:
    """There may be more of the same instant on the next page."""
    assert read(0, limit).as_of == upto * SECOND - 1


@pytest.mark.parametrize("size", [1, 60, 100, 10_000])
def test_a_page_is_bounded_in_bytes(pond: Pond, log: StreamDef, read: Read, size: int) -> None:
    everything, found, cursor = read(), [], 0
    reader = components_of(pond).reader
    while len(page := reader.read(log, "q", cursor, 5, size)):
        assert len(page) == 1 or page.table.nbytes <= 2 * size  # with its cursors
        assert page.position == cursor + len(page)
        found += page.rows()
        cursor = page.position
    assert found == everything.rows()
    assert len(reader.read(log, "q", 0, 5, size)) == {1: 1, 60: 2, 100: 4, 10_000: 5}[size]


def test_a_page_opens_the_segments_it_needs(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a reader who is far behind is not slower by what lies before and behind its page."""
    pond.execute("CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    query = pond.register("SELECT -v AS v FROM s", "q", changes="from beginning")
    for at in range(1, 8):
        pond.ingest("s", [{"ts": to_datetime(at * SECOND), "v": at}])
        query.fetch()
    parts = components_of(pond)
    log = parts.log.version.change_log(query.id)
    assert log is not None
    paths = [segment.path for segment in parts.log.version.segments(log.id)]
    assert len(paths) == 6
    opened = set()

    def note(path: Path, *rest: Any) -> pa.Table:
        opened.add(path.name)
        return open_rows(path, *rest)

    monkeypatch.setattr(change_log, "open_rows", note)
    assert [change.row for change in parts.reader.read(log, "q", 3, 1)] == [(-4,)]
    # The change at the cursor says since when something may be lost.
    assert opened == {Path(path).name for path in paths[2:4]}


def test_the_last_page_is_complete_as_far_as_is_known(read: Read) -> None:
    assert read().as_of == read(7).as_of == 9 * SECOND - 1


def test_an_empty_page_is_complete_before_the_next_change(read: Read) -> None:
    page = read(3, 0)
    assert (len(page), page.position, page.newest) == (0, 3, 7)
    assert page.as_of == 5 * SECOND - 1
    assert page.columns == ["v"]


def test_no_changes_have_columns_too(pond: Pond) -> None:
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;"
        "CREATE QUERY q AS SELECT v, v * 2.5 AS x FROM s WHERE v > 9"
    )
    empty = pond.query("q").fetch()
    assert (len(empty), empty.columns, empty.newest) == (0, ["v", "x"], 0)


@pytest.mark.parametrize(
    ("after", "words"),
    [(8, 'the cursor 8 of "q" is ahead'), (-1, '"-1" is not a cursor of "q"')],
)
def test_a_cursor_of_other_changes_is_refused(read: Read, after: int, words: str) -> None:
    with pytest.raises(MillpondError, match=f"POND-412: .*{words}"):
        read(after)


def test_a_limit_is_not_negative(read: Read) -> None:
    with pytest.raises(MillpondError, match="CQL-103: LIMIT is negative"):
        read(0, -1)


def test_damage_is_told(pond: Pond, log: StreamDef, read: Read) -> None:
    parts = components_of(pond)
    (segment, *_) = parts.log.version.segments(log.id)
    events: Any = RecordedEvents()
    nowhere = parts.reader._store / "nowhere"
    losses = parts.invoker.losses
    reader = ChangeReader(nowhere, parts.log, parts.derivations, parts.advancer, events, losses)
    with pytest.raises(MillpondError, match="STORE-602") as failure:
        reader.read(log, "q")
    assert events.calls == [("file_damaged", failure.value)]
    assert segment.path in str(failure.value)


def test_what_a_cursor_is() -> None:
    for text in (7, "7", "007", "3f2a9c.17.7"):
        assert parse_cursor(text, "3f2a9c.17", "q") == 7
    for text in ("", "-1", "1.0", "x", "٣", "9" * 19, "3f2a9c.17.", ".17.7", "a.3f2a9c.17.7"):
        with pytest.raises(MillpondError, match="POND-412"):
            parse_cursor(text, "3f2a9c.17", "q")
