"""Types of a dataflow's columns: DuckDB binds the SQL over empty tables and gives the types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from millpond.confined.growth import can_expand
from millpond.confined.processes import bind_confined
from millpond.planner.check.typecheck import declared_functions, open_session


def find_answer_types(
    sql: str, tables: Sequence[tuple[str, Sequence[str]]], schemas: Sequence[pa.Schema]
) -> tuple[pa.DataType, ...]:
    """Find the types of a query's columns; arguments as of `find_answer_columns`."""
    return tuple(type_ for _, type_ in find_answer_columns(sql, tables, schemas))


def find_answer_columns(
    sql: str, tables: Sequence[tuple[str, Sequence[str]]], schemas: Sequence[pa.Schema]
) -> list[tuple[str, pa.DataType]]:
    """Find a query's columns: names as DuckDB gives them, and types.

    Args:
        sql: The query.
        tables: The name of each of its tables, and its columns' names.
        schemas: The tables' columns, by position.
    """
    empty = {
        name: schema.empty_table().rename_columns(list(columns))
        for (name, columns), schema in zip(tables, schemas, strict=True)
    }
    if can_expand(sql):  # binding evaluates constant expressions
        found = bind_confined(sql, tables=empty, definitions=declared_functions(sql))
        return [(name, _arrow_type(type_)) for name, type_ in found]
    connection = open_session()
    try:
        for name, table in empty.items():
            connection.register("given", table)
            connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM given")
            connection.unregister("given")
        # Bound, not run: nothing of the query is evaluated, and no function in it is called.
        answer = connection.sql(sql)
        found = [(n, str(t)) for n, t in zip(answer.columns, answer.types, strict=True)]
    finally:
        connection.close()
    return [(name, _arrow_type(type_)) for name, type_ in found]


@lru_cache(maxsize=1024)
def _arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type in which DuckDB gives values of a type."""
    connection = open_session()
    try:
        return connection.sql(f"SELECT CAST(NULL AS {name}) AS v").to_arrow_table().schema.types[0]
    finally:
        connection.close()


@lru_cache(maxsize=4096)
def _edge_types(sqls: tuple[str, ...], schema: pa.Schema) -> tuple[pa.DataType, ...]:
    items = ", ".join(f"({sql}\n) AS v{i}" for i, sql in enumerate(sqls))
    return find_answer_types(
        f"SELECT {items} FROM edge_rows", [("edge_rows", schema.names)], [schema]
    )


@lru_cache(maxsize=4096)
def _type_name(type_: pa.DataType) -> str:
    connection = open_session()
    try:
        connection.register("given", pa.table({"c0": pa.array([], type_)}))
        return str(connection.sql("SELECT * FROM given").types[0])
    finally:
        connection.close()


def type_names(types: Sequence[pa.DataType]) -> list[str]:
    """Return DuckDB's names of types."""
    return [_type_name(type_) for type_ in types]


def find_expression_types(sqls: Sequence[str], schema: pa.Schema) -> tuple[pa.DataType, ...]:
    """Find the types of expressions over the columns of an edge."""
    if not sqls:
        return ()
    return _edge_types(tuple(sqls), schema)
