"""Sources that clearly cannot be read, and which files tasks read themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.catalog.objects import SourceDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.schema import Schema
from millpond.runtime.spark.sources import (
    check_source,
    find_absence,
    is_direct,
    literal_glob,
    quote,
)


def make(format: str, within: str | None = None, **options: str) -> StreamDef:
    return StreamDef(1, "s", Schema(()), source=SourceDef(format, options, within))


def test_a_source_of_files_needs_a_path_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(MillpondError, match=r"CQL-214.*no path"):
        check_source(make("csv"))
    with pytest.raises(MillpondError, match="DATA-502"):
        check_source(make("csv", path=str(tmp_path / "nothing")))
    check_source(make("csv", path=str(tmp_path)))
    check_source(make("rate"))


@pytest.mark.parametrize("path", ["/nowhere/*.csv", "s3a://bucket/x", "/nowhere/{a,b}.csv"])
def test_patterns_and_other_machines_are_not_looked_at_before(path: str) -> None:
    assert find_absence(make("csv", path=path)) is None


def test_tasks_read_plain_local_parquet_files(tmp_path: Path) -> None:
    path = str(tmp_path)
    assert is_direct(make("parquet", path=path))
    assert not is_direct(make("csv", path=path))
    assert not is_direct(make("parquet", path=path, mergeschema="true"))
    assert not is_direct(make("parquet", path=path, within=path))
    assert not is_direct(make("parquet", path="s3a://bucket/x"))
    (tmp_path / "day=1").mkdir()
    assert not is_direct(make("parquet", path=path))


def test_names_are_escaped() -> None:
    assert quote("a`b") == "`a``b`"
    assert literal_glob("/a[1]{b}*?") == "/a\\[1\\]\\{b\\}\\*\\?"
