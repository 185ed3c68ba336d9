"""Streams that read Delta tables: what is appended comes once, in the order of versions."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.service.pond import Pond

pytestmark = pytest.mark.spark
deltalake = pytest.importorskip("deltalake")

COLUMNS = "(at TIMESTAMP, k VARCHAR, v INTEGER)"


def append(path: Path, *values: int, k: str = "a", **options: Any) -> None:
    """Append a version with elements whose minutes and values are given."""
    at = [datetime(2026, 3, 1, 10, value % 60) for value in values]
    rows = {"at": pa.array(at, pa.timestamp("us")), "k": [k] * len(at), "v": list(values)}
    deltalake.write_deltalake(str(path), pa.table(rows), mode="append", **options)


def create(pond: Pond, path: Path, columns: str = COLUMNS, **options: str) -> None:
    given = ", ".join(f"{name} '{value}'" for name, value in {"path": path, **options}.items())
    pond.execute(f"CREATE STREAM s {columns} TIMESTAMP BY at USING delta OPTIONS ({given})")


def elements(pond: Pond, columns: str = "v") -> list[Any]:
    pond.catch_up()
    found = pond.ask(f"SELECT {columns} FROM s").rows()
    return [row[0] for row in found] if columns == "v" else found


def reason(pond: Pond, eventually: Callable[..., Any]) -> str:
    """Why the stream has stopped; waits until it has."""
    return str(eventually(lambda: pond.status()["streams"][0]["reason"]))


def test_what_a_table_has_and_gets_comes_once_and_in_order(open_store, tmp_path, eventually):
    """A snapshot, two batches a version, versions behind it, a restart, and a partition."""
    path = tmp_path / "a table"
    append(path, 1, 3, 2)
    append(path, 4)
    pond = open_store()
    create(pond, path, max_files="1")
    assert sorted(elements(pond)) == [1, 2, 3, 4]
    append(path, 7, 6)
    append(path, 9, 8)
    assert sorted(elements(pond)) == [1, 2, 3, 4, 6, 7, 8, 9]
    pond.close()
    append(path, 11)
    deltalake.DeltaTable(str(path)).optimize.compact()
    append(path, 12)
    pond = open_store()
    assert sorted(elements(pond)) == [1, 2, 3, 4, 6, 7, 8, 9, 11, 12]
    assert pond.status()["streams"][0]["rejected"] == 0


def test_a_column_is_added_before_or_after_the_table_has_it(open_store, tmp_path):
    path = tmp_path / "t"
    append(path, 1)
    pond = open_store()
    create(pond, path)
    assert elements(pond) == [1]
    pond.execute("ALTER STREAM s ADD COLUMN w INTEGER")
    append(path, 2)
    assert sorted(elements(pond, "v, w")) == [(1, None), (2, None)]
    pond.close()
    pond = open_store()  # it opens a table without the column
    at = pa.array([datetime(2026, 3, 1, 10, 3)], pa.timestamp("us"))
    wide = pa.table({"at": at, "k": ["a"], "v": [3], "w": [30]})
    deltalake.write_deltalake(str(path), wide, mode="append", schema_mode="merge")
    append(path, 4, schema_mode="merge")
    expected = [(1, None), (2, None), (3, 30), (4, None)]
    assert sorted(elements(pond, "v, w"), key=repr) == expected
    assert pond.status()["streams"][0]["rejected"] == 0


@pytest.mark.parametrize(("start", "first"), [("latest", 3), ("1", 2)])
def test_where_a_stream_begins(pond, tmp_path, start, first):
    path = tmp_path / "t"
    for value in (1, 2):
        append(path, value)
    create(pond, path, start=start)
    append(path, 3)
    assert elements(pond) == list(range(first, 4))


def test_a_table_by_partitions_and_a_run_to_its_end(bounded, tmp_path):
    path = tmp_path / "t"
    append(path, 1, 2, k="a/ b%", partition_by=["k"])
    append(path, 3, k="ä")
    create(bounded, path, columns="(at TIMESTAMP, K VARCHAR, v INTEGER)")
    found = bounded.ask("SELECT K, v FROM s").rows()
    assert sorted(found) == [("a/ b%", 1), ("a/ b%", 2), ("ä", 3)]
    append(path, 4, k="b")
    bounded.catch_up()
    (stream,) = bounded.status()["streams"]
    assert (stream["state"], stream["rows"]) == ("ended", 3)


def test_large_files_are_dealt_out(pond, tmp_path, monkeypatch):
    monkeypatch.setattr("millpond.runtime.spark.batches.LARGE_ROWS", 10)
    path = tmp_path / "t"
    small = deltalake.WriterProperties(max_row_group_size=8)
    append(path, *range(40), writer_properties=small)
    append(path, *range(40, 60), writer_properties=small)
    create(pond, path)
    assert elements(pond) == list(range(60))


def delete(path: Path) -> None:
    deltalake.DeltaTable(str(path)).delete("v = 2")


def make_anew(path: Path) -> None:
    shutil.rmtree(path)
    for value in (7, 8, 9):
        append(path, value)


def lose_version(path: Path) -> None:
    append(path, 4)
    (path / "_delta_log" / f"{2:020}.json").unlink()


def change_columns(path: Path) -> None:
    rows = pa.table({"other": [1]})
    deltalake.write_deltalake(str(path), rows, mode="overwrite", schema_mode="overwrite")


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (delete, "Version 2 of the table cannot be read as rows that were appended: it (DELETE)"),
        (make_anew, "Version 1 of the table is not the one that was read before"),
        (lose_version, "Version 2 is gone from the table's log, which has come to version 3"),
        (change_columns, 'Version 2 of the table has no column "at"; it has other'),
    ],
    ids=["deleted", "anew", "gap", "columns"],
)
def test_what_stops_a_stream(open_store, tmp_path, eventually, step, words):
    path = tmp_path / "t"
    append(path, 1)
    append(path, 2)
    pond = open_store()
    create(pond, path)
    assert elements(pond) == [1, 2]
    pond.close()
    if step is not delete and step is not change_columns and step is not make_anew:
        append(path, 3)
    step(path)
    pond = open_store()
    assert words in reason(pond, eventually)
    assert pond.ask("SELECT v FROM s").rows() == [(1,), (2,)]


def test_a_file_that_was_vacuumed_is_named(open_store, tmp_path, eventually):
    path = tmp_path / "t"
    append(path, 1)
    pond = open_store()
    create(pond, path)
    assert elements(pond) == [1]
    pond.close()
    append(path, 2)
    append(path, 3)
    table = deltalake.DeltaTable(str(path))
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    pond = open_store()
    said = reason(pond, eventually)
    assert "which version 1 has, is gone" in said
    assert "VACUUM" in said


def test_tables_that_cannot_be_read_are_refused(pond, tmp_path):
    path = tmp_path / "t"
    append(path, 1)
    refused_ones: tuple[tuple[Path, dict[str, str], str], ...] = (
        (tmp_path / "none", {}, "no Delta table"),
        (path, {"columns": "(at TIMESTAMP, w INTEGER)"}, 'has no column "w"'),
        (path, {"start": "soon"}, 'cannot start at "soon"'),
        (path, {"max_files": "0"}, "a whole number from 1 to 1000000"),
        (path, {"header": "true"}, 'the option "header" is none of a Delta source'),
    )
    for given, options, words in refused_ones:
        with pytest.raises(MillpondError) as refused:
            create(pond, given, **options)
        assert words in str(refused.value)
    with pytest.raises(MillpondError, match="cannot be read from a Delta table"):
        pond.execute(f"CREATE RELATION r (k VARCHAR) USING delta OPTIONS (path '{path}')")


def test_a_client_reads_below_the_roots_only(pond, tmp_path, eventually):
    """Also where the log names files elsewhere, and a link leads there."""
    from millpond.service.definitions.access_policy import AccessPolicy

    root, away = tmp_path / "root", tmp_path / "away"
    root.mkdir()
    append(away, 1)
    append(root / "t", 2)
    os.symlink(away, root / "link")
    policy = AccessPolicy.of([root], ["delta"])
    columns = f"{COLUMNS} TIMESTAMP BY at USING delta OPTIONS"
    for name in (away, root / "link"):
        with pytest.raises(MillpondError, match="clients may not"):
            list(pond.run(f"CREATE STREAM s {columns} (path '{name}')", policy))
    with pytest.raises(MillpondError, match="USING delta"):
        list(pond.run(f"CREATE STREAM s {columns} (path '{root}/t')", AccessPolicy.of([root])))
    list(pond.run(f"CREATE STREAM s {columns} (path '{root}/t')", policy))
    assert elements(pond) == [2]
    (elsewhere,) = away.glob("*.parquet")
    add = {"path": str(elsewhere), "partitionValues": {}, "size": 1, "modificationTime": 1}
    action = json.dumps({"add": {**add, "dataChange": True}})
    (root / "t" / "_delta_log" / f"{1:020}.json").write_text(action)
    assert "not below the directory" in reason(pond, eventually)
