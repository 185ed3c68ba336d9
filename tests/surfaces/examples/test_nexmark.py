"""NEXMark's queries, as they are registered, followed and built upon, with DuckDB as the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millpond.model.time import format_instant, parse_instant
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

from .nexmark import QUESTIONS, STREAMS, Question, site

START = parse_instant("2002-05-01 00:00:00")


def tables() -> dict[str, pa.Table]:
    found = {}
    for name, rows in site(3_000, seed=5, start=START).items():
        table = pa.Table.from_pylist(rows)
        for i, column in enumerate(table.column_names):
            if column in ("ts", "expires"):
                table = table.set_column(i, column, table[column].cast(pa.timestamp("us")))
        found[name] = table
    return found


@pytest.fixture(scope="module")
def given() -> dict[str, pa.Table]:
    return tables()


@pytest.fixture(scope="module")
def pond(given: dict[str, pa.Table], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    """A pond with the questions, then the data in four parts of each stream."""
    store: Path = tmp_path_factory.mktemp("nexmark")
    with open_local(store) as pond:
        pond.execute(STREAMS)
        for question in QUESTIONS:
            pond.register(question.cql, name=question.name)
        for part in range(4):
            for name, table in given.items():
                size = -(-table.num_rows // 4)
                pond.ingest(name, table.slice(part * size, size))
            pond.catch_up()
        for name in given:
            pond.execute(f"HEARTBEAT {name} AT TIMESTAMP '2003-01-01 00:00:00'")
        pond.catch_up()
        yield pond


@pytest.fixture(scope="module")
def judge(given: dict[str, pa.Table]) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for name, table in given.items():
            numbered = table.append_column("seq", pa.array(range(table.num_rows)))
            connection.register(name, numbered)
        yield connection


def instants(given: dict[str, pa.Table]) -> list[int]:
    """The last element, a few in the middle, and what lies between elements and beyond them."""
    stamps = given["bid"]["ts"].cast(pa.int64()).to_pylist()
    middle = [stamps[len(stamps) * k // 7] for k in range(1, 7)]
    return [*middle, middle[2] + 1, middle[3] - 1, stamps[-1], stamps[-1] + 20 * 60_000_000]


def judged(judge: duckdb.DuckDBPyConnection, question: Question, at: int) -> Counter[Any]:
    sql = question.sql.replace("$at", f"TIMESTAMP '{format_instant(at)}'")
    return Counter(judge.execute(sql).fetchall())


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.name)
def test_invoked(pond: Pond, judge, given, question: Question) -> None:
    for at in instants(given):
        answer = pond.query(question.name).invoke(at=at)
        assert Counter(answer.rows()) == judged(judge, question, at), format_instant(at)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.name)
def test_followed(pond: Pond, judge, given, question: Question) -> None:
    """The changes up to an instant, put together, are the answer at it."""
    changes = pond.query(question.name).fetch()
    assert [c.at for c in changes] == sorted(c.at for c in changes)
    for at in instants(given):
        bag: Counter[Any] = Counter()
        for change in changes:
            if change.at <= at:
                bag[change.row] += 1 if change.sign == "+" else -1
        assert +bag == bag
        assert bag == judged(judge, question, at), format_instant(at)
