"""The rows that group-bys put out for a batch: a group's old row is taken back, its new row given.

Group-bys of one grouping change mostly at the same cells: all that count their rows do, at every
cell. So what depends on the cells alone is made once for all of them: which rows there are, of
which groups, at which instants (an `Emission`), and the columns of the keys. Columns of equal
aggregates are made once too, and lie in the outputs of all group-bys that show them.

INV-EMIT-1: where a group-by shows all keys, its rows are net changes in canonical order
(`Delta.is_canonical`). At an instant each group has one row before and one after, these differ, and
the keys tell the rows of groups apart; so the keys, which are the first columns, say the order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.model.kept_property import kept_property
from millpond.model.time import END
from millpond.operators.aggregation.aggregate import Aggregate, Trace
from millpond.operators.aggregation.cells import Cells
from millpond.operators.aggregation.measures import Batch
from millpond.operators.protocol.delta import Bools, Delta, Ints
from millpond.operators.structures.value_words import make_words

_BOOL = types.Array(types.boolean, 1, "C", readonly=True)


@dataclass(frozen=True, eq=False)
class Emission:
    """The rows of a batch of cells: old rows as negative tuples, new rows as positive.

    Attributes:
        place: int64, the place in the traces that each row's values come from.
        group: int64, each row's group, as a place in `Cells.groups`.
        at: int64, each row's instant; ascending, negative rows first within an instant.
        weight: int64, −1 or 1.
        crowds: int64[., 2], the rows from and to which an instant has rows of several cells.
        columns: The columns made so far, by the key or the aggregate that they show.
    """

    place: Ints
    group: Ints
    at: Ints
    weight: Ints
    crowds: Ints
    columns: dict[Any, pa.Array] = field(default_factory=dict, repr=False)

    @kept_property
    def until(self) -> Ints:
        """No row's end is known."""
        return np.full(len(self.at), END, np.int64)

    def column(self, shown: Any, make: Callable[[], pa.Array]) -> pa.Array:
        """Get the column that shows a key or an aggregate; make it when it is first asked for."""
        found = self.columns.get(shown)
        if found is None:
            found = self.columns[shown] = make()
        return found

    def sort_crowds(self, keys: Callable[[Ints], list[pa.Array]]) -> None:
        """Put the rows of each instant in the order of their signs, and then of their keys.

        Args:
            keys: Takes the keys' columns for some groups.
        """
        if not len(self.crowds):
            return
        lengths = self.crowds[:, 1] - self.crowds[:, 0]
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1]) + np.repeat(self.crowds[:, 0] - ends + lengths, lengths)
        words = [word for key in keys(self.group[places]) for word in make_words(key)]
        order = np.lexsort((*reversed(words), self.weight[places], self.at[places]))
        for column in (self.place, self.group, self.weight):
            column[places] = column[places[order]]


def emit(cells: Cells, changed: Bools, exists: Bools) -> Emission:
    """Find the rows for the cells that change their group's row.

    Args:
        changed: For each place of a trace but the last, whether the values at it and at the next
            place differ; entries between two groups are ignored.
        exists: For each place of a trace, whether the group has a row there.
    """
    most = 2 * len(cells.at)
    place, group = np.empty(most, np.int64), np.empty(most, np.int64)
    at, weight = np.empty(most, np.int64), np.empty(most, np.int64)
    crowds = np.empty(most, np.int64)
    instants, owners = cells.in_time
    count, several = _emit(
        instants, owners, cells.by_time, changed, exists, place, group, at, weight, crowds
    )
    crowded = crowds[: 2 * several].reshape(-1, 2)
    return Emission(place[:count], group[:count], at[:count], weight[:count], crowded)


