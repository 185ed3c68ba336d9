"""What is looked up for a row of a relation is what the query gave for the row's values."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millpond.catalog.objects import RelationDef
from millpond.cql import parse_statement
from millpond.cql.tree.statements import Delete
from millpond.model.schema import Field, Schema
from millpond.service.statements.answers_by_row import answer_by_row, look_up_row

RELATION = RelationDef(1, "r", Schema((Field('the "k"', "VARCHAR"), Field("d", "DOUBLE"))))


def look_up(answers: list[tuple[Any, Any, Any]], rows: list[tuple[Any, Any]]) -> list[Any]:
    keys, doubles, values = zip(*answers, strict=True)
    given = pa.table({"c0": keys, "c1": pa.array(doubles, pa.float64()), "answer": values})
    held = pa.table(
        {'the "k"': [k for k, _ in rows], "d": pa.array([d for _, d in rows], pa.float64())}
    )
    with duckdb.connect() as connection:
        connection.register("__answers_0", given)
        connection.register("r", held)
        sql = f"SELECT {look_up_row('__answers_0', RELATION)} FROM r"
        return [row[0] for row in connection.execute(sql).fetchall()]


def test_a_row_is_found_by_all_its_values() -> None:
    answers = [("a", 0.0, 1), ("a", -0.0, 2), (None, math.nan, 3), ("b", None, None)]
    rows = [("b", None), ("a", -0.0), (None, math.nan), ("a", 0.0), ("a", 0.0)]
    assert look_up(answers, rows) == [None, 2, 3, 1, 1]


def test_a_row_that_came_meanwhile_fails() -> None:
    with pytest.raises(duckdb.Error, match="changed meanwhile"):
        look_up([("a", 0.0, 1)], [("a", 1.0)])


def test_all_rows_are_one_query_as_of_the_instant() -> None:
    asked: list[Any] = []
    components: Any = SimpleNamespace(
        inputs=SimpleNamespace(wait=asked.append),
        registrar=SimpleNamespace(prepare_once=lambda text: text),
        invoker=SimpleNamespace(
            invoke=lambda text, at: asked.append((text, at)) or SimpleNamespace(table="t")
        ),
    )
    statement = parse_statement("DELETE FROM r WHERE d > ANY (SELECT v FROM s)")
    assert isinstance(statement, Delete)
    assert statement.where is not None
    assert answer_by_row(statement.where, RELATION, components, 7) == "t"
    columns = '"r"."the ""k""" AS c0, "r"."d" AS c1'
    text = f'SELECT {columns}, (d > ANY(SELECT v FROM s)) AS answer FROM "r"'
    assert asked == [text, (text, 7)]
