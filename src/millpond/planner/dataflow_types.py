"""Types of what a dataflow computes: DuckDB answers over empty tables and says what the columns
are."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millpond.planner.typecheck import session


def answer_types(
    sql: str, tables: Sequence[tuple[str, Sequence[str]]], schemas: Sequence[pa.Schema]
) -> tuple[pa.DataType, ...]:
    """The types of a query's columns.

    Args:
        sql: The query.
        tables: The name of each of its tables, and its columns' names.
        schemas: The tables' columns, by position.
    """
    connection = session()
    try:
        for (name, columns), schema in zip(tables, schemas, strict=True):
            empty = schema.empty_table().rename_columns(list(columns))
            connection.register("given", empty)
            connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM given")
            connection.unregister("given")
        answer = connection.sql(sql).to_arrow_table()
    finally:
        connection.close()
    return tuple(answer.schema.types)


def expression_types(sqls: Sequence[str], schema: pa.Schema) -> tuple[pa.DataType, ...]:
    """The types of expressions over the columns of an edge."""
    if not sqls:
        return ()
    items = ", ".join(f"({sql}\n) AS v{i}" for i, sql in enumerate(sqls))
    return answer_types(f"SELECT {items} FROM edge_rows", [("edge_rows", schema.names)], [schema])
