"""Queries inside UPDATE and DELETE become what they are answered with, as of an instant."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millpond.cql import parse_statement, print_query
from millpond.cql.tree.statements import Delete
from millpond.errors import MillpondError
from millpond.service.statements.subqueries import answer_subqueries, reads_the_row


class Answers:
    """Components that answer every query with one table, and note what they were asked."""

    def __init__(self, *values: Any) -> None:
        self.asked: list[tuple[str, int]] = []
        self._table = pa.table({"x": pa.array(values, pa.string())})
        self.registrar = SimpleNamespace(prepare_once=self._prepare, bind=self._prepare)
        self.invoker = SimpleNamespace(invoke=self._invoke)
        self.residual = SimpleNamespace(evaluate=self._evaluate)
        self.inputs = SimpleNamespace(wait=lambda text: self.asked.append((text, -1)))

    def _prepare(self, text: str) -> str:
        if "r.x" in text:
            raise MillpondError("CQL-202", 'no column "x"')
        return text

    def _invoke(self, text: str, at: int) -> Any:
        self.asked.append((text, at))
        return SimpleNamespace(table=self._table)

    @staticmethod
    def _evaluate(sql: str, tables: dict[str, pa.Table]) -> pa.Table:
        with duckdb.connect() as connection:
            for name, table in tables.items():
                connection.register(name, table)
            return connection.sql(f"{sql} ORDER BY v").to_arrow_table()


def answered(where: str, answers: Answers) -> str:
    statement = parse_statement(f"DELETE FROM r WHERE {where}")
    assert isinstance(statement, Delete)
    assert statement.where is not None
    components: Any = answers
    return print_query(answer_subqueries(statement.where, components, 7, statement.text))


@pytest.mark.parametrize(
    ("where", "values", "expected"),
    [
        (
            "k IN (SELECT k FROM s)",
            ("a", "it's"),
            "k IN (CAST('a' AS VARCHAR), CAST('it''s' AS VARCHAR))",
        ),
        ("k NOT IN (SELECT k FROM s)", (), "NOT FALSE"),
        ("k IN (SELECT k FROM s)", ("a", None), "k IN (CAST('a' AS VARCHAR), NULL)"),
        ("EXISTS (SELECT 1 FROM s) AND k = 'b'", ("a",), "TRUE AND k = 'b'"),
        ("NOT EXISTS (SELECT 1 FROM s)", (), "NOT FALSE"),
        ("k > (SELECT max(k) FROM s)", ("a",), "k > (CAST('a' AS VARCHAR))"),
        ("k > (SELECT max(k) FROM s)", (), "k > (NULL)"),
    ],
)
def test_the_answer_stands_for_the_query(
    where: str, values: tuple[str | None, ...], expected: str
) -> None:
    answers = Answers(*values)
    assert answered(where, answers) == expected
    assert [at for _, at in answers.asked] == [-1, 7]


@pytest.mark.parametrize(
    ("where", "code", "words"),
    [
        ("k = (SELECT k FROM s)", "POND-404", "gives 2 rows"),
    ],
)
def test_what_has_no_answer_is_refused(where: str, code: str, words: str) -> None:
    with pytest.raises(MillpondError) as raised:
        answered(where, Answers("a", "b"))
    assert raised.value.code == code
    assert words in raised.value.primary
    assert raised.value.span is not None


@pytest.mark.parametrize(
    ("where", "by_row"),
    [
        ("k IN (SELECT k FROM s)", False),
        ("EXISTS (SELECT 1 FROM s) AND v > (SELECT max(v) FROM s)", False),
        ("k IN (SELECT r.x FROM s)", True),
        ("k IN (SELECT k FROM s) OR EXISTS (SELECT r.x FROM s)", True),
        ("v > (SELECT r.x FROM s)", True),
        ("k = ANY (SELECT k FROM s)", True),
        ("k >= ALL (SELECT k FROM s)", True),
    ],
)
def test_what_is_answered_row_by_row(where: str, by_row: bool) -> None:
    statement = parse_statement(f"DELETE FROM r WHERE {where}")
    assert isinstance(statement, Delete)
    assert statement.where is not None
    components: Any = Answers()
    assert reads_the_row(statement.where, components) is by_row
