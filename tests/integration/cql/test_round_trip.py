"""What is printed reads as what was meant, over a corpus of every form of every statement."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlglot import exp

from millpond.cql import parse_query, parse_script, parse_statement, print_query, print_statement
from millpond.cql.parse.requests import SHOWN
from millpond.cql.print.dialect import RelationToStream, StreamWindow, to_duckdb
from millpond.cql.print.printer import meaning
from millpond.cql.tree import statements
from millpond.cql.tree.nodes import BY_ATTRIBUTES, PERIOD, STREAM_SAMPLE, SummaryEstimate
from millpond.cql.tree.statements import Ask, Show

CORPUS = (Path(__file__).parent / "corpus.cql").read_text(encoding="utf-8")
TEXTS = [statement.text for statement in parse_script(CORPUS)]


def test_the_corpus_is_large() -> None:
    assert len(TEXTS) >= 80
    assert len(set(TEXTS)) == len(TEXTS)


def test_the_corpus_has_every_statement_and_all_that_can_be_shown() -> None:
    parsed = parse_script(CORPUS)
    kinds = {type(statement) for statement in parsed}
    assert kinds == set(statements.Statement.__subclasses__())
    shown = {statement.what.upper() for statement in parsed if isinstance(statement, Show)}
    assert shown == set(SHOWN)


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(text: str) -> None:
    statement = parse_statement(text)
    printed = print_statement(statement)
    again = parse_statement(printed)
    assert meaning(again) == meaning(statement)
    assert print_statement(again) == printed


@pytest.mark.parametrize("constants", [["1", "-2", "3.5", "1e3"], ["'a'", "'it''s'"], ["7"]])
def test_a_long_list_is_one_value_and_prints_as_it_was_written(constants: list[str]) -> None:
    listed = ", ".join(constants * 600)
    text = f"SELECT a FROM s WHERE b IN ({listed}) AND c IN ({', '.join(constants)})"
    query = parse_query(text)
    assert print_query(query) == text
    assert parse_query(print_query(query)) == query
    assert parse_query(text.replace(listed, listed + ", 8")) != query
    long, short = query.find_all(exp.In)
    assert long.copy().expressions is long.expressions
    assert short.copy().expressions is not short.expressions
    assert parse_query(f"SELECT a FROM s WHERE b IN ({listed}, 1 + 1)").find(exp.Add) is not None


def _lower(text: str) -> str | None:
    """A printed text in lower case outside its strings, unless that changes more than keywords."""
    parts = text.split("'")
    if '"' in text:
        return None
    return "'".join(part if i % 2 else part.lower() for i, part in enumerate(parts))


PRINTED = [print_statement(parse_statement(text)) for text in TEXTS]


@pytest.mark.parametrize("text", [text for text in PRINTED if _lower(text)])
def test_keywords_have_no_case(text: str) -> None:
    lower = _lower(text)
    assert lower is not None
    assert print_statement(parse_statement(lower)).lower() == text.lower()


def _plain(text: str) -> exp.Expression | None:
    statement = parse_statement(text)
    ours_only = (StreamWindow, RelationToStream, SummaryEstimate)
    if not isinstance(statement, Ask) or statement.query.find(*ours_only):
        return None
    # VALUES, windows of rows and relations combined bare are read as what they stand for.
    if re.search(r"->|VALUES|TUMBLE|HOP\(|^\(?a UNION", text):
        return None
    # What LIMIT and DISTINCT ON leave is made to depend on the rows alone: see below.
    ours = (PERIOD, STREAM_SAMPLE, BY_ATTRIBUTES, "limit", "offset")
    if any(node.args.get("on") for node in statement.query.find_all(exp.Distinct)):
        return None
    if any(join.method == "ASOF" for join in statement.query.find_all(exp.Join)):
        return None
    if any(node.args.get(key) for node in statement.query.walk() for key in ours):
        return None
    return statement.query


PLAIN = [text for text in TEXTS if _plain(text) is not None]


@pytest.mark.parametrize("text", PLAIN)
def test_duckdb_reads_what_it_is_given_as_what_was_written(text: str) -> None:
    query = parse_query(text)
    with duckdb.connect() as connection:
        written, given = (_tree(connection, t) for t in (text, to_duckdb(query)))
    assert written == given


def _tree(connection: duckdb.DuckDBPyConnection, text: str) -> Any:
    row = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchone()
    assert row is not None
    tree = json.loads(row[0])
    assert not tree["error"], tree
    return _canonical(tree)


_NEGATED = {
    "OPERATOR_IS_NOT_NULL": "OPERATOR_IS_NULL",
    "COMPARE_NOT_IN": "COMPARE_IN",
    "COMPARE_NOT_BETWEEN": "COMPARE_BETWEEN",
}
_FORMS = {"query_location", "query_location_length", "is_operator", "qualified_name", "kind"}
_SAME = {
    "^": "pow",
    "**": "pow",
    "STRING": "VARCHAR",
    "TEXT": "VARCHAR",
    "ORDER_DEFAULT": "NULLS LAST",
    ".5": "0.5",
    "1_000_000": "1000000",
}


def _canonical(tree: Any) -> Any:
    """A tree without the differences of spelling that mean nothing to DuckDB."""
    if isinstance(tree, list):
        return [_canonical(item) for item in tree]
    if not isinstance(tree, dict):
        return _SAME.get(tree, tree) if isinstance(tree, str) else tree
    node = {k: _canonical(v) for k, v in tree.items() if k not in _FORMS and v is not None}
    if node.get("function_name") == "+" and len(node["arguments"]) == 1:
        return node["arguments"][0]["expression"]
    kind = node.get("type")
    if kind == "OPERATOR_NOT" and len(node["children"]) == 1:
        return {"not": node["children"][0]}
    if isinstance(kind, str) and kind in _NEGATED:
        return {"not": {**node, "type": _NEGATED[kind]}}
    return node


def test_words_that_duckdb_reserves_are_quoted_for_it_alone() -> None:
    query = parse_query("SELECT end, rows, timestamp FROM s WHERE end > 1")
    assert print_query(query) == "SELECT end, rows, timestamp FROM s WHERE end > 1"
    assert to_duckdb(query) == 'SELECT "end", rows, timestamp FROM s WHERE "end" > 1'


def test_scalar_expressions_print_alone() -> None:
    where = parse_query("SELECT a FROM s WHERE a > 1 AND b NOT IN ('x')").args["where"].this
    assert to_duckdb(where) == "a > 1 AND b NOT IN ('x')"


@pytest.mark.parametrize(
    ("text", "ordered"),
    [
        ("SELECT a, b FROM s ORDER BY c LIMIT 2", "ORDER BY c, 1, 2 LIMIT 2"),
        ("SELECT a FROM s LIMIT 2", "ORDER BY ALL LIMIT 2"),
        ("SELECT a FROM s OFFSET 2", "ORDER BY ALL OFFSET 2"),
        ("SELECT * FROM s ORDER BY a DESC LIMIT 2", "ORDER BY a DESC, columns(*) LIMIT 2"),
        ("SELECT a, t.*, 1, b + 1 FROM t ORDER BY c LIMIT 2", "c, 1, columns(t.*), b + 1 LIMIT 2"),
        ("SELECT a FROM s UNION SELECT a FROM t ORDER BY a LIMIT 1", "ORDER BY a, 1 LIMIT 1"),
        ("SELECT a FROM s ORDER BY b", "ORDER BY b"),
    ],
)
def test_rows_with_equal_keys_are_ordered_where_a_limit_cuts(text: str, ordered: str) -> None:
    assert to_duckdb(parse_query(text)).endswith(ordered)
    assert print_query(parse_query(text)) == text
