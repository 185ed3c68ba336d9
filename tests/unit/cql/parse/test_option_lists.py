"""Lists of options: of queries with "=", of sources without."""

from __future__ import annotations

import pytest
from tests.unit.cql.parse.reading import read, refuse


@pytest.mark.parametrize(
    "text",
    [
        "CREATE QUERY q WITH (weight = 2, tags = 'a, b') AS SELECT a FROM s",
        "CREATE STREAM s (a INT) USING csv OPTIONS (path 'x', header 'true')",
        "CREATE QUERY q WITH (weight = -2) AS SELECT a FROM s",
    ],
)
def test_it_is_printed_as_it_was_written(text: str) -> None:
    assert read(text) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("ALTER QUERY q SET (active = false)", "ALTER QUERY q SET (active = FALSE)"),
        (
            "CREATE STREAM s (a INT) USING csv OPTIONS (path = 'x')",
            "CREATE STREAM s (a INT) USING csv OPTIONS (path 'x')",
        ),
    ],
)
def test_what_is_read_is_printed_in_full(text: str, meant: str) -> None:
    assert read(text) == meant


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("CREATE QUERY q WITH (weight 2) AS SELECT a FROM s", "2"),
        ("CREATE QUERY q WITH (weight = 2, weight = 3) AS SELECT a FROM s", "weight"),
        ("CREATE QUERY q WITH (active = maybe) AS SELECT a FROM s", "maybe"),
    ],
)
def test_it_is_refused_at_its_place(text: str, place: str) -> None:
    assert refuse(text) == ("CQL-103", place)
