"""CREATE, ALTER and DROP: their clauses, and what other systems have."""

from __future__ import annotations

import pytest
from tests.unit.cql.parse.reading import read, refuse

from millpond.cql import parse_statement
from millpond.errors import MillpondError


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM d AS SELECT a FROM s",
        "CREATE RELATION d AS SELECT a FROM s",
        "ALTER SYSTEM SET (queue_memory = '1 GB')",
        "DROP QUERY q",
    ],
)
def test_it_is_printed_as_it_was_written(text: str) -> None:
    assert read(text) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (
            "CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts RETAIN 1 DAY",
            "CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts RETAIN INTERVAL 1 DAY",
        ),
    ],
)
def test_what_is_read_is_printed_in_full(text: str, meant: str) -> None:
    assert read(text) == meant


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("CREATE TABLE t (a INT)", "TABLE"),
        ("CREATE OR REPLACE STREAM s (a INT)", "OR REPLACE"),
        ("ALTER TABLE t ADD COLUMN x INT", "TABLE"),
        ("CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts SLACK 5 SECONDS", "SLACK"),
    ],
)
def test_it_is_refused_at_its_place(text: str, place: str) -> None:
    assert refuse(text) == ("CQL-103", place)


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("ALTER STREAM s RENAME TO t", "RENAME", "ADD COLUMN column TYPE"),
        ("ALTER STREAM s ADD zz INTEGER", "zz", "ADD COLUMN column TYPE"),
        ("ALTER STREAM s ALTER COLUMN v TYPE BIGINT", "ALTER", "Names and types of columns stay"),
        ("ALTER STREAM s DROP COLUMN v", "COLUMN", "A column that was added stays"),
        ("ALTER RELATION r ADD COLUMN a INT", "RELATION", "ALTER STREAM name ADD COLUMN"),
        ("ALTER SINK s RENAME TO t", "RENAME", "ALTER SINK name SET"),
    ],
)
def test_what_cannot_be_altered_hints_at_what_can(text: str, place: str, hint: str) -> None:
    with pytest.raises(MillpondError) as failure:
        parse_statement(text)
    error = failure.value
    assert error.code == "CQL-103"
    assert error.span is not None
    assert text[error.span.start : error.span.end] == place
    assert hint in (error.hint or "")
