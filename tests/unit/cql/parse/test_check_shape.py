"""What sqlglot reads and CQL does not have is refused, wherever it stands."""

from __future__ import annotations

import pytest
from tests.unit.cql.parse.reading import read, refuse


@pytest.mark.parametrize(
    "text",
    [
        "SELECT v FROM s NATURAL JOIN r",
        "SELECT v FROM s ASOF JOIN r ON s.k = r.k AND s.ts >= r.ts",
        "SELECT v FROM s GROUP BY CUBE (v, w)",
        "SELECT sum(v) OVER (ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM s",
        "SELECT v IS DISTINCT FROM 3 FROM s",
    ],
)
def test_it_is_printed_as_it_was_written(text: str) -> None:
    assert read(text) == text


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT * EXCLUDE (v) FROM s", "v"),
        ("SELECT COLUMNS('a') FROM s", "COLUMNS('a')"),
        ("SELECT v INTO t FROM s", "t"),
        ("SELECT f(4, x := 3) FROM s", "x := 3"),
        ("SELECT v FROM s PIVOT (sum(v) FOR k IN (1))", "PIVOT"),
        ("SELECT v FROM s ASOF JOIN r ON s.k = r.k", "s.k = r.k"),
        ("SELECT list_transform(l, lambda x: x + 1) FROM s", "x: x + 1"),
    ],
)
def test_it_is_refused_at_its_place(text: str, place: str) -> None:
    assert refuse(text) == ("CQL-103", place)


def test_a_type_that_is_unknown_is_marked() -> None:
    assert refuse("SELECT CAST(v AS FOO) FROM s") == ("CQL-210", "FOO")


def test_grouping_sets_are_limited() -> None:
    keys = ", ".join(f"k{n}" for n in range(20))
    code, _ = refuse(f"SELECT 1 FROM s GROUP BY CUBE ({keys})")
    assert code == "CQL-104"
