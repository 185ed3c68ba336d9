"""Evaluates expressions on the rows of a delta, where some of the rows cancel each other.

A join is bilinear: if a relation held a row once, and took it back before a partner came, the join
makes a pair of weight 1 and a pair of weight -1 with the same interval. These pairs hold at no
instant, so an expression that fails on them must not fail the answer. Cancelling costs more than
evaluating, so rows are cancelled only after an expression has failed. Then rows that hold only
before the first instant that a reader sees are left out too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TypeVar

import numpy as np
import pyarrow as pa

from millpond.errors import MillpondError
from millpond.operators.protocol.delta import ChosenDelta, Delta
from millpond.operators.protocol.node import Scalars
from millpond.operators.structures.key_numbers import KeyNumbers

_T = TypeVar("_T")
#: The column that numbers rows.
_ROW = "__row"


def evaluate_expressions(
    delta: Delta, sqls: Sequence[str], scalars: Scalars
) -> tuple[Delta, list[pa.Array]]:
    """Evaluate expressions on a delta's rows; return their values with the delta of these rows.

    Raises:
        MillpondError: POND-404, an expression failed on a row that holds at some instant.
    """
    if not sqls:
        return delta, []
    return _retry_on_net_rows(delta, lambda rows: scalars.compute(rows, sqls), scalars.since)


def expand_rows(
    delta: Delta, sqls: Sequence[str], scalars: Scalars
) -> tuple[Delta, pa.Array, list[pa.Array]]:
    """Evaluate a SELECT list some of whose calls give several rows for one.

    Returns:
        The delta of the rows that were evaluated; for each row that was made, the place of the row
        it was made of, ascending; and the columns of the rows that were made.

    Raises:
        MillpondError: POND-404, an expression failed on a row that holds at some instant; POND-405,
            more rows are made than a limit allows.
    """
    items = "".join(f", ({sql}\n) AS v{i}" for i, sql in enumerate(sqls))
    sql = f"SELECT {_ROW}{items} FROM edge_rows ORDER BY {_ROW}"

    def expand(rows: pa.RecordBatch) -> pa.Table:
        numbered = pa.Table.from_batches([rows]).append_column(
            _ROW, pa.array(np.arange(rows.num_rows, dtype=np.int64))
        )
        return scalars.query(sql, {"edge_rows": numbered})

    delta, made = _retry_on_net_rows(delta, expand, scalars.since)
    made_of, *columns = (column.combine_chunks() for column in made.columns)
    return delta, made_of, columns


def select_rows(
    delta: Delta,
    predicates: Sequence[str],
    scalars: Scalars,
    needed: Set[int] | None = None,
    read: Sequence[int] = (),
) -> Delta:
    """Select the rows for which every predicate is true.

    Args:
        delta: The rows.
        predicates: SQL over their columns.
        scalars: Evaluates the SQL.
        needed: Places of the columns that the result needs; None for all.
        read: Places of the columns that the predicates read, if known.

    Returns:
        The rows; a `ChosenDelta` unless predicates failed on rows that do not count.

    Raises:
        MillpondError: POND-404, a predicate failed on a row that holds at some instant and that no
            other predicate excludes.
    """
    columns = list(read)
    found, chosen = _retry_on_net_rows(
        delta,
        lambda rows: scalars.select(rows.select(columns) if columns else rows, predicates),
        scalars.since,
    )
    places = np.flatnonzero(chosen)
    left = found.choose(places, needed)
    if found is not delta:
        return left
    net = left.is_canonical
    return ChosenDelta(
        left.rows, left.at, left.until, left.weight, delta.at, places, is_canonical=net
    )


def _retry_on_net_rows(
    delta: Delta, evaluate: Callable[[pa.RecordBatch], _T], since: int
) -> tuple[Delta, _T]:
    try:
        return delta, evaluate(delta.rows)
    except MillpondError as error:
        if error.code not in ("POND-404", "POND-411"):
            raise
        left = delta.since(since)
        if bool((left.weight < 0).any()):
            left = net_weights(left)
        if len(left) == len(delta):
            raise
        return left, evaluate(left.rows)


def net_weights(delta: Delta) -> Delta:
    """Cancel the weights of equal rows with equal intervals.

    Of equal rows those that came first leave first, and those that are left stay where they came:
    a queue of what came (`synopses/fifo_extremes.py`) is of no use in another order.
    """
    columns = [*delta.rows.columns, pa.array(delta.at), pa.array(delta.until)]
    numbers = KeyNumbers([c.type for c in columns], zeros=True).number(columns)
    came, left = np.maximum(delta.weight, 0), np.maximum(-delta.weight, 0)
    by_row = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[by_row], prepend=-1))
    sizes = np.diff(np.append(starts, len(by_row)))
    upto = np.cumsum(came[by_row])
    upto -= np.repeat(upto[starts] - came[by_row][starts], sizes)
    leaving = np.repeat(np.add.reduceat(left[by_row], starts), sizes) if len(starts) else upto
    weight = np.empty(len(delta), np.int64)
    weight[by_row] = np.clip(upto - leaving, 0, came[by_row])
    # More leaves than came: what is left to leave counts to the last.
    ends = starts + sizes - 1
    weight[by_row[ends]] -= np.maximum(leaving - upto, 0)[ends]
    kept = np.flatnonzero(weight)
    found = delta.take(kept)
    return Delta(found.rows, found.at, found.until, weight[kept])
