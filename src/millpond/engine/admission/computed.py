"""Computed columns: expressions over a row's other columns, evaluated when the row is admitted.

DuckDB evaluates an expression over all rows of a batch at once, as it evaluates predicates: locked
down, and in a process that can be ended if the values can grow. If it fails, it is evaluated row by
row with TRY, and the rows on which it fails are rejects.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from millpond.cql.print.dialect import parse_query, to_duckdb
from millpond.engine.admission.nested import Reasons
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.errors import MillpondError
from millpond.model.casts import cast_value
from millpond.model.schema import Field, arrow_type

#: Of so many rows that fail, each is told why; of further ones only that the expression fails.
_EXPLAINED = 100
#: So often the rows may be halved to find those on which an expression takes too long or too much.
_HALVINGS = 40


def compute(rows: pa.Table, field: Field) -> tuple[pa.ChunkedArray, Reasons]:
    """Compute a column of rows.

    Args:
        rows: The columns that the field's expression may name.
        field: A field with `computed`.

    Returns:
        The values, NULL where the expression fails; and the reasons of failures, by row.
    """
    assert field.computed is not None
    evaluator = ScalarEvaluator.of_this_thread()
    try:
        sql = cast_value(_duckdb_sql(field.computed), field.type)
    except MillpondError as error:  # what was declared is no expression any more
        why = f'column "{field.name}": {error.primary}'
        return _nothing(rows, field), dict.fromkeys(range(rows.num_rows), why)
    values, failed = _try(evaluator, rows, sql, [_HALVINGS])
    reasons: Reasons = {}
    for count, row in enumerate(np.flatnonzero(failed)):
        why = f"{field.computed} fails"
        if count < _EXPLAINED:
            why = _explain(evaluator, rows.slice(row, 1), sql) or why
        reasons[int(row)] = f'column "{field.name}": {why}'
    return values.cast(arrow_type(field.type)), reasons


def _nothing(rows: pa.Table, field: Field) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(rows.num_rows, arrow_type(field.type))])


@lru_cache(maxsize=1024)
def _duckdb_sql(expression: str) -> str:
    return to_duckdb(parse_query(f"SELECT {expression} AS v").expressions[0].this)


def _try(
    evaluator: ScalarEvaluator, rows: pa.Table, sql: str, halvings: list[int]
) -> tuple[pa.ChunkedArray, np.ndarray]:
    """Compute an expression's values, and a mask of the rows on which it fails.

    An expression that takes too long or too much over some rows is tried over each half of them,
    as long as `halvings` lasts; after that all these rows count as failed.
    """
    none = np.zeros(rows.num_rows, np.bool_)
    try:
        return evaluator.values(rows, sql, rests=False), none
    except MillpondError:
        pass
    try:
        each = f"TRY(struct_pack(v := {sql}))"
        tried = evaluator.values(rows, each, rests=False).combine_chunks()
        failed = np.asarray(tried.is_null().to_numpy(zero_copy_only=False), np.bool_)
        return pa.chunked_array([tried.flatten()[0]]), failed
    except MillpondError:
        if rows.num_rows <= 1 or halvings[0] == 0:
            return pa.chunked_array([pa.nulls(rows.num_rows)]), ~none
    halvings[0] -= 1
    middle = rows.num_rows // 2
    first, early = _try(evaluator, rows.slice(0, middle), sql, halvings)
    second, late = _try(evaluator, rows.slice(middle), sql, halvings)
    wanted = second.type if pa.types.is_null(first.type) else first.type
    both = [*first.cast(wanted).chunks, *second.cast(wanted).chunks]
    return pa.chunked_array(both, wanted), np.concatenate([early, late])


def _explain(evaluator: ScalarEvaluator, row: pa.Table, sql: str) -> str | None:
    try:
        evaluator.values(row, sql)
    except MillpondError as error:
        return error.detail
    return None
