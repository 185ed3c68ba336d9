"""Definitions as rows of the database: what is written is what is read."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from millpond.catalog.objects import (
    Derived,
    FunctionDef,
    QueryDef,
    RelationDef,
    SourceDef,
    StreamDef,
)
from millpond.model.schema import Field, Schema
from millpond.state.database_tables import (
    add_tables,
    create_tables,
    definition_of,
    definition_row,
    fold_row,
)

SCHEMA = Schema((Field("ts", "TIMESTAMP"), Field("v", "INTEGER")))
DEFINITIONS: list[Any] = [
    StreamDef(1, "s", SCHEMA, "ts", delay=5, idle_after=7, retain=9, ahead=3, text="CREATE …"),
    StreamDef(2, "f", SCHEMA, source=SourceDef("csv", {"path": "x"}, within="/data"), resets=2),
    StreamDef(3, "d", SCHEMA, derived=Derived("SELECT 1", 8, shared_log=4, apart_from=6)),
    StreamDef(4, "o", SCHEMA, overload="shed random", retain_rows=10),
    RelationDef(5, "r", SCHEMA, primary_key=("v",), non_retroactive=True),
    RelationDef(6, "w", SCHEMA, view="SELECT 1"),
    QueryDef(7, "q", "SELECT 1", {"weight": 2.0}, 3, 4, suspended="It failed.", changes_after=5),
    FunctionDef(8, "f", "f_1", ("BIGINT",), "BIGINT", None, 3.0, b"code"),
]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda d: f"{type(d).__name__} {d.name}")
def test_a_definition_is_read_as_it_was_written(definition: Any) -> None:
    id, kind, text = definition_row(definition)
    assert id == definition.id
    assert definition_of(id, kind, text) == definition


def test_tables_that_came_later_are_added_once() -> None:
    connection = sqlite3.connect(":memory:")
    try:
        create_tables(connection, "3f2a9c")
        add_tables(connection)
        add_tables(connection)
        assert connection.execute("SELECT * FROM fold").fetchall() == [fold_row("3f2a9c", 0)]
        assert connection.execute("SELECT count(*) FROM partition").fetchall() == [(0,)]
    finally:
        connection.close()


def test_the_row_of_the_fold_has_a_checksum_of_both() -> None:
    sums = {fold_row("a", 1)[2], fold_row("a", 2)[2], fold_row("b", 1)[2]}
    assert len(sums) == 3
