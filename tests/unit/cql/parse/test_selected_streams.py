"""A window behind a query in brackets: it goes to the stream that the query selects from."""

from __future__ import annotations

import pytest
from tests.unit.cql.parse.reading import read

from millpond.cql import parse_query, print_query
from millpond.cql.parse.selected_streams import move_window
from millpond.cql.print.dialect import StreamWindow


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("SELECT * FROM (SELECT v FROM s) [ROWS 3]", "SELECT * FROM (SELECT v FROM s [ROWS 3])"),
        (
            "SELECT * FROM (SELECT v, w FROM s WHERE v > 3) [RANGE 1 MINUTE] t",
            "SELECT * FROM (SELECT v, w FROM s [RANGE 1 MINUTE] WHERE v > 3) AS t",
        ),
    ],
)
def test_what_is_read_is_printed_in_full(text: str, meant: str) -> None:
    assert read(text) == meant


@pytest.mark.parametrize(
    "inner",
    [
        "SELECT count(*) FROM s",
        "SELECT v FROM s, r",
        "SELECT v FROM s [ROWS 2]",
        "SELECT DISTINCT v FROM s",
        "SELECT v FROM s LIMIT 3",
    ],
)
def test_other_queries_are_no_streams(inner: str) -> None:
    query = parse_query(inner)
    assert not move_window(StreamWindow(kind="now"), query)
    assert print_query(query) == inner
