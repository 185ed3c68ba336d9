"""The files of a table as one sequence: where it begins, how far it goes, what lies between."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from millpond.errors import MillpondError
from millpond.runtime.delta.appended_files import AppendedFiles, find_beginning
from millpond.runtime.delta.options import DeltaOptions
from millpond.runtime.delta.table_log import AppendedFile, TableLog

deltalake = pytest.importorskip("deltalake")
Append = Callable[..., None]


@pytest.fixture
def log(path: Path) -> TableLog:
    return TableLog(path, "s", ["k", "v"])


def begin(log: TableLog, path: Path, start: str | int) -> AppendedFiles:
    return AppendedFiles(log, find_beginning(log, DeltaOptions("s", path, start, 1_000)))


def values(files: list[AppendedFile]) -> list[int]:
    return [v for file in files for v in pq.ParquetFile(file.path).read()["v"].to_pylist()]


def read_all(files: AppendedFiles, most: int, place: dict[str, Any] | None = None) -> list[int]:
    """Read batches of at most `most` files until no more come."""
    found: list[int] = []
    place = place or files.first
    while (end := files.find_end(place, most)) != place:
        batch = files.list_files(place, end)
        assert len(batch) <= most
        found += values(batch)
        place = end
    return found


@pytest.mark.parametrize(
    ("start", "found"),
    [
        ("earliest", [1, 2, 3, 4]),
        ("latest", [4]),
        (0, [1, 2, 3, 4]),
        (1, [2, 3, 4]),
        (3, [4]),
    ],
)
def test_where_a_stream_begins(
    path: Path, append: Append, log: TableLog, start: str | int, found: list[int]
) -> None:
    for value in (1, 2, 3):
        append(value)
    files = begin(log, path, start)
    append(4)
    assert read_all(files, 1_000) == found


def test_a_version_far_off_is_no_beginning(path: Path, append: Append, log: TableLog) -> None:
    append(1)
    with pytest.raises(MillpondError, match=r"starts at version 2, .* has come to version 0"):
        begin(log, path, 2)


def test_a_snapshot_has_what_is_there_and_what_follows_is_appended(
    path: Path, append: Append, log: TableLog
) -> None:
    """Version 3 removed what versions 0 to 2 appended: only a start that reads them is refused."""
    for value in (1, 2, 3):
        append(value)
    append(7, mode="overwrite")
    append(8)
    assert read_all(begin(log, path, "earliest"), 1) == [7, 8]
    with pytest.raises(MillpondError, match="Version 3 of the table cannot be read"):
        begin(log, path, 3)
    with pytest.raises(MillpondError, match="Version 3 of the table cannot be read"):
        read_all(begin(log, path, 0), 1)


@pytest.mark.parametrize("start", ["earliest", 0])
@pytest.mark.parametrize("most", [1, 2, 3, 1_000])
def test_each_file_comes_once_whatever_a_batch_has(
    path: Path, append: Append, log: TableLog, start: str | int, most: int
) -> None:
    """Versions of several files, and one that only lays rows out anew in between."""
    append(1, 2, k=None, partition_by=["k"])
    files = begin(log, path, start)
    append(*range(10, 15), k=None)
    append(10, k="10")
    assert [len(version.files) for n in range(3) if (version := log.read(n))] == [2, 5, 1]
    deltalake.DeltaTable(str(path)).optimize.compact()
    append(20)
    assert sorted(read_all(files, most)) == [1, 2, 10, *range(10, 15), 20]
    assert read_all(files, most) == read_all(files, 1_000)


def test_a_place_that_was_kept_goes_on_where_it_was(
    path: Path, append: Append, log: TableLog
) -> None:
    for value in (1, 2, 3):
        append(value)
    files = begin(log, path, "earliest")
    place = files.find_end(files.first, 2)
    assert values(files.list_files(files.first, place)) == [1, 2]
    append(4)
    beginning = {"place": files.first, "snapshot": True}
    again = AppendedFiles(TableLog(path, "s", ["v"]), beginning)
    assert read_all(again, 10, place) == [3, 4]


def test_a_run_ends_with_the_version_that_is_named(
    path: Path, append: Append, log: TableLog
) -> None:
    for value in (1, 2, 3):
        append(value)
    files = begin(log, path, 0)
    end = files.find_end(files.first, 1_000, upto=1)
    assert (end["version"], end["file"]) == (2, 0)
    assert values(files.list_files(files.first, end)) == [1, 2]


def test_a_table_that_was_made_anew_stops_at_its_next_version(
    path: Path, append: Append, log: TableLog
) -> None:
    append(1)
    files = begin(log, path, "earliest")
    place = files.find_end(files.first, 10)
    shutil.rmtree(path)
    append(7)
    assert files.find_end(place, 10) == place  # it has nothing that is next
    append(8)
    with pytest.raises(MillpondError, match="Version 0 of the table is not the one"):
        files.find_end(place, 10)


def test_a_version_that_is_gone_stops(path: Path, append: Append, log: TableLog) -> None:
    for value in (1, 2, 3):
        append(value)
    files = begin(log, path, 0)
    (path / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(MillpondError, match="Version 1 is gone from the table's log"):
        files.find_end(files.first, 10)


def test_a_vacuumed_file_stops_when_it_is_listed(path: Path, append: Append, log: TableLog) -> None:
    append(1)
    append(2)
    files = begin(log, path, 0)
    end = files.find_end(files.first, 10)
    table = deltalake.DeltaTable(str(path))
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(MillpondError, match="which version 0 has, is gone"):
        files.list_files(files.first, end)
