"""Scalar expressions over rows, as DuckDB evaluates them.

The same library evaluates expressions in Spark tasks, in the server and in the oracle, so they
mean the same everywhere (SEMANTICS, section 3). The connection is locked down: a predicate comes
from a user, and must neither read files nor load code nor take all memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.confined.deadline import deadlines
from millpond.confined.growth import can_expand
from millpond.engine.scalars.select_confined import select_confined
from millpond.engine.scalars.user_functions import fault_of, function_failed_error, functions
from millpond.errors import MillpondError

_CONFIG = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "threads": "1",
}
#: Expressions in one SELECT: DuckDB plans a wide one slowly.
_WIDTH = 64
#: Seconds one SELECT may take; beyond that its expressions count as failed.
_SECONDS = 60.0
#: For so many seconds an expression that took too long or too much is not evaluated over nearly as
#: many rows.
_REST_SECONDS = 5.0
#: How many such expressions are remembered.
_REMEMBERED = 1_000


class ScalarEvaluator:
    """A locked-down DuckDB connection that evaluates boolean expressions over Arrow tables.

    Not for use by two threads at once; `of_this_thread` gives each thread its own.
    """

    _threads = threading.local()

    def __init__(self, memory_limit: str = "512MB") -> None:
        self._memory_limit = memory_limit
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._taught: set[str] = set()
        #: By expression that took too long or too much: until when it rests, its rows, its error.
        self._given_up: dict[str, tuple[float, int, duckdb.Error | None]] = {}

    @classmethod
    def of_this_thread(cls) -> ScalarEvaluator:
        """Return this thread's evaluator; make it when first needed."""
        evaluator = getattr(cls._threads, "evaluator", None)
        if evaluator is None:
            evaluator = cls._threads.evaluator = cls()
        return evaluator

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection; it is opened when first needed."""
        if self._connection is None:
            con = duckdb.connect(config={**_CONFIG, "memory_limit": self._memory_limit})
            con.execute("SET TimeZone = 'UTC'")
            # Otherwise a predicate could name variables of this process as tables.
            con.execute("SET python_enable_replacements = false")
            con.execute("SET lock_configuration = true")
            self._connection = con
        return self._connection

    def connect_with_functions(self, sqls: Sequence[str]) -> duckdb.DuckDBPyConnection:
        """Return the connection, able to call the user-defined functions in these expressions."""
        functions.teach(self.connection, self._taught, sqls)
        return self.connection

    def _forget_rows(self) -> None:
        """Drop the rows; drop the connection too if an error made its database useless."""
        try:
            self.connection.unregister("rows_under_test")
        except duckdb.Error:
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._taught.clear()

    def __reduce__(self) -> tuple[type[ScalarEvaluator], tuple[str]]:
        return (ScalarEvaluator, (self._memory_limit,))

    def evaluate(
        self, table: pa.Table, sqls: Sequence[str]
    ) -> list[pa.BooleanArray | duckdb.Error]:
        """Compute the value of each expression for every row, in row order.

        An expression that fails does not disturb the others: its error takes the place of its
        values. Values that are not boolean are cast as WHERE would cast them.

        Args:
            table: The rows; expressions name its columns.
            sqls: Boolean expressions in DuckDB's SQL.
        """
        results: dict[str, pa.BooleanArray | duckdb.Error] = {}
        plain = []
        for sql in sqls:
            if can_expand(sql):
                results[sql] = self._evaluate_confined(table, sql)
            else:
                plain.append(sql)
        if not plain:
            return [results[sql] for sql in sqls]
        self.connect_with_functions(plain)
        self.connection.register("rows_under_test", table)
        try:
            for start in range(0, len(plain), _WIDTH):
                some = plain[start : start + _WIDTH]
                results.update(zip(some, self._evaluate(some), strict=True))
        finally:
            self._forget_rows()
        return [results[sql] for sql in sqls]

    def select(self, table: pa.Table, sql: str) -> npt.NDArray[np.int64] | duckdb.Error:
        """Find the rows WHERE would keep, ascending.

        `evaluate` computes every part of an expression for every row; WHERE leaves out the parts
        that cannot matter. So where a predicate guards a part of itself (`a IS NULL OR 1 / a > 2`),
        WHERE may decide on rows on which `evaluate` fails.
        """
        numbered = table.append_column("__row", pa.array(np.arange(table.num_rows)))
        try:
            # Computed above the scan: the scan would compare by rules of its own.
            kept = self._ask(
                numbered,
                sql,
                f"SELECT __row FROM (SELECT __row, ({sql}\n) AS p FROM rows_under_test) WHERE p",
            )
        except duckdb.Error as error:
            return error
        return np.sort(np.asarray(kept["__row"].to_numpy(), np.int64))

    def verdicts(self, table: pa.Table, sql: str) -> npt.NDArray[np.int8] | duckdb.Error:
        """Decide each row as WHERE would if it were alone: 1 keeps it, 0 does not, -1 fails."""
        try:
            # CASE evaluates a condition as WHERE does; TRY goes through rows one by one if needed.
            tried = self._ask(
                table,
                sql,
                f"SELECT TRY(CASE WHEN ({sql}\n) THEN 1 ELSE 0 END) AS v FROM rows_under_test",
            )["v"]
        except duckdb.Error as error:
            return error
        return np.asarray(tried.fill_null(-1).to_numpy(), np.int8)

    def values(self, table: pa.Table, sql: str, *, rests: bool = True) -> pa.ChunkedArray:
        """Compute the value of one expression of any type for every row, in row order.

        Args:
            table: The rows.
            sql: The expression.
            rests: Whether one that took too long or too much a moment ago is not tried again.

        Raises:
            MillpondError: POND-404 when it cannot be evaluated, POND-411 when a user-defined
                function is the cause.
        """
        if not rests:
            self._given_up.pop(sql, None)
        try:
            return self._ask(table, sql, f"SELECT ({sql}\n) AS v FROM rows_under_test")["v"]
        except duckdb.Error as error:
            if (fault := fault_of(error)) is not None:
                raise function_failed_error(fault) from error
            raise MillpondError(
                "POND-404",
                "the query could not be evaluated",
                detail=str(error).split("\n", 1)[0].strip(),
                hint="Guard the expression, for example with CASE, TRY_CAST or NULLIF.",
            ) from error

    def select_from(self, table: pa.Table, select: str) -> pa.Table:
        """Answer a SELECT of Millpond's own over `rows_under_test`, which calls no functions of
        users.

        Raises:
            MillpondError: POND-404 when it cannot be evaluated.
        """
        try:
            return self._ask(table, "NULL", select)
        except duckdb.Error as error:
            raise MillpondError(
                "POND-404",
                "the query could not be evaluated",
                detail=str(error).split("\n", 1)[0].strip(),
            ) from error

    def _ask(self, table: pa.Table, sql: str, select: str) -> pa.Table:
        """Answer `select` over the rows; `sql` is the part of it that a user wrote."""
        if can_expand(sql):
            return self._ask_confined(table, sql, select)
        self.connect_with_functions([sql])
        self.connection.register("rows_under_test", table)
        try:
            with deadlines.within(_SECONDS, self.connection.interrupt):
                return self.connection.sql(select).to_arrow_table()
        finally:
            self._forget_rows()

    def _ask_confined(self, table: pa.Table, sql: str, select: str) -> pa.Table:
        """Answer as `_ask` does, in a process that can be ended.

        An expression whose process had to be ended is not tried again for a while: a predicate
        that failed is evaluated in several ways to find out on which rows it fails.
        """
        until, rows, failed = self._given_up.get(sql, (0.0, 0, None))
        if failed is not None and time.monotonic() < until and 2 * table.num_rows > rows:
            raise failed
        try:
            return select_confined(select, {"rows_under_test": table})
        except MillpondError as error:
            raise duckdb.OutOfMemoryException(f"Out of Memory Error: {error.primary}") from error
        except (duckdb.InterruptException, duckdb.OutOfMemoryException) as error:
            if len(self._given_up) > _REMEMBERED:
                self._given_up.clear()
            self._given_up[sql] = time.monotonic() + _REST_SECONDS, table.num_rows, error
            raise

    def _evaluate_confined(self, table: pa.Table, sql: str) -> pa.BooleanArray | duckdb.Error:
        select = f"SELECT CAST(({sql}\n) AS BOOLEAN) AS c FROM rows_under_test"
        try:
            return self._ask_confined(table, sql, select)["c"].combine_chunks()
        except duckdb.Error as error:
            return error

    def _evaluate(self, sqls: Sequence[str]) -> list[pa.BooleanArray | duckdb.Error]:
        """Evaluate by one SELECT; if it fails, by halves, to find a bad one in log steps."""
        # A newline before the closing parenthesis: an expression may end in a comment.
        columns = ", ".join(f"CAST(({sql}\n) AS BOOLEAN) AS c{i}" for i, sql in enumerate(sqls))
        try:
            with deadlines.within(_SECONDS, self.connection.interrupt):
                selected = self.connection.sql(f"SELECT {columns} FROM rows_under_test")
                result = selected.to_arrow_table()
        except duckdb.Error as error:
            if len(sqls) == 1:
                return [error]
            half = len(sqls) // 2
            return self._evaluate(sqls[:half]) + self._evaluate(sqls[half:])
        return [column.combine_chunks() for column in result.columns]


def truth(result: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """Return where a boolean array is TRUE: neither FALSE nor NULL."""
    values: npt.NDArray[np.bool_] = result.fill_null(False).to_numpy(zero_copy_only=False)
    return values
