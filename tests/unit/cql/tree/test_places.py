"""Where the parts of a tree stand in its text."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millpond.cql import parse_query, parse_script, span_of
from millpond.cql.print.dialect import Period, RelationToStream, StreamWindow
from millpond.cql.tree.statements import Ask

TEXT = (
    "SELECT f.carrier, avg(f.delay + 1) AS late, count(*) "
    "FROM flights [RANGE 1 HOUR WHERE x > 1] f "
    "WHERE f.origin IN ('JFK', 'LGA') AND f.delay BETWEEN 1 AND 2.5 GROUP BY f.carrier"
)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (exp.Avg, "avg(f.delay + 1)"),
        (exp.Count, "count(*)"),
        (exp.Add, "f.delay + 1"),
        (exp.Alias, "avg(f.delay + 1) AS late"),
        (exp.In, "f.origin IN ('JFK', 'LGA'"),
        (exp.Between, "f.delay BETWEEN 1 AND 2.5"),
        (StreamWindow, "[RANGE 1 HOUR WHERE x > 1]"),
        (exp.Table, "flights [RANGE 1 HOUR WHERE x > 1] f"),
        (exp.Column, "f.carrier"),
        (exp.GT, "x > 1"),
    ],
)
def test_spans(kind: type[exp.Expression], text: str) -> None:
    node = parse_query(TEXT).find(kind)
    assert node is not None
    span = span_of(node)
    assert span is not None
    assert TEXT[span.start : span.end] == text


def test_nodes_of_ours_cover_their_clauses() -> None:
    text = "DSTREAM(SELECT a FROM s BEGIN NOW END NOW)"
    query = parse_query(text)
    outer, period = span_of(query), span_of(query.find(Period) or query)
    assert isinstance(query, RelationToStream)
    assert outer is not None
    assert period is not None
    assert text[outer.start : outer.end] == text
    assert text[period.start : period.end] == "BEGIN NOW END NOW"


def test_a_made_node_has_no_place() -> None:
    assert span_of(exp.column("a")) is None


def test_places_in_a_script_are_the_statements() -> None:
    script = "SELECT a FROM s; SELECT b1 FROM s"
    second = parse_script(script)[1]
    assert isinstance(second, Ask)
    column = second.query.find(exp.Column)
    assert column is not None
    span = span_of(column)
    assert span is not None
    assert second.text[span.start : span.end] == "b1"


def test_copies_keep_their_places() -> None:
    query = parse_query(TEXT)
    assert span_of(query.copy()) == span_of(query)
