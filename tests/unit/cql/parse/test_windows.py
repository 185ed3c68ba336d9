"""Windows, periods and durations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from millpond.cql import parse_query, print_query
from millpond.cql.print.dialect import PERIOD, STREAM_SAMPLE, WINDOW, Period, StreamWindow
from millpond.model.durations import LONGEST, UNITS, duration_text

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


def window(brackets: str) -> StreamWindow:
    table = parse_query(f"SELECT * FROM s {brackets}").find(exp.Table)
    assert table is not None
    found = table.args[WINDOW]
    assert isinstance(found, StreamWindow)
    return found


@pytest.mark.parametrize(
    ("brackets", "expected"),
    [
        ("[NOW]", {"kind": "now"}),
        ("[RANGE UNBOUNDED]", {"kind": "unbounded"}),
        ("[range unbounded preceding]", {"kind": "unbounded"}),
        ("[RANGE 15 MINUTES]", {"kind": "range", "size": 15 * MINUTE}),
        ("[RANGE 15 MINUTES PRECEDING]", {"kind": "range", "size": 15 * MINUTE}),
        ("[RANGE 1 DAY SLIDE 1 HOUR]", {"kind": "range", "size": 24 * HOUR, "slide": HOUR}),
        ("[ROWS 10]", {"kind": "rows", "rows": 10}),
        ("[ROWS 10 PRECEDING]", {"kind": "rows", "rows": 10}),
    ],
)
def test_windows(brackets: str, expected: dict[str, Any]) -> None:
    assert window(brackets).args == expected


@pytest.mark.parametrize(
    ("length", "microseconds"),
    [
        ("1 MICROSECOND", 1),
        ("5 us", 5),
        ("250 MILLISECONDS", 250_000),
        ("5 ms", 5_000),
        ("1 SECOND", SECOND),
        ("90 secs", 90 * SECOND),
        ("INTERVAL 15 MINUTES", 15 * MINUTE),
        ("INTERVAL '15' MINUTE", 15 * MINUTE),
        ("INTERVAL '15 minutes'", 15 * MINUTE),
        ("'15 minutes'", 15 * MINUTE),
        ("2 hrs", 2 * HOUR),
        ("1.5 HOURS", 90 * MINUTE),
        ("INTERVAL '1 hour 30 minutes'", 90 * MINUTE),
        ("1 DAY", 24 * HOUR),
        ("2 WEEKS", 14 * 24 * HOUR),
    ],
)
def test_durations(length: str, microseconds: int) -> None:
    assert window(f"[RANGE {length}]").args["size"] == microseconds


def test_partitioned_window() -> None:
    found = window("[PARTITION BY carrier, \"Dest\" ROWS 10 WHERE dest = 'SFO']")
    assert [name.name for name in found.args["by"]] == ["carrier", "Dest"]
    assert found.args["rows"] == 10
    assert print_query(found.args["where"]) == "dest = 'SFO'"


def test_the_alias_follows_the_window() -> None:
    tables = list(parse_query("SELECT * FROM s [ROWS 1] f, t [NOW] AS g, u h").find_all(exp.Table))
    assert {t.name: (t.alias, WINDOW in t.args) for t in tables} == {
        "s": ("f", True),
        "t": ("g", True),
        "u": ("h", False),
    }


@pytest.mark.parametrize(
    ("bounds", "begin", "end"),
    [
        ("BEGIN NOW END NOW", {"offset": 0}, {"offset": 0}),
        ("BEGIN NOW - INTERVAL 3 HOURS END NOW", {"offset": -3 * HOUR}, {"offset": 0}),
        (
            "BEGIN NOW - '2' MINUTES END NOW + 5 SECONDS",
            {"offset": -2 * MINUTE},
            {"offset": 5 * SECOND},
        ),
        (
            "BEGIN '1970-01-02' END TIMESTAMP '1970-01-03 00:00:00'",
            {"instant": 24 * HOUR},
            {"instant": 48 * HOUR},
        ),
        ("BEGIN '1970-01-02' END NOW", {"instant": 24 * HOUR}, {"offset": 0}),
    ],
)
def test_periods(bounds: str, begin: dict[str, int], end: dict[str, int]) -> None:
    period = parse_query(f"SELECT a FROM s WHERE b > 1 {bounds}").args[PERIOD]
    assert isinstance(period, Period)
    assert (period.args["begin"].args, period.args["end"].args) == (begin, end)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM s BEGIN NOW END NOW",
        "SELECT a FROM s f BEGIN NOW END NOW GROUP BY a",
        "SELECT a FROM s GROUP BY a HAVING a > 1 BEGIN NOW END NOW ORDER BY a",
        "SELECT a FROM s ORDER BY a LIMIT 3 BEGIN NOW END NOW",
        "SELECT a FROM s JOIN t ON s.x = t.x BEGIN NOW END NOW",
    ],
)
def test_a_period_stands_behind_any_clause(text: str) -> None:
    assert isinstance(parse_query(text).args[PERIOD], Period)


def test_each_side_of_a_union_has_its_period() -> None:
    union = parse_query("SELECT a FROM s BEGIN NOW END NOW UNION SELECT a FROM t ORDER BY a")
    assert PERIOD in union.this.args
    assert PERIOD not in union.expression.args
    assert "order" in union.args


@pytest.mark.parametrize(
    ("item", "kind", "percentage"),
    [
        ("s SAMPLE(10)", exp.Table, "10"),
        ("s [NOW] f SAMPLE (0.5)", exp.Table, "0.5"),
        ("(SELECT a FROM s) t SAMPLE(10)", exp.Subquery, "10"),
    ],
)
def test_sample(item: str, kind: type[exp.Expression], percentage: str) -> None:
    found = parse_query(f"SELECT * FROM {item} WHERE a > 1").args["from_"].this
    assert isinstance(found, kind)
    assert found.args[STREAM_SAMPLE].name == percentage


@given(st.integers(1, LONGEST))
def test_durations_print_as_they_read(microseconds: int) -> None:
    assert window(f"[RANGE {duration_text(microseconds)}]").args["size"] == microseconds


def test_units_are_longest_first() -> None:
    sizes = list(UNITS.values())
    assert sizes == sorted(sizes, reverse=True)
