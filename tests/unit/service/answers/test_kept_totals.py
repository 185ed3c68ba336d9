"""Kept totals: found in memory or in files, as long as somebody asks for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.service.versions import segment, stream, version_of

from millpond.engine.aggregates.segment_totals import Asked
from millpond.model.windows import Unbounded
from millpond.service.answers import kept_totals
from millpond.service.answers.kept_totals import KeptTotals, StoredTotals
from millpond.state.aggregate_file import Measured, write_totals
from millpond.state.arrow_file import forget
from millpond.state.id_map import IdMap
from millpond.state.version import SegmentRef, StreamState, Version
from millpond.synopses.blocked_totals import BlockedTotals, block_rows, block_values
from millpond.synopses.totals import open_column

STREAM = stream(1, "s")
ROWS, SUMS = Measured(3, None), Measured(3, "v")
BLOCKS = {
    ROWS: block_rows(np.arange(10), 20),
    SUMS: block_values(np.arange(10), open_column(pa.array(range(10)))),
}
#: Segments 1 and 2 of the stream.
SEGMENTS = tuple(
    replace(segment(1, 10 * id, 10 * id + 9, id=id), path=f"segments/{str(id) * 32}.arrow")
    for id in (1, 2)
)


def version(*held: SegmentRef) -> Version:
    return version_of(
        STREAM,
        states={1: StreamState(data=held)},
        segments_by_id=IdMap[SegmentRef]().with_changes({s.id: s for s in held}),
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "aggregates").mkdir()
    return tmp_path


def write(store: Path, of: SegmentRef, *measured: Measured) -> StoredTotals:
    entries: dict[Measured, BlockedTotals] = {m: BLOCKS[m] for m in measured}
    path, size = write_totals(store / "aggregates" / f"{'f' * 32}.arrow", of.path, entries)
    return StoredTotals(path, size, frozenset(measured))


def test_what_is_remembered_is_found(store: Path) -> None:
    kept = KeptTotals(store)
    assert kept.find(SEGMENTS[0], ROWS) is None
    kept.remember(SEGMENTS[0], ROWS, BLOCKS[ROWS])
    assert kept.find(SEGMENTS[0], ROWS) is BLOCKS[ROWS]
    assert kept.find(SEGMENTS[1], ROWS) is None


@pytest.mark.parametrize("is_found_at_start", [False, True])
def test_files_are_read(store: Path, is_found_at_start: bool) -> None:
    kept = KeptTotals(store)
    stored = write(store, SEGMENTS[0], ROWS, SUMS)
    if is_found_at_start:
        kept = KeptTotals(store)
    else:
        kept.add_file(SEGMENTS[0], stored, alone=False)
    found = kept.find(SEGMENTS[0], SUMS)
    assert found is not None
    assert found.total(0, 1) == BLOCKS[SUMS].total(0, 1)
    assert kept.lacking(SEGMENTS[0], frozenset(BLOCKS)) == frozenset()
    assert kept.lacking(SEGMENTS[1], frozenset(BLOCKS)) == BLOCKS.keys()


def test_a_file_that_replaces_the_others(store: Path) -> None:
    kept = KeptTotals(store)
    first = write(store, SEGMENTS[0], ROWS)
    kept.add_file(SEGMENTS[0], first, alone=False)
    kept.add_file(SEGMENTS[0], write(store, SEGMENTS[0], ROWS, SUMS), alone=True)
    assert not first.path.exists()
    assert kept.count_files(SEGMENTS[0]) == 1
    assert kept.find(SEGMENTS[0], ROWS) is not None


@pytest.mark.parametrize("when", ["before it is read", "after"])
def test_a_damaged_file_is_removed_and_said(store: Path, when: str) -> None:
    stored = write(store, SEGMENTS[0], ROWS)
    kept = KeptTotals(store)
    if when == "after":
        assert kept.count_files(SEGMENTS[0]) == 1
    forget(stored.path)
    stored.path.unlink()
    stored.path.write_bytes(b"damaged")
    assert kept.find(SEGMENTS[0], ROWS) is None
    assert not stored.path.exists()
    assert kept.lacking(SEGMENTS[0], frozenset({ROWS})) == {ROWS}
    assert kept.take_torn() is (when == "after")
    assert not kept.take_torn()


def test_what_nobody_asks_for_is_dropped(store: Path) -> None:
    kept, now = KeptTotals(store), version(*SEGMENTS)
    kept.add_file(SEGMENTS[0], write(store, SEGMENTS[0], ROWS), alone=False)
    kept.add_file(SEGMENTS[1], write(store, SEGMENTS[1], SUMS), alone=False)
    kept.remember(SEGMENTS[0], SUMS, BLOCKS[SUMS])
    (root,) = kept.cut(now, STREAM, Unbounded(), 100).whole
    root.totals[ROWS] = root.totals[SUMS] = BLOCKS[SUMS].total(0, 1)
    kept.retain({1: frozenset({SUMS})}, now)
    assert kept.is_wanted(STREAM, SUMS)
    assert not kept.is_wanted(STREAM, ROWS)
    assert kept.find(SEGMENTS[0], ROWS) is None
    assert kept.find(SEGMENTS[0], SUMS) is BLOCKS[SUMS]
    assert kept.find(SEGMENTS[1], SUMS) is not None
    assert root.totals.keys() == {SUMS}
    assert len(list((store / "aggregates").iterdir())) == 1


@pytest.mark.parametrize("is_read", [False, True])
def test_files_of_segments_that_are_gone_are_removed(store: Path, is_read: bool) -> None:
    for each in SEGMENTS:
        write(store, each, ROWS)
    kept = KeptTotals(store)
    if is_read:
        assert [kept.count_files(each) for each in SEGMENTS] == [1, 1]
    kept.retain({1: frozenset({ROWS})}, version(SEGMENTS[1]))
    assert [file.name[0] for file in (store / "aggregates").iterdir()] == ["2"]
    kept.retain({}, version())
    assert not list((store / "aggregates").iterdir())


def test_figures(store: Path) -> None:
    kept, now = KeptTotals(store), version(*SEGMENTS)
    stored = write(store, SEGMENTS[0], ROWS, SUMS)
    kept.add_file(SEGMENTS[0], stored, alone=False)
    assert kept.measure(now, STREAM, {SUMS}) == {
        "segments with stored totals": 1,
        "totals in the tree": 0,
        "bytes on disk": round(stored.bytes / 2),
        "bytes in memory": 0,
    }
    kept.find(SEGMENTS[0], SUMS)
    (root,) = kept.cut(now, STREAM, Unbounded(), 100).whole
    root.totals[SUMS] = BLOCKS[SUMS].total(0, 1)
    figures = kept.measure(now, STREAM, {SUMS})
    assert figures["totals in the tree"] == 1
    assert figures["bytes in memory"] > BLOCKS[SUMS].nbytes


@pytest.mark.parametrize("how", ["a new file", "other wishes", "files are removed", "too many"])
def test_open_segments_are_closed(store: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_totals, "_OPEN_READERS", 2)
    kept, opened = KeptTotals(store), mock.Mock()
    kept.retain({1: frozenset({ROWS})}, version(*SEGMENTS))
    readers = kept.readers_of(3, [Asked(None)])
    for each in SEGMENTS:
        kept.add_reader(readers, each, opened)
    kept.retain({1: frozenset({ROWS})}, version(*SEGMENTS))
    assert kept.readers_of(3, [Asked(None)]) == {1: opened, 2: opened}
    assert kept.readers_of(3, [Asked("v")]) == {}
    assert kept.readers_of(4, [Asked(None)]) == {}
    ends = kept.readers_of(3, [Asked("v", sums=False)])
    assert ends is not kept.readers_of(3, [Asked("v")])
    match how:
        case "a new file":
            kept.add_file(SEGMENTS[0], write(store, SEGMENTS[0], ROWS), alone=False)
            assert kept.readers_of(3, [Asked(None)]) == {2: opened}
            return
        case "other wishes":
            kept.retain({}, version(*SEGMENTS))
        case "files are removed":
            kept.close()
        case _:
            kept.add_reader(kept.readers_of(3, [Asked("v")]), SEGMENTS[0], opened)
    assert kept.readers_of(3, [Asked(None)]) == {}
