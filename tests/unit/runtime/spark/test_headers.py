"""Which CSV files have headers, and where Spark's paths lie on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.catalog.objects import SourceDef, StreamDef
from millpond.model.schema import Schema
from millpond.runtime.spark.headers import has_headers, local_path


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
