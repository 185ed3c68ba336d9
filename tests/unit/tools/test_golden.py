"""The golden runner finds what it is there to find."""

from __future__ import annotations

import pytest
from tests.oracle.oracle_pond import OracleStore
from tests.tools import golden_table as cells
from tests.tools.golden import run_steps
from tests.tools.golden_file import MalformedGolden, RunStatement, parse_golden
from tests.tools.golden_ways import Variation, arrange

HEAD = """-- A behaviour.
CREATE STREAM s (ts TIMESTAMP, k STRING) TIMESTAMP BY ts;
CREATE QUERY q AS SELECT k FROM s [ROWS 2];
feed s:
  00:00:01 | a
  00:00:02 | NULL
  00:00:03 | ''
"""


def run(tail: str, variation: Variation | None = None) -> None:
    run_steps(parse_golden(HEAD + tail), OracleStore(), variation or Variation())


def test_a_right_answer_passes() -> None:
    run("expect q as of 00:00:03, not final:\n  k\n  ''\n  NULL\n")


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        ("expect q:\n  k\n  a\n  ''\n", "- a"),
        ("expect q:\n  k\n  ''\n", "+ NULL"),
        ("expect q:\n  name\n  ''\n  NULL\n", "columns"),
        ("expect q at 00:00:01, not final:\n  k\n  a\n", "final = True"),
        ("expect q as of 00:00:04:\n  k\n  ''\n  NULL\n", "as of"),
        ("feed s:\n  00:00:09 | z => rejected\n", "0 rejected"),
        ("epoch s:\n  00:00:02 | z\n", "1 rejected"),
        ("SELECT k FROM s ORDER BY ts;\n  k\n  NULL\n  a\n  ''\n", "in this order"),
    ],
)
def test_a_wrong_answer_fails_and_says_how(tail: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words.replace("+", r"\+")) as failure:
        run(tail)
    assert "golden.cqt:8" in str(failure.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CREATE STREAM s (v INTEGER);", "begins with a comment"),
        ("-- b\nSELECT 1 AS one", "semicolon"),
        ("-- b\nexpect q:\n  a | b\n  1\n", "1 cells under 2 columns"),
        ("-- b\nexpect q sometime:\n  a\n", "cannot be read"),
    ],
)
def test_a_malformed_golden_says_where(text: str, words: str) -> None:
    with pytest.raises(MalformedGolden, match=words):
        parse_golden(text)


def test_markers_belong_to_the_line_above_them() -> None:
    golden = parse_golden("-- b\nSELECT a\nFROM nope;\n     ^^^^\n  error CQL-201: nope\n")
    (step,) = golden.steps
    assert isinstance(step, RunStatement)
    assert step.text == "SELECT a\nFROM nope;"
    assert step.failure is not None
    assert step.failure.snippet == "FROM nope\n     ^^^^"


def test_orders_move_registrations_only() -> None:
    steps = parse_golden(HEAD + "feed s:\n  00:00:04 | b\nexpect q:\n  k\n").steps
    shapes = {
        order: [type(step).__name__ for step in arrange(steps, order)]
        for order in ("written", "queries first", "data first")
    }
    run, feed = "RunStatement", "FeedRows"
    assert shapes["written"] == shapes["queries first"] == [run, run, feed, feed, "Expect"]
    assert shapes["data first"] == [run, feed, feed, run, "Expect"]


def test_cells_are_read_and_shown_alike() -> None:
    for value in (None, "", "NULL", "a|b", " a", "it's", "'quoted'", "@x", "plain"):
        shown = cells.show_cell(value)
        assert cells.parse_cell(shown, "VARCHAR") == value
        assert cells.split_cells(f"{shown} | x") == [shown, "x"]


def test_floats_may_differ_in_their_last_digits_only() -> None:
    assert cells.same_cell("0.30000000000000004", "0.3")
    assert not cells.same_cell("0.31", "0.3")
    assert not cells.same_cell("3", "3.0")
    assert not cells.same_cell("nan", "0.3")
