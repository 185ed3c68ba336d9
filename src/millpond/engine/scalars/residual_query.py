"""The residual: the SQL that is left of a query once its windows are rows, evaluated by DuckDB.

Connections are locked down (no files, no network, no settings, no Python variables) and limited in
memory, threads and time, because the text comes from clients.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from millpond.catalog.objects import FunctionDef
from millpond.catalog.options import OPTIONS
from millpond.confined.deadline import deadlines
from millpond.confined.growth import can_expand
from millpond.cql.print.parallel_and import apply_parallel_and_to_sql
from millpond.engine.scalars.select_confined import select_confined
from millpond.engine.scalars.user_functions import (
    fault_of,
    function_failed_error,
    functions,
    took_too_long,
)
from millpond.errors import MillpondError
from millpond.planner.resolve.user_functions import create_in
from millpond.work import Work, current_work, hold_memory

#: Functions that one evaluation has of its own, by their names in DuckDB: the signature, and what
#: takes and gives Arrow arrays.
OwnFunctions = Mapping[str, tuple[FunctionDef, Callable[..., Any]]]


@dataclass(frozen=True)
class Limits:
    """The limits of one evaluation: seconds, rows of answer, bytes of memory."""

    seconds: float = OPTIONS["max_seconds"].default
    rows: int = OPTIONS["max_rows"].default
    memory: int = 1 << 30

    def cap(self, ceilings: Limits | None) -> Limits:
        """Return these limits, each at most what the operator allows."""
        if ceilings is None:
            return self
        return Limits(
            min(self.seconds, ceilings.seconds),
            min(self.rows, ceilings.rows),
            min(self.memory, ceilings.memory),
        )


class Residual:
    """Evaluates SQL over Arrow tables; safe to share between threads.

    Each thread has a connection of its own, to a database of its own: tables registered for one
    evaluation are never seen by another.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._local = threading.local()

    def evaluate(
        self,
        sql: str,
        tables: Mapping[str, pa.Table],
        limits: Limits | None = None,
        own: OwnFunctions | None = None,
    ) -> pa.Table:
        """Compute the rows of `sql` over the named tables, with functions of this call's `own`.

        Raises:
            MillpondError: POND-404 if evaluation failed, POND-405 if it exceeded a limit,
                POND-411 if a user-defined function failed.
        """
        limits = limits or self.limits
        work = current_work()
        if work is not None:
            work.check()
        if can_expand(sql):
            answer = _evaluate_confined(sql, tables, limits, work)
        else:
            answer = self._evaluate_here(sql, tables, limits, work, own or {})
        if answer.num_rows > limits.rows:
            raise too_many_rows_error(limits)
        return answer

    def _evaluate_here(
        self,
        sql: str,
        tables: Mapping[str, pa.Table],
        limits: Limits,
        work: Work | None,
        own: OwnFunctions,
    ) -> pa.Table:
        connection = self._connection()
        functions.teach(connection, self._local.taught, [sql])
        try:
            for name, table in tables.items():
                connection.register(name, table)
            for definition, function in own.values():
                create_in(connection, definition, function)
            with deadlines.within(limits.seconds, connection.interrupt, work):
                return _try_in_parallel(sql, lambda tried: read_answer(connection, tried, limits))
        except (duckdb.Error, OSError) as error:
            self._drop_if_spent(connection, error)
            if work is not None and work.is_over:
                raise work.error() from error
            raise _explain_error(error, limits) from error
        finally:
            if self._local.connection is connection:
                for name in tables:
                    connection.unregister(name)
                for name in own:
                    with suppress(duckdb.Error):  # it may have failed before it was created
                        connection.remove_function(name)

    def _drop_if_spent(self, connection: duckdb.DuckDBPyConnection, error: Exception) -> None:
        """Drop a connection that an error has made useless, or that keeps memory.

        After an evaluation that came to a limit DuckDB keeps hundreds of megabytes until its
        database is closed, and each thread of a server has a database.
        """
        try:
            connection.execute("SELECT 1").fetchall()
        except duckdb.Error:
            self._local.connection = None
        if is_final(error):
            self._local.connection = None
            connection.close()

    def _connection(self) -> duckdb.DuckDBPyConnection:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = connect_locked_down(self.limits.memory)
            self._local.connection = connection
            self._local.taught = set()
        return connection


