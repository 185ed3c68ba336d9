"""The residual: the SQL that is left of a query once its windows are rows, evaluated by DuckDB.

Connections are locked down (no files, no network, no settings, no Python variables) and limited in
memory, threads and time, because the text comes from clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from millpond.catalog.objects import FunctionDef
from millpond.catalog.option_values import parse_memory
from millpond.catalog.options import OPTIONS
from millpond.confined.deadline import deadlines
from millpond.confined.growth import can_expand
from millpond.confined.turns import QUICK_BYTES, NeedsMoreError, Turn, Turns
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
    memory: int = parse_memory(OPTIONS["max_memory"].default)

    def cap(self, ceilings: Limits | None) -> Limits:
        """Return these limits, each at most what the operator allows."""
        if ceilings is None:
            return self
        return Limits(
            min(self.seconds, ceilings.seconds),
            min(self.rows, ceilings.rows),
            min(self.memory, ceilings.memory),
        )


#: With less, DuckDB cannot group a few rows.
_LEAST_BYTES = 8 << 20


class _Database:
    """An empty database of its own, lent to one evaluation at a time."""

    def __init__(self, memory: int) -> None:
        self.connection = connect_locked_down(memory)
        #: The user-defined functions it knows.
        self.taught: set[str] = set()
        #: Whether an error has made it useless, or it keeps what it took.
        self.is_spent = False

    def note(self, error: Exception) -> None:
        """Note what an evaluation failed with: some errors make a database useless.

        What came to a limit leaves hundreds of megabytes in it until it is closed.
        """
        try:
            self.connection.execute("SELECT 1").fetchall()
        except duckdb.Error:
            self.is_spent = True
        self.is_spent = self.is_spent or is_final(error)


class Residual:
    """Evaluates SQL over Arrow tables; safe to share between threads.

    Each evaluation has a database to itself: tables registered for one are never seen by another.
    Those of quick evaluations are kept for the next ones. A large one's is closed behind it,
    because a database keeps the memory it took.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.turns = Turns(self.limits.memory)
        self._idle: list[_Database] = []

    def evaluate(
        self,
        sql: str,
        tables: Mapping[str, pa.Table],
        limits: Limits | None = None,
        own: OwnFunctions | None = None,
        turn: Turn | None = None,
    ) -> pa.Table:
        """Compute the rows of `sql` over the named tables, with functions of this call's `own`.

        Args:
            sql: The query.
            tables: What it reads, by name.
            limits: Its limits, if not those of all.
            own: Functions that it alone can call.
            turn: The turn in which it is evaluated; None: it gets one, and waits for it.

        Raises:
            MillpondError: POND-404 if evaluation failed, POND-405 if it exceeded a limit,
                POND-411 if a user-defined function failed, SERVE-715 if too many wait.
            NeedsMoreError: it needs more than the given turn has.
        """
        limits = limits or self.limits
        work = current_work()
        if work is not None:
            work.check()
        if can_expand(sql):
            if turn is not None:
                turn.leave()
            answer = _evaluate_confined(sql, tables, limits, work)
        elif turn is not None:
            answer = self._evaluate_here(sql, tables, limits, work, own or {}, turn)
        else:
            answer = self.turns.run(
                lambda turn: self._evaluate_here(sql, tables, limits, work, own or {}, turn),
                limits.memory,
            )
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
        turn: Turn,
    ) -> pa.Table:
        with self._lend(turn) as database:
            connection = database.connection
            functions.teach(connection, database.taught, [sql])
            try:
                for name, table in tables.items():
                    connection.register(name, table)
                for definition, function in own.values():
                    create_in(connection, definition, function)
                with (
                    deadlines.within(limits.seconds - turn.spent, connection.interrupt, work),
                    turn.watch(connection.interrupt),
                ):
                    return _try_in_parallel(
                        sql, lambda tried: read_answer(connection, tried, limits)
                    )
            except (duckdb.Error, OSError) as error:
                database.note(error)
                if work is not None and work.is_over:
                    raise work.error() from error
                if turn.is_over or (not turn.has_most and _is_out_of_memory(error)):
                    raise NeedsMoreError from None
                raise _explain_error(error, limits) from error
            finally:
                if not database.is_spent:
                    for name in tables:
                        connection.unregister(name)
                    for name in own:
                        with suppress(duckdb.Error):  # it may have failed before it was created
                            connection.remove_function(name)

    @contextmanager
    def _lend(self, turn: Turn) -> Iterator[_Database]:
        """Lend a database whose evaluations keep no more than the turn has."""
        is_quick = turn.memory == QUICK_BYTES
        database = self._idle.pop() if is_quick and self._idle else None
        if database is None:
            database = _Database(turn.memory if is_quick else turn.memory - turn.used)
        try:
            yield database
        finally:
            if is_quick and not database.is_spent:
                self._idle.append(database)
            else:
                database.connection.close()


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
            "memory_limit": f"{max(memory, _LEAST_BYTES) >> 20}MiB",
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


def too_much_memory_error(detail: str | None = None) -> MillpondError:
    """Make the error of a query whose evaluation keeps more than it may."""
    return MillpondError(
        "POND-405",
        "the query needs more memory than a query may use",
        detail=detail,
        hint="Narrow its window or its predicate, or raise max_memory.",
    )


def is_final(error: Exception) -> bool:
    """Whether an evaluation failed for lack of time or memory, and not because of its rows."""
    text = str(error)
    return took_too_long(error) or text.startswith(("INTERRUPT Error", "Out of Memory Error"))


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, duckdb.OutOfMemoryException) or str(error).startswith(
        "Out of Memory Error"
    )


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
    if _is_out_of_memory(error):
        return too_much_memory_error(_first_line(error))
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
