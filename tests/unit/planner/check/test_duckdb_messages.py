"""DuckDB's objections in our words: of the DuckDB that is installed, not of remembered texts."""

from __future__ import annotations

import duckdb
import pytest

from millpond.planner.check.duckdb_messages import TranslatedMessage, translate_message

TABLES = "CREATE TABLE t (k VARCHAR, v INTEGER, d DATE, ts TIMESTAMP); CREATE TABLE u (k VARCHAR)"


def translate(query: str) -> TranslatedMessage:
    with duckdb.connect() as connection:
        connection.execute(TABLES)
        with pytest.raises(duckdb.Error) as raised:
            connection.execute(query).fetchall()
    return translate_message(str(raised.value))


@pytest.mark.parametrize(
    ("query", "code", "primary"),
    [
        ("SELECT nothing FROM t", "CQL-202", 'no column "nothing"'),
        ("SELECT t.nothing FROM t", "CQL-202", 'no column "nothing"'),
        ("SELECT k FROM t, u", "CQL-203", 'column "k" is ambiguous'),
        ("SELECT k, count(*) FROM t", "CQL-219", 'column "k" is neither grouped nor aggregated'),
        ("SELECT * FROM t WHERE count(*) > 1", "CQL-206", "aggregate in WHERE"),
        ("SELECT CAST(v AS NO_TYPE) FROM t", "CQL-210", 'no type "NO_TYPE"'),
        (
            "SELECT * FROM t WHERE v = (SELECT 1, 2)",
            "CQL-219",
            "subquery has 2 columns where 1 can stand",
        ),
        (
            "SELECT * FROM t WHERE d > TIME '10:00'",
            "CQL-205",
            "DATE cannot be compared with TIME",
        ),
        (
            "SELECT * FROM t WHERE d > v",
            "CQL-205",
            "DATE cannot be compared with INTEGER",
        ),
        ("SELECT d * d FROM t", "CQL-205", "operator * does not apply to DATE and DATE"),
        ("SELECT d LIKE v FROM t", "CQL-205", "operator LIKE does not apply to DATE and INTEGER"),
        ("SELECT sqrt(ts) FROM t", "CQL-205", 'function "sqrt" does not take (TIMESTAMP)'),
        ("SELECT sqrt() FROM t", "CQL-205", 'function "sqrt" needs arguments'),
    ],
)
def test_an_objection_is_translated(query: str, code: str, primary: str) -> None:
    told = translate(query)
    assert (told.code, told.primary) == (code, primary)


def test_a_column_is_named_so_that_its_place_can_be_found() -> None:
    assert translate("SELECT nothing FROM t").column == "nothing"
    assert translate("SELECT k FROM t, u").column == "k"
    assert translate("SELECT v, count(*) FROM t").column == "v"
    assert translate("SELECT sqrt(ts) FROM t").column is None


def test_an_instant_compared_with_a_number_is_told_how_instants_are_written() -> None:
    assert "epoch_ms" in (translate("SELECT * FROM t WHERE ts > 1735639200000").hint or "")
    assert "epoch_ms" in (translate("SELECT * FROM t WHERE 5 < d").hint or "")
    assert "CAST" in (translate("SELECT * FROM t WHERE d > TIME '10:00'").hint or "")


def test_the_forms_of_a_function_are_said() -> None:
    detail = translate("SELECT sqrt(ts) FROM t").detail or ""
    assert detail.startswith("It takes: sqrt(")
    assert "col0" not in detail


def test_an_unknown_objection_is_kept_without_its_prefix_and_place() -> None:
    told = translate_message("Binder Error: Something new happened!\n\nLINE 1: SELECT …")
    assert (told.code, told.primary) == ("CQL-219", "something new happened")
