"""Joined rows, and answers taken straight from them where a query only chooses columns.

PSoup (VLDB 2002, section 3.3) does projection just in time, when a result is fetched. If a query
only chooses columns of pairs, the columns are taken, row by row, from the streams' elements. The
SteMs must have served every factor of the join. Where they looked up hashes, the values are
compared here. For all other queries DuckDB gets the joined rows and applies every factor again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from millpond.confined.turns import Turn
from millpond.engine.joins.keys import Axis, agree
from millpond.engine.joins.plan import TS, JoinPlan, Operand
from millpond.engine.scalars.residual_query import (
    Limits,
    answer_too_large_error,
    too_many_rows_error,
)
from millpond.planner.bind.bound_query import BoundQuery
from millpond.work import hold_memory

#: Rows taken at once, so that a too large answer is noticed before it is complete. Few at first,
#: since their width is unknown (a long text may be in every pair); then as many as have so many
#: bytes.
_FIRST, _STEP, _STEP_BYTES = 256, 65_536, 64 << 20


class JoinedRows(Protocol):
    """Rows of some streams, row beside row."""

    @property
    def count(self) -> int:
        """The number of rows."""
        ...

    def take(
        self, leaf: int, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> pa.Table:
        """Take columns of one stream, numbered in the order of FROM, for rows `start` to `stop`."""
        ...


@dataclass(frozen=True)
class JoinProjection:
    """How an answer is taken from joined rows.

    Attributes:
        columns: (stream, column) for each column of the answer.
        names: Their names.
        equal: Pairs of (stream, column) whose values must be equal, where keys were hashes.
    """

    columns: tuple[tuple[int, str], ...]
    names: tuple[str, ...]
    equal: tuple[tuple[tuple[int, str], tuple[int, str]], ...]

    def project(self, rows: JoinedRows, limits: Limits) -> pa.Table:
        """Compute the answer.

        Raises:
            MillpondError: POND-405, it has more rows or bytes than the limits allow.
        """
        if rows.count > limits.rows and not self.equal:
            raise too_many_rows_error(limits)
        parts: list[pa.Table] = []
        count = size = 0
        for part in _take_in_steps(rows, lambda start, stop: self._part(rows, start, stop)):
            parts.append(part)
            count += part.num_rows
            size += part.nbytes
            hold_memory(part.nbytes)
            if count > limits.rows:
                raise too_many_rows_error(limits)
            if size > limits.memory:
                raise answer_too_large_error(limits)
        return parts[0] if len(parts) == 1 else pa.concat_tables(parts)

    def _part(self, rows: JoinedRows, start: int, stop: int) -> pa.Table:
        wanted: dict[int, dict[str, None]] = {}
        for leaf, column in (*self.columns, *(side for pair in self.equal for side in pair)):
            wanted.setdefault(leaf, {})[column] = None
        taken = {
            leaf: rows.take(leaf, list(columns), start, stop) for leaf, columns in wanted.items()
        }
        arrays = [taken[leaf][column] for leaf, column in self.columns]
        table = pa.Table.from_arrays(arrays, names=list(self.names))
        same = np.ones(table.num_rows, np.bool_)
        for (one, mine), (other, theirs) in self.equal:
            same &= agree(taken[one][mine], taken[other][theirs])
        return table if same.all() else table.filter(pa.array(same))


def take_joined(rows: JoinedRows, leaf: int, columns: Sequence[str], turn: Turn) -> pa.Table | None:
    """Take columns of one stream for all joined rows; None: they are too many for a query.

    Raises:
        NeedsMoreError: they are too many for this turn.
    """
    parts: list[pa.Table] = []
    for part in _take_in_steps(rows, partial(rows.take, leaf, columns)):
        if not turn.use(part.nbytes):
            return None
        parts.append(part)
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


def _take_in_steps(rows: JoinedRows, take: Callable[[int, int], pa.Table]) -> Iterator[pa.Table]:
    """Take all joined rows, at least one part; raises POND-405 where a text is too long."""
    start, step = 0, _FIRST
    while start < rows.count or not start:
        try:
            part = take(start, start + step)
        except pa.ArrowInvalid as error:  # more text than an array may have
            raise answer_too_large_error(Limits()) from error
        yield part
        start += step
        width = part.nbytes // max(part.num_rows, 1)
        step = min(16 * step, _STEP, _STEP_BYTES // max(width, 1) + 1)


def projection_of(bound: BoundQuery, plan: JoinPlan) -> JoinProjection | None:
    """Say how a query's answer is taken from joined rows; None if the query needs DuckDB."""
    assert bound.join is not None
    shape = bound.join
    if shape.projection is None or len(plan.links) != len(shape.factors):
        return None
    # DuckDB gives 128 bits back as whole numbers where they fit, and overflows where sums do.
    if any(field.type in ("HUGEINT", "DECIMAL(38,0)") for field in bound.output.fields):
        return None
    sides = [side for link in plan.links for side in (link.left, link.right)]
    if any(side.shift and side.value.on is Axis.INTEGER for side in sides):
        return None
    equalities = [link for link in plan.links if link.op == "="]
    hashed = len(equalities) > 1 or any(
        link.left.value.on in (Axis.TEXT, Axis.WIDE) for link in equalities
    )
    pairs = []
    for link in equalities if hashed else ():
        one, other = _column(link.left, plan), _column(link.right, plan)
        if one is None or other is None:
            return None
        pairs.append((one, other))
    return JoinProjection(shape.projection, bound.output.names, tuple(pairs))


def _column(operand: Operand, plan: JoinPlan) -> tuple[int, str] | None:
    """Return the (stream, column) an operand is; None if it is anything but a bare column."""
    if operand.value.column is None or operand.shift:
        return None
    column: str | None = operand.value.column
    if column == TS:
        column = plan.timed_by[operand.leaf]
    return None if column is None else (operand.leaf, column)
