"""No stream is over files that another one takes away."""

from __future__ import annotations

from contextlib import nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millpond.catalog.objects import FileHistory, SourceDef, StreamDef
from millpond.cql import parse_statement
from millpond.cql.tree.statements import CreateStream
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.service.definitions.taken_files import have_common_files, refuse_taken_files
from millpond.service.pond import Pond


def files(path: str, **options: str) -> SourceDef:
    return SourceDef("csv", {"path": path, **options})


@pytest.mark.parametrize(
    ("one", "two", "common"),
    [
        (files("/in/a"), files("/in/a"), True),
        (files("/in/a"), files("/in/a/"), True),
        (files("/in/a"), files("file:/in/a"), True),
        (files("/in/a"), files("file:///in/b/../a"), True),
        (files("/in/a"), files("/in/b"), False),
        (files("/in"), files("/input"), False),
        (files("in"), files(str(Path("in").absolute())), True),
        (files("s3a://b/in"), files("s3a://b/in/"), True),
        (files("s3a://b/in"), files("/b/in"), False),
        # One file, or several by a pattern, of a directory that another one watches.
        (files("/in"), files("/in/a.csv"), True),
        (files("/in"), files("/in/*.csv"), True),
        (files("/in/*"), files("/in/a*"), True),
        (files("/in/a*"), files("/in/b*"), False),
        (files("/in/*.csv"), files("/in/*.json"), False),
        (files("/i*"), files("/in"), True),
        (files("/in/2026-*/x"), files("/in/*/x"), True),
        # Filters of names.
        (files("/in"), files("/in", pathglobfilter="*.csv"), True),
        (files("/in", pathglobfilter="*.csv"), files("/in", pathglobfilter="*.json"), False),
        (files("/in", pathglobfilter="*.csv"), files("/in/*.json"), False),
        (files("/in", pathglobfilter="*.{csv,tsv}"), files("/in/a.tsv"), True),
        # Directories in directories.
        (files("/in"), files("/in/a/b"), False),
        (files("/in", recursivefilelookup="True"), files("/in/a/b"), True),
        (files("/in"), files("/in/year=2026/month=1"), True),
        (SourceDef("kafka", {}), SourceDef("kafka", {}), False),
        (SourceDef("kafka", {}), files("/in"), False),
    ],
)
def test_which_sources_may_read_one_file_both(one: SourceDef, two: SourceDef, common: bool) -> None:
    assert have_common_files(one, two) == common
    assert have_common_files(two, one) == common


def test_a_directory_is_no_file_of_the_one_it_lies_in(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert not have_common_files(files(str(tmp_path)), files(str(tmp_path / "a")))
    assert have_common_files(files(str(tmp_path)), files(str(tmp_path / "b")))


PATTERN = st.text("ab*?", min_size=1, max_size=4)


@given(st.tuples(PATTERN, PATTERN), st.tuples(PATTERN, PATTERN), st.text("ab", min_size=1))
@example(("*", "a"), ("a", "*"), "a")
def test_what_fits_both_is_common(one: tuple[str, str], two: tuple[str, str], name: str) -> None:
    """Whatever name there is that fits both paths, or both filters."""
    fits = all(fnmatchcase(name, pattern) for pattern in (*one, *two))
    sources = [files("/{}/{}".format(*patterns)) for patterns in (one, two)]
    filtered = [files(f"/{path}", pathglobfilter=names) for path, names in (one, two)]
    assert have_common_files(*sources) or not fits
    assert have_common_files(*filtered) or not fits


@pytest.mark.parametrize("first", ["", ", cleanSource 'delete'"])
@pytest.mark.parametrize("second", ["", ", cleanSource 'Archive', sourceArchiveDir '/read'"])
def test_a_stream_that_would_miss_files_is_not_created(
    pond: Pond, tmp_path: Path, first: str, second: str
) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    options = f"path '{tmp_path}', header 'true'"
    create = f"CREATE STREAM {{}} (n BIGINT) USING csv OPTIONS ({options}{{}})"
    pond.execute(create.format("one", first))
    two = create.format("two", second)
    if first or second:
        with pytest.raises(MillpondError, match='CQL-214: stream "two" and stream "one"') as raised:
            pond.execute(two)
        assert raised.value.span is not None
        pond.execute("DROP STREAM one")
    pond.execute(two)


def test_a_history_that_is_still_to_be_read_is_not_taken_away() -> None:
    schema = Schema((Field("n", "BIGINT"),))
    taking = StreamDef(2, "two", schema, source=files("/in", cleansource="delete"))
    statement = parse_statement("CREATE STREAM two (n BIGINT)")
    assert isinstance(statement, CreateStream)
    for is_read in False, True:
        history = FileHistory(files("/in"), is_read=is_read)
        version: Any = SimpleNamespace(streams={1: StreamDef(1, "one", schema, history=history)})
        with nullcontext() if is_read else pytest.raises(MillpondError, match="CQL-214"):
            refuse_taken_files(taking, statement, version)
