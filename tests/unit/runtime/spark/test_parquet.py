"""Local Parquet files, read by tasks themselves, also such that unpack to very much."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.catalog.objects import RelationDef
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.runtime.spark import parquet
from millpond.runtime.spark.parquet import check_columns, open_groups, parquet_tables

RELATION = RelationDef(1, "r", Schema((Field("v", "BIGINT"), Field("t", "VARCHAR"))))


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = tmp_path / "a b.parquet"
    table = pa.table({"V": range(5), "other": ["x"] * 5})
    pq.write_table(table, path, row_group_size=2)
    return f"file://{path}"


def test_row_groups_are_read_with_the_wanted_columns_alone(uri: str) -> None:
    with open_groups(uri) as groups:
        assert groups.counts == (2, 2, 1)
        found = list(groups.read({"v"}, [2, 0]))
    assert [(group, rows.to_pydict()) for group, rows in found] == [
        (2, {"V": [4]}),
        (0, {"V": [0, 1]}),
    ]


def test_a_relation_gets_all_row_groups_of_all_files(uri: str) -> None:
    batch = pa.record_batch({"path": [uri, uri]})
    tables = list(parquet_tables(RELATION)([batch]))
    assert pa.concat_tables(tables)["V"].to_pylist() == [*range(5), *range(5)]


def test_a_file_needs_one_of_the_declared_columns(uri: str, tmp_path: Path) -> None:
    check_columns(RELATION, [uri])
    stranger = tmp_path / "stranger.parquet"
    pq.write_table(pa.table({"w": [1]}), stranger)
    with pytest.raises(MillpondError, match=r"DATA-502.*none of its columns"):
        check_columns(RELATION, [uri, str(stranger)])
    stranger.write_bytes(b"no parquet")
    with pytest.raises(MillpondError, match=r"DATA-502.*cannot be read"):
        check_columns(RELATION, [str(stranger)])


def read(file: Path) -> list[tuple[int, pa.Table]]:
    with open_groups(str(file)) as groups:
        return list(groups.read({"n"}))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Eight million bytes of one number, and eight million of another, in some KB."""
    path = tmp_path / "equal.parquet"
    numbers = pa.array(np.zeros(1_000_000, "int64"))
    pq.write_table(pa.table({"n": numbers, "other": numbers}), path)
    assert path.stat().st_size < 20_000
    return path


def test_a_row_group_that_is_too_large_unpacked_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "MOST_UNPACKED", 7_999_999)
    with pytest.raises(MillpondError, match="8,000,000 bytes unpacked"):
        read(file)


def test_columns_nobody_wants_do_not_count(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MOST_UNPACKED", 8_000_000)
    ((group, rows),) = read(file)
    assert (group, rows.num_rows) == (0, 1_000_000)


def test_a_large_row_group_comes_in_pieces(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "PIECE_BYTES", 3_000_000)
    found = read(file)
    assert [group for group, _ in found] == [0] * len(found)
    assert all(rows.nbytes < 3_200_000 for _, rows in found)
    assert pa.concat_tables([rows for _, rows in found]).num_rows == 1_000_000
