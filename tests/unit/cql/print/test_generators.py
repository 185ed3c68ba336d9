"""Trees printed as CQL and as SQL for DuckDB."""

from __future__ import annotations

import pytest

from millpond.cql import parse_query, print_query, to_duckdb


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a NOT IN (1, 2) FROM s",
        "SELECT NOT a LIKE 'x' FROM s",
        "SELECT a IS NOT NULL, a NOT BETWEEN 1 AND 2 FROM s",
        "SELECT a ^ 2, a & 1, a << 1, ~ a FROM s",
        "SELECT [1, 2], EXTRACT(year FROM ts) FROM s",
        "SELECT first_value(a IGNORE NULLS) OVER (ORDER BY b) FROM s",
        "SELECT CAST(a AS VARCHAR)::BIGINT FROM s",
    ],
)
def test_what_is_printed_means_what_was_read(text: str) -> None:
    printed = print_query(parse_query(text))
    assert print_query(parse_query(printed)) == printed
    assert parse_query(printed) == parse_query(text)


def test_rows_that_a_limit_keeps_depend_on_the_rows_alone() -> None:
    cut = to_duckdb(parse_query("SELECT a, b FROM s ORDER BY a LIMIT 3"))
    whole = to_duckdb(parse_query("SELECT a, b FROM s ORDER BY a"))
    assert cut.count("ORDER BY") == whole.count("ORDER BY") == 1
    assert len(cut) - len(" LIMIT 3") > len(whole)
    assert "ORDER BY" in to_duckdb(parse_query("SELECT a, b FROM s LIMIT 3"))
    assert "ORDER BY" not in print_query(parse_query("SELECT a, b FROM s LIMIT 3"))


def test_names_that_are_words_of_duckdb_are_quoted() -> None:
    assert '"pivot"' in to_duckdb(parse_query('SELECT "pivot" FROM s'))
