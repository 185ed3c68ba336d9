"""DuckDB sessions for the oracle: one database in memory, a new session for every answer.

A session's temporary tables belong to the session alone and end with it, so sessions share no data,
only the cost of starting DuckDB. A session has one thread and UTC, so that answers do not depend on
the machine.
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
    """Open a new session; the caller closes it (or uses it with `with`).

    With functions the session gets its own database, because DuckDB keeps functions by database.
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
    """Make a temporary table of rows.

    The table is DuckDB's, not a view of Arrow data: DuckDB lets Arrow evaluate predicates on Arrow
    data, and the oracle must not depend on Arrow and DuckDB meaning the same.
    """
    connection.register("__arrow", pa.Table.from_pylist(rows, schema=schema))
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM __arrow")
    connection.unregister("__arrow")
