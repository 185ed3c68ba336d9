"""Pages of many queries' changes, read from the segments of a shared log at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millpond.catalog.objects import Derived, StreamDef
from millpond.model.schema import Field, Schema
from millpond.service.changes import shared_pages
from millpond.service.changes.shared_pages import SharedPages
from millpond.state.arrow_file import write_arrow
from millpond.state.segment_file import encode_elements
from millpond.state.version import SegmentRef, StreamClock, StreamState, Version

SHARED = StreamDef(
    1, "1$shared", Schema((Field("v", "BIGINT"),)), derived=Derived("…", is_shared=True)
)
LOGS = {id: StreamDef(id, f"{id}$changes", SHARED.schema) for id in (4, 5, 9)}


def make_version(store: Path, *segments: list[tuple[int, int, int]]) -> Version:
    """A version whose shared log has segments of (log, number, value)."""
    refs = []
    for id, rows in enumerate(segments, 1):
        logs, numbers, values = (list(part) for part in zip(*rows, strict=True))
        table = pa.table(
            {
                "__sign": pa.array([1] * len(rows), pa.int8()),
                "v": pa.array(values, pa.int64()),
                "__log": pa.array(logs, pa.int64()),
                "__ts": pa.array(numbers, pa.int64()),
                "__seq": pa.array(numbers, pa.int64()),
            }
        )
        file = write_arrow(store / f"{id}.arrow", encode_elements(table))
        runs = ((0, 0),)
        refs.append(
            SegmentRef(
                id,
                1,
                "data",
                id,
                0,
                f"{id}.arrow",
                len(rows),
                0,
                9,
                runs,
                file.checksum,
                file.bytes,
            )
        )
    numbers = {
        id: max((n + 1 for s in segments for g, n, _ in s if g == id), default=0) for id in LOGS
    }
    states = {id: StreamState(clock=StreamClock(next_seq=n)) for id, n in numbers.items()}
    return Version(streams={1: SHARED, **LOGS}, states={1: StreamState(tuple(refs)), **states})


def read(
    pages: SharedPages, version: Version, places: dict[int, int], most: int = 10
) -> dict[int, list[tuple[int, int]] | None]:
    wanted = [(LOGS[id], f"q{id}", place, 7) for id, place in places.items()]
    found = pages.read(version, SHARED, wanted, most)
    for (log, name, place, complete), page in zip(wanted, found, strict=True):
        if page is not None:
            assert (page.query, page.as_of) == (name, complete)
            assert page.cursor == f"abc123.{log.id}.{place + len(page)}"
            assert page.newest == version.own_clock(log.id).next_seq
    return {
        id: None if page is None else [(row[0], row[3]) for row in page.rows()]
        for id, page in zip(places, found, strict=True)
    }


def test_each_query_has_its_own_changes_in_order(tmp_path: Path) -> None:
    first = [(4, 0, 40), (4, 1, 41), (9, 0, 90)]
    second = [(4, 2, 42), (5, 0, 50), (9, 1, 91), (9, 2, 92)]
    version = make_version(tmp_path, first, second)
    pages = SharedPages(tmp_path, "abc123")
    assert read(pages, version, {9: 0, 4: 1, 5: 0}) == {
        9: [(1, 90), (2, 91), (3, 92)],
        4: [(2, 41), (3, 42)],
        5: [(1, 50)],
    }
    assert read(SharedPages(tmp_path, "abc123"), version, {9: 0, 4: 0}, 2) == {
        9: [(1, 90), (2, 91)],
        4: [(1, 40), (2, 41)],
    }


def test_what_was_read_is_not_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = make_version(tmp_path, [(4, 0, 40), (9, 0, 90)], [(4, 1, 41)])
    pages = SharedPages(tmp_path, "abc123")
    assert read(pages, version, {4: 1}) == {4: [(2, 41)]}
    searched: list[int] = []
    search = pages._search
    monkeypatch.setattr(pages, "_search", lambda s, *a: (searched.append(s.id), search(s, *a))[1])
    assert read(pages, version, {4: 1}) == {4: [(2, 41)]}
    assert searched == [2]
    pages.forget()
    assert read(pages, version, {9: 0}) == {9: [(1, 90)]}
    assert searched == [2, 1, 2]


def test_no_more_is_read_than_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in rows nor in bytes; what lies behind is read later."""
    first = [(4, n, n) for n in range(50)]
    version = make_version(tmp_path, first, [(4, 50, 50), *((9, n, n) for n in range(50))])
    pages = SharedPages(tmp_path, "abc123")
    assert pages._find(version, SHARED, np.array([4, 9]), np.array([0, 0]), 3)[0].tolist() == [
        *[0] * 3,
        *[1] * 3,
    ]
    monkeypatch.setattr(shared_pages, "PAGE_BYTES", 400)
    found: dict[int, list[int]] = {4: [], 9: []}
    while any((given := read(pages, version, {4: len(found[4]), 9: len(found[9])})).values()):
        assert sum(len(rows or ()) for rows in given.values()) < 20
        for log, rows in given.items():
            found[log] += [value for _, value in rows or ()]
    assert found == {4: list(range(51)), 9: list(range(50))}


def test_a_gap_is_not_read_over(tmp_path: Path) -> None:
    version = make_version(tmp_path, [(4, 0, 40), (9, 5, 95)], [(4, 2, 42), (9, 6, 96)])
    pages = SharedPages(tmp_path, "abc123")
    # Change 2 of log 4 is missing, and what log 9's reader has not read was trimmed.
    assert read(pages, version, {4: 0, 9: 3, 5: 0}) == {4: None, 9: None, 5: None}
    assert read(pages, version, {9: 5}) == {9: [(6, 95), (7, 96)]}


def test_what_was_given_is_counted_of_all_logs_at_once(tmp_path: Path) -> None:
    first = [(4, 0, 40), (4, 1, 41), (9, 0, 90)]
    second = [(4, 2, 42), (5, 0, 50), (9, 1, 91), (9, 2, 92)]
    version = make_version(tmp_path, first, second)
    pages = SharedPages(tmp_path, "abc123")

    def count(*upto: int) -> list[int]:
        return pages.count_given(version, 1, np.array([4, 5, 9]), np.array(upto)).tolist()

    # The instants are the numbers.
    for instant in range(-1, 4):
        of_each = [sum(n <= instant for n in range(many)) for many in (3, 1, 3)]
        assert count(instant, instant, instant) == of_each
    assert count(1, -1, 2) == [2, 0, 3]


def test_nothing_is_counted_over_a_gap(tmp_path: Path) -> None:
    version = make_version(tmp_path, [(4, 0, 40), (9, 5, 95)], [(4, 2, 42), (9, 6, 96)])
    pages = SharedPages(tmp_path, "abc123")
    # Of log 9 the first five are not kept, which is to be told where they are asked for.
    assert pages.count_given(version, 1, np.array([4, 9]), np.array([0, 4])).tolist() == [-1, -1]
    assert pages.count_given(version, 1, np.array([4, 9]), np.array([2, 5])).tolist() == [3, 6]
