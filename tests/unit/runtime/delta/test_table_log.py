"""The log of a table: what its versions appended, and what no stream can have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.errors import MillpondError
from millpond.runtime.delta.table_log import AppendedFile, TableLog, sync_version

deltalake = pytest.importorskip("deltalake")
Append = Callable[..., None]


@pytest.fixture
def log(path: Path) -> TableLog:
    return TableLog(path, "s", ["K", "v"])


def values(files: tuple[AppendedFile, ...]) -> list[list[int]]:
    return [pq.ParquetFile(file.path).read()["v"].to_pylist() for file in files]


def commit_actions(path: Path, version: int, *actions: dict[str, Any]) -> None:
    text = "\n".join(json.dumps(action) for action in actions)
    (path / "_delta_log" / f"{version:020}.json").write_text(text)


def test_a_version_has_what_it_appended(path: Path, append: Append, log: TableLog) -> None:
    append(1)
    append(2, 3)
    assert log.look() == 1
    first, second = log.read(0), log.read(1)
    assert first is not None
    assert second is not None
    assert (values(first.files), values(second.files)) == ([[1]], [[2, 3]])
    assert [(file.version, file.number) for file in second.files] == [(1, 0)]
    assert log.read(2) is None
    assert (log.mark(1), log.mark(2)) == (second.mark, None)
    assert first.mark != second.mark
    assert log.read(1) == second
    log.check_files([*first.files, *second.files])


def test_a_snapshot_has_the_files_of_its_version(append: Append, log: TableLog) -> None:
    for value in (1, 2, 3):
        append(value)
    append(9, mode="overwrite")
    assert values(log.snapshot(2)) == [[1], [2], [3]]
    assert [(file.version, file.number) for file in log.snapshot(2)] == [(2, 0), (2, 1), (2, 2)]
    assert values(log.snapshot(3)) == [[9]]


def test_a_table_gets_properties_and_constraints(path: Path, log: TableLog) -> None:
    """The client names more features then than the table has any use for."""

    def append(value: int) -> None:
        at = pa.array([value], pa.timestamp("us"))  # a feature: of the tables that name theirs
        rows = pa.table({"k": ["a"], "v": [value], "at": at})
        deltalake.write_deltalake(str(path), rows, mode="append")

    append(1)
    deltalake.DeltaTable(str(path)).alter.set_table_properties({"delta.appendOnly": "true"})
    deltalake.DeltaTable(str(path)).alter.add_constraint({"positive": "v > 0"})
    append(2)
    assert log.look() == 3
    read = [log.read(version) for version in range(4)]
    assert [values(commit.files) for commit in read if commit is not None] == [[[1]], [], [], [[2]]]


@pytest.mark.parametrize("k", ["a/ b%", "ä", "100%25"])
def test_values_of_partitions_are_read_back(append: Append, log: TableLog, k: str) -> None:
    append(1, k=k, partition_by=["k"])
    commit = log.read(0)
    assert commit is not None
    for files in (commit.files, log.snapshot(0)):
        assert [file.values for file in files] == [{"k": k}]
        assert values(files) == [[1]]
        log.check_files(list(files))


def test_a_version_that_lays_rows_out_anew_appends_nothing(
    path: Path, append: Append, log: TableLog
) -> None:
    append(1)
    append(2)
    deltalake.DeltaTable(str(path)).optimize.compact()
    commit = log.read(2)
    assert commit is not None
    assert commit.files == ()


def delete(path: Path, append: Append) -> None:
    deltalake.DeltaTable(str(path)).delete("v = 2")


def update(path: Path, append: Append) -> None:
    deltalake.DeltaTable(str(path)).update({"v": "7"}, predicate="v = 2")


def overwrite(path: Path, append: Append) -> None:
    append(7, mode="overwrite")


def lose_version(path: Path, append: Append) -> None:
    append(3)
    append(4)
    (path / "_delta_log" / f"{2:020}.json").unlink()


def lose_table(path: Path, append: Append) -> None:
    shutil.rmtree(path)


def make_anew(path: Path, append: Append) -> None:
    shutil.rmtree(path)
    append(1)


def change_columns(path: Path, append: Append) -> None:
    field = {"name": "other", "type": "long", "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    commit_actions(path, 2, {"metaData": {"schemaString": schema}})


def map_columns(path: Path, append: Append) -> None:
    fields = [{"name": name} for name in ("k", "v")]
    settings = {"delta.columnMapping.mode": "name"}
    meta = {"schemaString": json.dumps({"fields": fields}), "configuration": settings}
    commit_actions(path, 2, {"metaData": meta})


def have_a_variant(path: Path, append: Append) -> None:
    fields = [{"name": "k", "type": "variant"}, {"name": "v", "type": "long"}]
    commit_actions(path, 2, {"metaData": {"schemaString": json.dumps({"fields": fields})}})


def need_a_feature(path: Path, append: Append) -> None:
    features = ["deletionVectors", "v2Checkpoint", "fromTheFuture"]
    commit_actions(path, 2, {"protocol": {"minReaderVersion": 3, "readerFeatures": features}})


def need_a_reader(path: Path, append: Append) -> None:
    commit_actions(path, 2, {"protocol": {"minReaderVersion": 4}})


def delete_by_a_vector(path: Path, append: Append) -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    commit_actions(path, 2, {"add": {"path": "x.parquet", "deletionVector": vector}})


def remove_without_saying_why(path: Path, append: Append) -> None:
    commit_actions(path, 2, {"remove": {"path": "x.parquet", "dataChange": True}})


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (delete, "Version 2 of the table .* appended: it .DELETE. removes or changes rows of 1"),
        (update, "it .UPDATE. removes or changes rows of 1"),
        (overwrite, "it .WRITE. removes or changes rows of 2 files"),
        (remove_without_saying_why, "it removes or changes rows of 1 files"),
        (lose_version, "Version 2 is gone from the table's log, which has come to version 3"),
        (lose_table, "There is no Delta table .* any more"),
        (make_anew, "Version 1 was read, and the table's log ends at 0"),
        (change_columns, 'Version 2 of the table has no column "K"; it has other'),
        (map_columns, "its columns are mapped"),
        (have_a_variant, 'its column "K" is a variant'),
        (need_a_feature, "the table needs fromTheFuture"),
        (need_a_reader, "the table needs a reader of version 4"),
        (delete_by_a_vector, "it has deletion vectors"),
    ],
)
def test_what_cannot_be_said_of_a_stream_is_named(
    path: Path, append: Append, log: TableLog, step: Callable[..., None], words: str
) -> None:
    append(1)
    append(2)
    assert log.read(2) is None
    step(path, append)
    with pytest.raises(MillpondError, match=words) as refused:
        log.read(2)
    assert refused.value.code == "DATA-502"
    assert 'the source of "s"' in str(refused.value)


def test_a_file_that_was_vacuumed_is_named(path: Path, append: Append, log: TableLog) -> None:
    append(1)
    append(2)
    table = deltalake.DeltaTable(str(path))
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    commit = log.read(1)
    assert commit is not None
    with pytest.raises(MillpondError, match=r"which version 1 has, is gone.*VACUUM"):
        log.check_files(list(commit.files))


def test_a_version_of_another_table_is_told_from_the_one_that_was_read(
    path: Path, append: Append, log: TableLog
) -> None:
    append(1)
    mark = log.mark(0)
    log.check_mark(0, mark)
    log.check_mark(0, None)  # nothing is known of it
    log.check_mark(5, mark)  # its commit is not kept any more
    shutil.rmtree(path)
    append(1, 2)
    with pytest.raises(MillpondError, match="Version 0 of the table is not the one that was read"):
        log.check_mark(0, mark)


def test_a_table_that_is_not_there_or_lacks_a_column_is_refused(
    path: Path, append: Append, log: TableLog
) -> None:
    with pytest.raises(MillpondError, match="There is no Delta table"):
        log.look()
    append(1)
    with pytest.raises(MillpondError, match='no column "w"; it has k, v'):
        TableLog(path, "s", ["v", "w"]).look()
    with pytest.raises(MillpondError, match="at version 3"):
        log.snapshot(3)


def test_a_version_and_what_it_added_are_synced(
    path: Path, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    for name in ("sync_file", "sync_directory"):
        monkeypatch.setattr(f"millpond.runtime.delta.table_log.{name}", synced.append)
    append(1, k="a/ b%", partition_by=["k"])
    append(2, k="c")
    sync_version(path, 0)
    (file,) = (file for file in path.rglob("*.parquet") if "k=c" not in str(file))
    commit = path / "_delta_log" / f"{0:020}.json"
    assert set(synced) == {file, commit, path, file.parent, commit.parent}
    assert synced.index(file) < synced.index(commit)
