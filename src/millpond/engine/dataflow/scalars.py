"""Scalar expressions and queries for operators, by the same DuckDB as everywhere else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.confined.deadline import deadlines
from millpond.confined.growth import can_expand
from millpond.engine.matching.other_factors import find_satisfying
from millpond.engine.scalars.evaluator import ScalarEvaluator, truth
from millpond.engine.scalars.plain_arithmetic import evaluate_arithmetic
from millpond.engine.scalars.plain_comparisons import evaluate_comparison, find_true
from millpond.engine.scalars.residual_query import Residual, is_final
from millpond.engine.scalars.select_confined import select_confined
from millpond.engine.scalars.user_functions import fault_of, function_failed_error
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.operators.protocol.delta import Delta
from millpond.operators.protocol.node import Node

#: The part of DuckDB's message that names a column by its place, which the query's author did not.
_OF_A_PLACE = re.compile(r" when casting from source column c\d+\b")

#: Seconds one batch's expressions may take.
_SECONDS = 60.0


class DuckDBScalars:
    """`operators.node.Scalars`, on this thread's connection."""

    def __init__(self, recall: Callable[[Node], Iterable[Delta]] | None = None) -> None:
        """`recall` computes again the earlier rows of a node; None where nothing is released."""
        self.since: int = BEGINNING - 1
        self._recall = recall
        self._residual = Residual()

    def compute(self, rows: pa.RecordBatch, sqls: Sequence[str]) -> list[pa.Array]:
        plain = [_evaluate_plainly(sql, rows) for sql in sqls]
        asked = [sql for sql, found in zip(sqls, plain, strict=True) if found is None]
        answers = iter(self._ask(rows, asked) if asked else ())
        return [next(answers) if found is None else found for found in plain]

    def select(self, rows: pa.RecordBatch, predicates: Sequence[str]) -> npt.NDArray[np.bool_]:
        condition = f"CAST(({_conjunction(predicates)}) AS BOOLEAN)"
        if (chosen := find_true(condition, rows)) is not None:
            return chosen
        try:
            (found,) = self._ask(rows, [condition])
        except MillpondError as error:
            if error.code == "POND-405":
                raise
            # All conjuncts at once is fastest; a conjunct that fails may be guarded by another.
            kept = find_satisfying(
                ScalarEvaluator.of_this_thread(), pa.Table.from_batches([rows]), list(predicates)
            )
            if isinstance(kept, duckdb.Error):
                raise _explain_error(kept) from kept
            mask = np.zeros(rows.num_rows, np.bool_)
            mask[kept] = True
            return mask
        return truth(found)

    def _ask(self, rows: pa.RecordBatch, sqls: Sequence[str]) -> list[pa.Array]:
        growing = [sql for sql in sqls if can_expand(sql)]
        if not growing:
            return self._ask_here(rows, sqls)
        plain = [sql for sql in sqls if sql not in growing]
        found = dict(zip(plain, self._ask_here(rows, plain), strict=True)) if plain else {}
        items = ", ".join(f"({sql}\n) AS v{i}" for i, sql in enumerate(growing))
        try:
            answer = select_confined(f"SELECT {items} FROM edge_rows", {"edge_rows": rows})
        except duckdb.Error as error:
            raise _explain_error(error) from error
        columns = [column.combine_chunks() for column in answer.columns]
        found.update(zip(growing, columns, strict=True))
        return [found[sql] for sql in sqls]

    def _ask_here(self, rows: pa.RecordBatch, sqls: Sequence[str]) -> list[pa.Array]:
        items = ", ".join(f"({sql}\n) AS v{i}" for i, sql in enumerate(sqls))
        connection = ScalarEvaluator.of_this_thread().connect_with_functions(sqls)
        connection.register("edge_rows", rows)
        try:
            with deadlines.within(_SECONDS, connection.interrupt):
                selected = connection.sql(f"SELECT {items} FROM edge_rows")
                answer = selected.to_arrow_table()
        except duckdb.Error as error:
            raise _explain_error(error) from error
        finally:
            connection.unregister("edge_rows")
        return [column.combine_chunks() for column in answer.columns]

    def recall(self, node: Node) -> Iterable[Delta]:
        if self._recall is None:
            raise AssertionError("nothing can be read back here, so nothing may be released")
        return self._recall(node)

    def query(self, sql: str, tables: dict[str, pa.Table]) -> pa.Table:
        return self._residual.evaluate(sql, tables)


def _evaluate_plainly(sql: str, rows: pa.RecordBatch) -> pa.Array | None:
    """Compute an expression here if that is possible; None: DuckDB has to be asked."""
    found = evaluate_comparison(sql, rows)
    return evaluate_arithmetic(sql, rows) if found is None else found


def _conjunction(predicates: Sequence[str]) -> str:
    return " AND ".join(f"({p}\n)" for p in predicates)


def _explain_error(error: duckdb.Error) -> MillpondError:
    if (fault := fault_of(error)) is not None:
        return function_failed_error(fault)
    if is_final(error):
        return MillpondError(
            "POND-405",
            "the query needs more time or memory than a query may use",
            detail=str(error).partition(": ")[2].split("\n", 1)[0][:300],
            hint="Narrow its predicate or what it computes.",
        )
    return MillpondError(
        "POND-404",
        "the query could not be evaluated",
        detail=_OF_A_PLACE.sub("", str(error).split("\n", 1)[0])[:300],
        hint="Guard the expression, for example with CASE, TRY_CAST or NULLIF.",
    )
