"""A relation's row versions: its rows past and present, each with the interval in which it held.

A join with a non-retroactive relation reads them where it cannot join rows as elements come. The
row of a version stays when the relation's row is deleted; only the end of its interval changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.model.patterns import STRICT
from millpond.model.time import BEGINNING, END
from millpond.model.windows import Rows, Window
from millpond.operators.protocol.delta import Delta, Ints, positional_schema
from millpond.operators.protocol.node import Operator, Scalars, Unary
from millpond.operators.structures.bag import Bag
from millpond.operators.structures.lifetimes import lifetimes


def _find_leaving(windows: Sequence[Window], ts: Ints) -> Ints:
    """Find when elements with these timestamps have left all of some windows; END for never."""
    ends = [np.full(len(ts), END if not windows else BEGINNING, np.int64)]
    for window in windows:
        rows = isinstance(window, Rows)
        ends.append(np.full(len(ts), END, np.int64) if rows else lifetimes(window, ts)[1])
    return np.asarray(np.maximum.reduce(ends))


@dataclass(frozen=True, eq=False)
class RelationVersions(Unary):
    """The row versions of a relation, with two more columns: the begin and end of each interval.

    Attributes:
        input: The relation.
        windows: The windows of the streams that are joined with the relation. A version that has
            ended is dropped once all elements from its interval have left these windows.
    """

    windows: tuple[Window, ...] = ()

    name = "versions"
    state = "the relation's rows"
    edge = STRICT
    announces = True

    @property
    def carries_expirations(self) -> bool:
        return bool(_find_leaving(self.windows, np.zeros(1, np.int64))[0] < END)

    @property
    def identity(self) -> tuple[str, ...]:
        return tuple(repr(window) for window in self.windows)

    @property
    def schema(self) -> pa.Schema:
        return positional_schema([*self.input.schema.types, pa.int64(), pa.int64()])

    def operator(self) -> Operator:
        return _RelationVersioning(self.input.schema, self.schema, self.windows)


class _RelationVersioning:
    def __init__(self, rows: pa.Schema, schema: pa.Schema, windows: tuple[Window, ...]) -> None:
        self._windows = windows
        self._bag = Bag(rows)
        self._schema = schema

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        if not len(delta):
            return Delta.empty(self._schema)
        known = self._bag.size()
        self._bag.take_in(delta, upto)
        rows, at, until = self._bag.rows(), *self._bag.lives()
        new = np.arange(len(at)) >= known
        ended = np.flatnonzero(until < END)
        begun = np.flatnonzero(new)
        # A version is open until it ends, and closed from then on.
        parts = [
            self._make_rows(rows, begun, at, at[begun], np.full(len(begun), END), 1),
            self._make_rows(rows, ended, at, until[ended], np.full(len(ended), END), -1),
            self._make_rows(rows, ended, at, until[ended], until[ended], 1),
        ]
        self._bag.forget(upto)
        return Delta.together(parts)

    def _make_rows(
        self,
        rows: pa.RecordBatch,
        places: np.ndarray,
        begin: np.ndarray,
        at: np.ndarray,
        end: np.ndarray,
        weight: int,
    ) -> Delta:
        picked = rows.take(pa.array(places)).columns
        columns = [*picked, pa.array(begin[places]), pa.array(end.astype(np.int64))]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        # An open version stays; a closed one stays until the last element from its time has left.
        until = np.where(end < END, _find_leaving(self._windows, end - 1), END)
        lines = Delta.of(batch, at, until, np.full(len(at), weight, np.int64))
        return lines.where(lines.at < lines.until).in_order()

    def size(self) -> int:
        return self._bag.size()