def _evaluate_confined(
    sql: str, tables: Mapping[str, pa.Table], limits: Limits, work: Work | None
) -> pa.Table:
    try:
        return _try_in_parallel(
            sql,
            lambda tried: select_confined(
                tried, tables, limits.seconds, limits.rows, limits.memory
            ),
        )
    except duckdb.Error as error:
        if work is not None and work.is_over:
            raise work.error() from error
        raise _explain_error(error, limits) from error


def _try_in_parallel(sql: str, evaluate: Callable[[str], pa.Table]) -> pa.Table:
    """Answer a query; if it fails, try it as a parallel AND.

    The conjunct that failed may have failed on a row that another conjunct takes away.
    """
    try:
        return evaluate(sql)
    except (duckdb.Error, OSError) as error:
        other = None if is_final(error) else apply_parallel_and_to_sql(sql)
        if other is None:
            raise
        return evaluate(other)


def too_many_rows_error(limits: Limits) -> MillpondError:
    """Make the error of an answer with more rows than its limit."""
    return MillpondError(
        "POND-405",
        f"the answer has more than {limits.rows:,} rows",
        hint="Narrow the query or add LIMIT, or raise max_rows.",
    )


def connect_locked_down(memory: int) -> duckdb.DuckDBPyConnection:
    """Connect to an empty in-memory database that can reach nothing else.

    What does not fit into the memory fails: DuckDB would else write it to a folder `.tmp` of the
    current directory, and any client could fill the disk.
    """
    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": "1",
            "memory_limit": f"{memory // (1 << 20)}MiB",
            "temp_directory": "",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "python_enable_replacements": "false",
        },
    )
    # Not among the settings above, where it would forbid that of the folder.
    connection.execute("SET enable_external_access = false")
    # Zoned instants mean the same on every machine, and the same as in predicates.
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    return connection


#: Rows of an answer read at once, a vector of DuckDB's. Larger batches are no faster, and a batch
#: of wide rows is complete before its size can be checked.
_BATCH = 2_048


def read_answer(connection: duckdb.DuckDBPyConnection, sql: str, limits: Limits) -> pa.Table:
    """Read an answer batch by batch, so that one beyond the limits is never held whole."""
    with connection.sql(sql).to_arrow_reader(_BATCH) as reader:
        batches: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in reader:
            batches.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            hold_memory(batch.nbytes)
            if rows > limits.rows:
                break
            if size > limits.memory:
                # Rows that were read are no longer in DuckDB's memory, nor counted by DuckDB.
                raise answer_too_large_error(limits)
        return pa.Table.from_batches(batches, schema=reader.schema)


def answer_too_large_error(limits: Limits) -> MillpondError:
    """Make the error of an answer with more bytes than its limit."""
    return MillpondError(
        "POND-405",
        f"the answer is larger than {limits.memory >> 20:,} MiB",
        hint="Narrow the query or add LIMIT.",
    )


def is_final(error: Exception) -> bool:
    """Whether an evaluation failed for lack of time or memory, and not because of its rows."""
    text = str(error)
    return took_too_long(error) or text.startswith(("INTERRUPT Error", "Out of Memory Error"))


def _explain_error(error: Exception, limits: Limits) -> MillpondError:
    """Explain why an evaluation failed. A failure while rows are read is an OSError from Arrow."""
    text = str(error)
    if isinstance(error, duckdb.InterruptException) or text.startswith("INTERRUPT Error"):
        return MillpondError(
            "POND-405",
            f"the query took longer than {limits.seconds:g} seconds",
            detail="Its evaluation was stopped; nothing else was affected.",
            hint="Narrow its window or its predicate, or raise max_seconds.",
        )
    if isinstance(error, duckdb.OutOfMemoryException) or text.startswith("Out of Memory Error"):
        return MillpondError(
            "POND-405",
            "the query needs more memory than a query may use",
            detail=_first_line(error),
            hint="Narrow its window or its predicate.",
        )
    if "Arrow Appender: The maximum total string size" in text:
        return answer_too_large_error(limits)
    if (fault := fault_of(error)) is not None:
        return function_failed_error(fault)
    return MillpondError(
        "POND-404",
        "the query could not be evaluated",
        detail=_first_line(error),
        hint="Guard the expression, for example with CASE, TRY_CAST or NULLIF.",
    )


def _first_line(error: Exception) -> str:
    text = str(error).split("\n", 1)[0].strip()
    return text if len(text) <= 300 else text[:297] + "…"
