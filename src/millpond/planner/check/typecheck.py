"""Types: DuckDB binds the residual over empty slices and gives the columns' types.

DuckDB also evaluates queries, so SQL that it refuses here would fail there, and the types that it
gives here are the answer's types. SQL on the connection cannot reach the session, the machine or
its files.

What DuckDB does here ends with the request it is done for. DuckDB notices that while it evaluates
and between the steps of planning; how long one step takes is bounded by the limits of a statement.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import duckdb

from millpond.catalog.objects import FunctionDef
from millpond.confined.deadline import deadlines
from millpond.confined.growth import can_expand
from millpond.confined.processes import bind_confined
from millpond.errors import MillpondError
from millpond.model.casts import try_cast_text
from millpond.model.duckdb_words import quote_name
from millpond.model.function_names import names_inside
from millpond.model.schema import Field
from millpond.planner.check.casts import check_casts
from millpond.planner.resolve.duckdb_tree import syntax_tree
from millpond.planner.resolve.estimates import ESTIMATE
from millpond.planner.resolve.scope import Leaf
from millpond.planner.resolve.user_functions import create_in
from millpond.work import check_work, current_work

#: A result's columns: names as DuckDB gives them, and types.
Columns = list[tuple[str, str]]


class TypeCheck:
    """Binds SQL over the empty slices of one query's leaves; a context manager.

    Attributes:
        functions: The user-defined functions the SQL may call, by their names in DuckDB.
    """

    def __init__(
        self, leaves: Iterable[Leaf], functions: Mapping[str, FunctionDef] | None = None
    ) -> None:
        self.functions = functions or {}
        self._session = open_session()
        self._schema: list[str] = []
        for function in self.functions.values():
            _declare(function)
        for leaf in leaves:
            schema = leaf.definition.schema
            hidden = [(name, Field(name, "BIGINT")) for name in leaf.hidden]
            self._create(leaf.table, [*((c, schema.find(c)) for c in leaf.columns()), *hidden])
            if leaf.before is not None:
                self._create(f"{leaf.table}_stream", [(f.name, f) for f in schema.fields])

    def _create(self, table: str, fields: Iterable[tuple[str, object]]) -> None:
        columns = ", ".join(f"{quote_name(n)} {getattr(f, 'query_type', '')}" for n, f in fields)
        self._schema.append(f"CREATE TEMP TABLE {table} ({columns})")
        self._session.execute(self._schema[-1])

    @contextmanager
    def _interrupted(self) -> Iterator[None]:
        """Interrupt what DuckDB does in the block when the request is to end."""
        work = current_work()
        if work is None:
            yield
            return
        try:
            with deadlines.within(math.inf, self._session.interrupt, work):
                yield
        except duckdb.InterruptException:
            raise work.error() from None
        work.check()

    def __enter__(self) -> TypeCheck:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def columns(self, sql: str) -> Columns:
        """Find the columns of a query.

        Raises:
            duckdb.Error: the query cannot be bound.
            MillpondError: CQL-224, an estimate stands where no summary is; POND-405, the request
                is to end.
        """
        check_work()
        if can_expand(sql):  # binding evaluates constant expressions
            if any(name in sql for name in self.functions if name.startswith(ESTIMATE)):
                raise MillpondError(
                    "CQL-224",
                    "an estimate beside an expression whose value may be very large",
                    detail="Such expressions are evaluated in a process that has no summaries.",
                    hint="Compute the two in queries of their own.",
                )
            definitions = declared_functions(sql)
            return bind_confined(sql, schema=self._schema, definitions=definitions)
        # DESCRIBE would name `delay AS "Delay"` as the column is declared; the answer says "Delay".
        with self._interrupted():
            relation = self._session.sql(sql)
        return [(n, str(t)) for n, t in zip(relation.columns, relation.types, strict=True)]

    def check_casts(self, sql: str) -> None:
        """Refuse a query with a cast that DuckDB binds, and that fails whatever the value is.

        A query whose constants may be very large is not looked at.

        Raises:
            duckdb.Error: the query has such a cast.
            MillpondError: POND-405, the request is to end.
        """
        check_work()
        if not can_expand(sql):
            with self._interrupted():
                check_casts(self._session, sql)

    def syntax_tree(self, sql: str) -> dict[str, object]:
        """Make DuckDB's syntax tree of a query.

        Raises:
            ValueError: DuckDB cannot parse it.
        """
        check_work()
        return syntax_tree(self._session, sql)

    def test_casts(self, casts: list[tuple[str, str]]) -> list[bool]:
        """Test, for each (SQL literal, type), whether the cast gives a value."""
        return self._flags([f"TRY_CAST({value} AS {type_}) IS NOT NULL" for value, type_ in casts])

    def test_zones(self, instants: list[str]) -> list[bool]:
        """Test whether each SQL literal is the same TIMESTAMP with its time zone and without."""
        return self._flags(
            [
                f"TRY_CAST({text} AS TIMESTAMP)"
                f" IS NOT DISTINCT FROM {try_cast_text(text, 'TIMESTAMP')}"
                for text in instants
            ]
        )

    def _flags(self, conditions: list[str]) -> list[bool]:
        if not conditions:
            return []
        items = ", ".join(conditions)
        with self._interrupted():
            row = self._session.execute(f"SELECT to_json([{items}])").fetchone()
        assert row is not None
        flags: list[bool] = json.loads(row[0])
        return flags


_lock = threading.Lock()
#: The user-defined functions the database knows, by their names in DuckDB.
_declared: dict[str, FunctionDef] = {}


def _never_called(*columns: object) -> None:
    raise AssertionError("types are checked without values")


def _declare(function: FunctionDef) -> None:
    """Give the database a function's signature; the database never calls the function."""
    with _lock:
        if function.inside in _declared:
            return
        create_in(_database(), function, _never_called)
        _declared[function.inside] = function


def declared_functions(sql: str) -> list[FunctionDef]:
    """List the user-defined functions the database knows and some SQL calls."""
    return [_declared[name] for name in sorted(names_inside(sql)) if name in _declared]


@cache
def _database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        ":memory:",
        config={
            "enable_external_access": "false",
            "autoload_known_extensions": "false",
            "autoinstall_known_extensions": "false",
            "threads": "1",
            "memory_limit": "256MB",
        },
    )
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    return connection


def open_session() -> duckdb.DuckDBPyConnection:
    """Open a new connection, so that no other user sees its temporary tables."""
    with _lock:
        return _database().cursor()
