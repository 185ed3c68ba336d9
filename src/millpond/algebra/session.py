"""DuckDB as the oracle uses it: one database in memory, a session of its own for every answer.

A session's temporary tables are its own and go with it, so that sessions share nothing but the cost
of starting DuckDB. One thread, and UTC, so that what is computed depends on nothing outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import ARROW, SPECIAL


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config={"threads": "1"})


#: A user-defined function: of Arrow arrays, with the types of its arguments and of its result.
Function = tuple[Callable[..., Any], Sequence[str], str]


def session(functions: Mapping[str, Function] | None = None) -> duckdb.DuckDBPyConnection:
    """A new session, to be closed (or used with `with`).

    With functions it has a database of its own, for a function is the database's.
    """
    connection = duckdb.connect(":memory:") if functions else _database().cursor()
    connection.execute("SET TimeZone = 'UTC'")
    for name, (function, arguments, returns) in (functions or {}).items():
        connection.create_function(
            name, function, list(arguments), returns, type=ARROW, null_handling=SPECIAL
        )
    return connection


def load(
    connection: duckdb.DuckDBPyConnection, name: str, schema: pa.Schema, rows: list[dict[str, Any]]
) -> None:
    """Makes a temporary table of rows.

    A table of DuckDB's own, not a view of Arrow data: DuckDB hands predicates on Arrow data to
    Arrow, and the oracle must not depend on both meaning the same.
    """
    connection.register("__arrow", pa.Table.from_pylist(rows, schema=schema))
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM __arrow")
    connection.unregister("__arrow")
