"""A text names the columns it knows, where its streams have got others."""

from __future__ import annotations

from typing import Any, cast

import pytest

from millpond.catalog.objects import StreamDef
from millpond.cql.print.dialect import parse_query, print_query
from millpond.model.schema import Field, Schema
from millpond.service.definitions.earlier_columns import keep_columns
from millpond.state.version import Version

STREAM = StreamDef(
    1,
    "s",
    Schema((Field("ts", "TIMESTAMP"), Field("k", "VARCHAR"), Field("w", "INTEGER", added=7))),
)


class Streams:
    """As much of a version as is asked for."""

    def find(self, name: str) -> Any:
        return STREAM if name.lower() == "s" else None


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("s [ROWS 3]", "SELECT ts, k FROM s [ROWS 3]"),
        ("SELECT count(*) AS n FROM s", None),
        ("SELECT k FROM r", None),
        ("SELECT k, s.* FROM s", "SELECT k, s.* FROM (SELECT ts, k FROM s) AS s"),
        (
            "SELECT k FROM S [ROWS 2] AS x, r",
            "SELECT k FROM (SELECT ts, k FROM S [ROWS 2]) AS x, r",
        ),
        (
            "WITH s AS (SELECT k FROM s) SELECT * FROM s",
            "WITH s AS (SELECT k FROM (SELECT ts, k FROM s) AS s) SELECT * FROM s",
        ),
        (
            "SELECT k FROM r WHERE EXISTS(SELECT 1 FROM s [NOW] WHERE s.k = w)",
            "SELECT k FROM r WHERE EXISTS(SELECT 1 FROM (SELECT ts, k FROM s [NOW]) AS s"
            " WHERE s.k = w)",
        ),
        ("ISTREAM(SELECT * FROM s [RANGE 1 DAY])", "ISTREAM(SELECT ts, k FROM s [RANGE 1 DAY])"),
    ],
)
def test_columns_are_named_where_a_later_one_could_be_read(text: str, kept: str | None) -> None:
    query = parse_query(text)
    before, version = print_query(query), cast(Version, Streams())
    found = print_query(keep_columns(query, version, 6))
    assert found.lower() == (kept or before).lower()
    assert print_query(query) == before, "the tree is not changed"
    for knows_all in (7, None):
        assert print_query(keep_columns(query, version, knows_all)) == before
    parse_query(found)
