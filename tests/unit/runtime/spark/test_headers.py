"""Which CSV files have headers, where Spark's paths lie, and first lines that do not end."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, cast

import pytest

from millpond.catalog.objects import SourceDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.runtime.spark import headers
from millpond.runtime.spark.headers import (
    columns_by_place,
    columns_of,
    has_headers,
    local_path,
)

NO_SPARK = cast(Any, None)  # local files are read without it


@pytest.mark.parametrize(
    ("source", "has_them"),
    [
        (SourceDef("csv", {"header": "TRUE"}), True),
        (SourceDef("csv", {"header": "false"}), False),
        (SourceDef("csv", {}), False),
        (SourceDef("json", {"header": "true"}), False),
        (None, False),
    ],
)
def test_csv_files_have_headers_where_the_option_says_so(
    source: SourceDef | None, has_them: bool
) -> None:
    assert has_headers(StreamDef(1, "s", Schema(()), source=source)) == has_them


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("file:///data/a.csv", "/data/a.csv"),
        ("file:/data/a.csv", "/data/a.csv"),
        ("/data/a b.csv", "/data/a b.csv"),
        ("s3a://bucket/a.csv", None),
        ("hdfs://host/a.csv", None),
    ],
)
def test_only_some_paths_are_on_this_machine(path: str, local: str | None) -> None:
    assert local_path(path) == (None if local is None else Path(local))


def stream(**options: str) -> StreamDef:
    schema = Schema((Field("a", "STRING"), Field("b", "STRING")))
    return StreamDef(1, "s", schema, source=SourceDef("csv", options))


def write(path: Path, text: str) -> str:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


@pytest.mark.parametrize("name", ["endless.csv", "endless.csv.gz"])
@pytest.mark.parametrize("before", ["", '"', "a,b,"])
def test_a_first_line_that_does_not_end_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, before: str
) -> None:
    monkeypatch.setattr(headers, "LONGEST_START", 10_000)
    path = write(
        tmp_path / name, before + "x\n" * 20_000 if before == '"' else before + "x" * 20_000
    )
    for find in (columns_of, columns_by_place):
        with pytest.raises(MillpondError, match="DATA-502") as raised:
            find(NO_SPARK, stream(), path)
        assert "more than 10,000 characters" in str(raised.value.detail)


def test_what_comes_after_the_first_line_may_be_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "LONGEST_START", 10_000)
    path = write(tmp_path / "later.csv", "a,c,b\n" + "x" * 20_000)
    assert columns_of(NO_SPARK, stream(), path) == ("a", "_c1", "b")
    assert columns_by_place(NO_SPARK, stream(), path) == ("a", "b", "_c2")


def test_a_file_has_no_more_columns_than_spark_reads(tmp_path: Path) -> None:
    path = write(tmp_path / "wide.csv", "a,b" + ",c" * 20_479)
    for find in (columns_of, columns_by_place):
        with pytest.raises(MillpondError, match="has 20,481 columns"):
            find(NO_SPARK, stream(), path)
        assert len(find(NO_SPARK, stream(maxcolumns="20481"), path)) == 20_481
