"""Statements of a transaction that are noted ahead do what they do one by one."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from millpond.state.database.database import NotedStatements, Transaction

STATEMENTS = [
    "INSERT INTO t VALUES (?, ?)",
    "INSERT OR REPLACE INTO u VALUES (?, ?)",
    "INSERT INTO u VALUES (?, ?) ON CONFLICT DO NOTHING",
    "INSERT INTO t (a, b) VALUES (?, ?)",
    "INSERT INTO t VALUES (?, ? || '!')",
    "INSERT INTO t SELECT ?, max(a) || ? FROM t",
    "INSERT INTO t SELECT ?, b FROM u WHERE a = ?",
    "UPDATE t SET b = ? WHERE a = ?",
    "DELETE FROM t WHERE a = ? OR b = ?",
]
COUNTS = [1, 2, 49, 50, 51, 100, 149, 1_234]


def make_connection() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE t (a INTEGER, b ANY)")
    connection.execute("CREATE TABLE u (a INTEGER PRIMARY KEY, b ANY)")
    connection.execute("INSERT INTO t VALUES (7, 'x')")
    return connection


def read(connection: sqlite3.Connection) -> list[list[Any]]:
    return [connection.execute(f"SELECT rowid, * FROM {table}").fetchall() for table in "tu"]


@pytest.mark.parametrize("sql", STATEMENTS)
@pytest.mark.parametrize("count", COUNTS)
def test_rows_are_those_of_one_statement_each(sql: str, count: int) -> None:
    rows = [(n * 7 % 60, [f"é{n}", None, n, b"\0"][n % 4]) for n in range(count)]
    noted = NotedStatements()
    noted.executemany(sql, rows)
    noted.execute("INSERT INTO t VALUES (?, ?)", (1, "behind"))
    together, alone = make_connection(), make_connection()
    Transaction(together).execute_whole(noted.encode())
    for row in rows:
        alone.execute(sql, row)
    alone.execute("INSERT INTO t VALUES (1, 'behind')")
    assert read(together) == read(alone)


def test_very_many_rows_are_few_statements() -> None:
    """At each statement others may take their turn, who keep the database waiting."""
    connection = make_connection()
    executed: list[str] = []
    connection.set_trace_callback(executed.append)
    noted = NotedStatements()
    noted.executemany("INSERT INTO t VALUES (?, ?)", [(n, "x") for n in range(10_010)])
    Transaction(connection).execute_whole(noted.encode())
    assert 200 <= len(executed) <= 220


def test_a_row_that_cannot_be_inserted_is_an_error() -> None:
    connection = make_connection()
    noted = NotedStatements()
    noted.executemany("INSERT INTO u VALUES (?, ?)", [(n % 120, "x") for n in range(130)])
    with pytest.raises(sqlite3.IntegrityError):
        Transaction(connection).execute_whole(noted.encode())