@compiled(
    types.UniTuple(types.int64, 2)(
        READ_I64, READ_I64, READ_I64, _BOOL, _BOOL, I64, I64, I64, I64, I64
    )
)
def _emit(instants, owners, by_time, changed, exists, place, group, at, weight, crowds):  # type: ignore[no-untyped-def]
    cells = len(by_time)
    out = 0
    several = 0
    k = 0
    while k < cells:
        instant = instants[k]
        first = out
        end = k
        while end < cells and instants[end] == instant:
            g = owners[end]
            before = by_time[end] + g
            if exists[before] and (not exists[before + 1] or changed[before]):
                place[out] = before
                group[out] = g
                at[out] = instant
                weight[out] = -1
                out += 1
            end += 1
        for j in range(k, end):
            g = owners[j]
            before = by_time[j] + g
            if exists[before + 1] and (not exists[before] or changed[before]):
                place[out] = before + 1
                group[out] = g
                at[out] = instant
                weight[out] = 1
                out += 1
        if end - k > 1 and out - first > 1:
            crowds[2 * several] = first
            crowds[2 * several + 1] = out
            several += 1
        k = end
    return out, several


class Emissions:
    """The emissions of one batch, for all group-bys that read it."""

    def __init__(self, batch: Batch, keys: Sequence[pa.Array], exists: Bools) -> None:
        """Prepare to emit.

        Args:
            batch: The batch.
            keys: The keys' columns, of the batch's rows.
            exists: For each place of a trace, whether the group has a row there.
        """
        self._batch, self._keys, self._exists = batch, tuple(keys), exists
        self._traces: dict[Aggregate, Trace] = {}
        self._differs: dict[Aggregate, Bools] = {}
        #: The emissions so far: the keys that are in order, the cells that change, the rows.
        self._made: list[tuple[tuple[int, ...], Bools, Emission]] = []

    def emit(
        self, shown: tuple[int, ...], aggregates: Sequence[Aggregate], schema: pa.Schema
    ) -> Delta:
        """Make the rows of a group-by.

        Args:
            shown: The keys that are its first columns, by place.
            aggregates: The further columns.
            schema: The columns' names and types.
        """
        is_canonical = set(shown) == set(range(len(self._keys)))
        found = self._find(self._find_changed(aggregates), shown if is_canonical else ())
        columns = [found.column(p, partial(self._take_key, p, found.group)) for p in shown]
        columns += [found.column(a, partial(self._pick, a, found.place)) for a in aggregates]
        pairs = zip(columns, schema, strict=True)
        fitted = [c if c.type == f.type else c.cast(f.type) for c, f in pairs]
        rows = pa.RecordBatch.from_arrays(fitted, schema=schema)
        return Delta(rows, found.at, found.until, found.weight, is_canonical=is_canonical)

    def _take_key(self, place: int, groups: Ints) -> pa.Array:
        return self._keys[place].take(pa.array(self._batch.cells.representatives.take(groups)))

    def _pick(self, aggregate: Aggregate, places: Ints) -> pa.Array:
        return self._trace(aggregate).values(places)

    def _find(self, changed: Bools, in_order: tuple[int, ...]) -> Emission:
        """Find the rows of group-bys that change at these cells."""
        for keys, cells, emission in self._made:
            if keys == in_order and np.array_equal(cells, changed):
                return emission
        emission = emit(self._batch.cells, changed, self._exists)
        if in_order:
            emission.sort_crowds(lambda g: [self._take_key(p, g) for p in in_order])
        self._made.append((in_order, changed, emission))
        return emission

    def _find_changed(self, aggregates: Sequence[Aggregate]) -> Bools:
        """Find the cells at which any of these aggregates changes, and the seams of groups."""
        changed = self._batch.cells.seams
        for one in aggregates:
            if not changed.all():
                changed = changed | self._find_differences(one)
        return changed

    def _find_differences(self, aggregate: Aggregate) -> Bools:
        found = self._differs.get(aggregate)
        if found is None:
            found = self._differs[aggregate] = self._trace(aggregate).differs()
        return found

    def _trace(self, aggregate: Aggregate) -> Trace:
        found = self._traces.get(aggregate)
        if found is None:
            found = self._traces[aggregate] = aggregate.trace(self._batch)
        return found
