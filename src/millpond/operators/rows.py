"""ROWS windows: an element leaves when its N-th successor comes.

Nobody knows on arrival when that will be, so what leaves is announced by negative tuples. An
element whose N-th successor comes in the same step never leaves this operator as two rows: its
interval is known then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.model.patterns import Edge, window_edge
from millpond.model.time import END
from millpond.model.windows import Rows
from millpond.operators.delta import Delta, Ints
from millpond.operators.grouping import grouped
from millpond.operators.keys import Keys
from millpond.operators.node import Operator, Scalars, Unary


@dataclass(frozen=True, eq=False)
class RowsWindow(Unary):
    """`[ROWS n]`, or `[PARTITION BY … ROWS n]`.

    Attributes:
        input: The elements.
        count: n.
        by: Places of the columns of PARTITION BY.
        text: It as CQL, for EXPLAIN.
    """

    count: int
    by: tuple[int, ...] = ()
    text: str = ""

    name = "window"
    carries_expirations = False
    is_window = True
    announces = True

    @property
    def state(self) -> str:
        return "queue by key" if self.by else "queue"

    @property
    def edge(self) -> Edge:
        return window_edge(Rows(self.count))

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.count, self.by)

    def operator(self) -> Operator:
        return RowsWindowing(self.count, self.by, self.schema)


class RowsWindowing:
    """`RowsWindow` at work: the elements it holds, in (timestamp, sequence) order."""

    def __init__(self, count: int, by: tuple[int, ...], schema: pa.Schema) -> None:
        self._count, self._by = count, by
        self._held = Delta.empty(schema)

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        if not len(delta):
            return delta
        old = len(self._held)
        rows = pa.concat_batches([self._held.rows, delta.rows])
        at = np.concatenate([self._held.at, delta.at])
        until = self._until(rows, at)
        stays = until >= END
        leaving = np.flatnonzero(~stays)
        new = np.arange(old, len(at))
        # Of those that come and go in this step, those whose successors have their own timestamp
        # were never in the window.
        new = new[until[new] > at[new]]
        passing = leaving[until[leaving] > at[leaving]]
        places = np.concatenate([new, passing])
        delta_at = np.concatenate([at[new], until[passing]])
        weight = np.concatenate([np.ones(len(new), np.int64), np.full(len(passing), -1)])
        order = np.argsort(delta_at, kind="stable")
        kept = np.flatnonzero(stays)
        self._held = Delta.of(rows.take(pa.array(kept)), at[kept])
        out = rows.take(pa.array(places[order]))
        return Delta.of(out, delta_at[order], None, weight[order])

    def _until(self, rows: pa.RecordBatch, at: Ints) -> Ints:
        """When each element leaves, as far as the elements at hand tell."""
        until = np.full(len(at), END, np.int64)
        if not self._by:
            until[: -self._count] = at[self._count :]
            return until
        columns = [rows.column(place) for place in self._by]
        numbers = Keys([c.type for c in columns])
        order, starts, _ = grouped(numbers.number(columns), max(len(numbers), 1))
        ends = np.repeat(starts[1:], np.diff(starts))
        places = np.arange(len(order)) + self._count
        found = places < ends
        until[order[found]] = at[order[places[found]]]
        return until

    def size(self) -> int:
        return len(self._held)
