"""The first lines of CSV files, also of files whose first line does not end."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, cast

import pytest

from millpond.catalog.objects import SourceDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.runtime.spark import headers
from millpond.runtime.spark.headers import columns_by_place, columns_of

NO_SPARK = cast(Any, None)  # local files are read without it


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
