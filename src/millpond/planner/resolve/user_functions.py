"""User-defined functions in a query's tree: users' names become the names DuckDB knows."""

from __future__ import annotations

import atexit
import inspect
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import duckdb
from duckdb.func import ARROW, SPECIAL
from sqlglot import exp

from millpond.catalog.objects import FunctionDef
from millpond.planner.resolve.names import Names


def name_functions(tree: exp.Expr, catalog: Names) -> Mapping[str, FunctionDef]:
    """Replace user-defined functions' names by their names in DuckDB, in the tree itself.

    The CQL printed from the tree has the users' names again (`cql.generators`).

    Returns:
        The functions the tree calls, by their names in DuckDB.
    """
    called: dict[str, FunctionDef] = {}
    for call in tree.find_all(exp.Anonymous):
        definition = catalog.function(call.name.lower())
        if definition is not None:
            call.args["this"] = definition.inside
            called[definition.inside] = definition
    return called


#: Connections in which Python functions are created.
_holders: weakref.WeakSet[duckdb.DuckDBPyConnection] = weakref.WeakSet()


@atexit.register
def _let_go() -> None:
    """Close the connections before the interpreter frees functions: else DuckDB's bindings warn."""
    for connection in list(_holders):
        connection.close()


def create_in(
    connection: duckdb.DuckDBPyConnection, definition: FunctionDef, function: Callable[..., Any]
) -> None:
    """Create a function in a connection's database, under its name in DuckDB.

    DuckDB passes NULLs to the function, and may call it any number of times.
    """

    def call(*columns: Any) -> Any:
        return function(*columns)

    # DuckDB reads the number of arguments from the signature.
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(f"a{number}", inspect.Parameter.POSITIONAL_ONLY)
            for number in range(len(definition.arguments))
        ]
    )
    _holders.add(connection)
    connection.create_function(
        definition.inside,
        call,
        list(definition.arguments),
        definition.returns,
        type=ARROW,
        null_handling=SPECIAL,
        side_effects=False,
    )
