"""Deltas: the changes that run along the edges of a dataflow.

A row of a delta is a row of the relation together with a weight w and an interval of time: it
stands for w copies of the row from `at` on until before `until`,

    R(τ) = sum of w over the rows with at ≤ τ < until.

A delta expresses both of the update-pattern paper's ways to delete (Golab and Özsu, SIGMOD 2005,
section 2.3). In the direct approach a row carries its expiration time exp: that is `until`. In
the negative tuple approach it does not (`until` is END), and a negative tuple follows: a row of
weight -1. A negative tuple for a row that carries its expiration ends where the row would have
ended, so it cancels the rest of the row's life.

INV-DELTA-1: the rows of a delta are in ascending order of `at`; every `at` lies in the instants the
delta is about, every interval is non-empty, no weight is zero.
INV-DELTA-2: deltas give R exactly at every instant. How a feed is cut into batches moves rows
between deltas and never changes their sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.model.time import END

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Delta:
    """Weighted rows with intervals of time.

    Attributes:
        rows: The rows; columns are known by position (`c0`, `c1`, …). Never without a column.
        at: int64, the instant from which each row counts.
        until: int64, the instant at which each row ceases to count; END: not known, or never.
        weight: int64, the number of copies, negative for a negative tuple.
        is_canonical: Whether it is known that the rows are net changes in canonical order
            (`engine/dataflow/net_changes.py`): no two rows of an instant are equal, weights are 1
            or -1, no row has a negative zero.
    """

    rows: pa.RecordBatch
    at: Ints
    until: Ints
    weight: Ints
    is_canonical: bool = field(default=False, kw_only=True)

    def __len__(self) -> int:
        return len(self.at)

    @staticmethod
    @lru_cache(maxsize=1024)
    def empty(schema: pa.Schema) -> Delta:
        none = np.empty(0, np.int64)
        arrays = [pa.array([], f.type) for f in schema]
        return Delta(pa.RecordBatch.from_arrays(arrays, schema=schema), none, none, none)

    @staticmethod
    def of(
        rows: pa.RecordBatch, at: Ints, until: Ints | None = None, weight: Ints | None = None
    ) -> Delta:
        """Make a delta; by default, single copies of rows whose end is not known."""
        if until is None:
            until = np.full(len(at), END, np.int64)
        if weight is None:
            weight = np.ones(len(at), np.int64)
        return Delta(rows, at, until, weight)

    @property
    def is_explicit(self) -> bool:
        """Whether no row carries its expiration, so that rows leave only by negative tuples."""
        return bool((self.until >= END).all())

    def take(self, places: Ints) -> Delta:
        return Delta(
            self.rows.take(pa.array(places)),
            self.at[places],
            self.until[places],
            self.weight[places],
        )

    def where(self, chosen: Bools, needed: Set[int] | None = None) -> Delta:
        """Select the rows where `chosen` is true; columns not in `needed` become NULLs."""
        if chosen.all():
            return self
        places = np.flatnonzero(chosen)
        if needed is None or len(needed) == self.rows.num_columns:
            return replace(self.take(places), is_canonical=self.is_canonical)
        wanted = sorted(needed)
        taken = self.rows.select(wanted).take(pa.array(places)) if wanted else None
        given = dict(zip(wanted, taken.columns, strict=True)) if taken is not None else {}
        rows = with_nulls(given, self.rows.schema, len(places))
        return Delta(rows, self.at[places], self.until[places], self.weight[places])

    def since(self, instant: int) -> Delta:
        """Restrict it to an instant and later: rows that came before come at that instant."""
        left = self.where(self.until > instant)
        return Delta(left.rows, np.maximum(left.at, instant), left.until, left.weight)

    def slice(self, lo: int, hi: int) -> Delta:
        """The rows [lo, hi), without copying."""
        return Delta(
            self.rows.slice(lo, hi - lo), self.at[lo:hi], self.until[lo:hi], self.weight[lo:hi]
        )

    def with_rows(self, rows: pa.RecordBatch) -> Delta:
        """Replace the rows; weights and intervals stay the same."""
        return Delta(rows, self.at, self.until, self.weight)

    def in_order(self) -> Delta:
        """Sort the rows by `at`; rows of one instant stay in their order."""
        if len(self) < 2 or bool((self.at[1:] >= self.at[:-1]).all()):
            return self
        return self.take(np.argsort(self.at, kind="stable"))

    def in_order_of_leaving(self) -> Delta:
        """Sort the rows by `at`, and rows of one instant by `until`."""
        later, same = self.at[1:] > self.at[:-1], self.at[1:] == self.at[:-1]
        if bool((later | (same & (self.until[1:] >= self.until[:-1]))).all()):
            return self
        return self.take(np.lexsort((self.until, self.at)))

    @staticmethod
    def together(deltas: Sequence[Delta]) -> Delta:
        """Add up deltas of one schema (at least one) and sort the rows by `at`."""
        some = [d for d in deltas if len(d)] or list(deltas[:1])
        if len(some) == 1:
            return some[0]
        return Delta(
            pa.concat_batches([d.rows for d in some]),
            np.concatenate([d.at for d in some]),
            np.concatenate([d.until for d in some]),
            np.concatenate([d.weight for d in some]),
        ).in_order()


def with_nulls(given: Mapping[int, pa.Array], schema: pa.Schema, length: int) -> pa.RecordBatch:
    """Make rows from some columns, given by their places; the other columns are NULLs."""
    types = schema.types
    arrays = [
        given[place] if place in given else _nulls(types[place], length)
        for place in range(len(types))
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


#: NULLs up to so many are made once and sliced.
_MANY = 1 << 16


def _nulls(type_: pa.DataType, length: int) -> pa.Array:
    if length > _MANY:
        return pa.nulls(length, type_)
    return _shared_nulls(type_, max(4_096, 1 << length.bit_length())).slice(0, length)


@lru_cache(maxsize=64)
def _shared_nulls(type_: pa.DataType, length: int) -> pa.Array:
    return pa.nulls(length, type_)


def places_in(columns: Iterable[object], width: int) -> frozenset[int]:
    """Find which of the first `width` columns are read.

    Args:
        columns: Columns by place, and expressions over `c0`, `c1`, …; anything else reads none. A
            text in an expression may look like a column, and then counts as one if there is one.
        width: How many columns there are.

    >>> sorted(places_in(["c1 > 2", "lower(c10) = 'c7'", 3, None], 8))
    [1, 3, 7]
    """
    given = list(columns)
    found = {column for column in given if isinstance(column, int)}
    found |= {int(p) for sql in given if isinstance(sql, str) for p in _PLACE.findall(sql)}
    return frozenset(place for place in found if place < width)


_PLACE = re.compile(r"\bc(\d+)\b")


def positional_schema(types: Sequence[pa.DataType]) -> pa.Schema:
    """Make the schema of an edge: columns named by position.

    >>> positional_schema([pa.int64()]).names
    ['c0']
    """
    return pa.schema([pa.field(f"c{i}", type_) for i, type_ in enumerate(types)])
