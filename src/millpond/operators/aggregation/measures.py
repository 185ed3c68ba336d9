"""What aggregates measure, and the batch they measure in.

A **measure** is something kept of every group and followed through a batch's cells: how many rows,
the sum of a column, the values in order. Aggregates are functions of measures, and equal measures
are kept once: `SUM(x)`, `AVG(x)` and `COUNT(x)` of one grouping, be they of one query or of
several, are two measures. A `Measure` says what is kept (plain values, hashable); the `Measuring`
it makes keeps it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.operators.aggregation.cells import Cells
from millpond.operators.protocol.delta import Ints
from millpond.operators.protocol.node import Scalars
from millpond.synopses.order_keys import make_order_keys
from millpond.synopses.ordered_multiset import OrderedMultisets


@dataclass(frozen=True)
class Argument:
    """Which changes take part in a measure, and with what.

    Columns are known by their place, or are SQL over `c0`, `c1`, …, computed once for all
    measures of a batch.

    Attributes:
        column: What is measured; NULLs take no part. None: every row.
        type: The column's type.
        chosen: A boolean; only rows where it is true take part.
        distinct: Whether a value counts once in a group, however often it is there.
    """

    column: int | str | None = None
    type: pa.DataType | None = None
    chosen: int | str | None = None
    distinct: bool = False


class Measuring(ABC):
    """A measure at work."""

    @abstractmethod
    def advance(self, batch: Batch) -> Any:
        """Follows the batch; what it gives is kept with the batch, for whoever asks."""

    @abstractmethod
    def renumber(self, moved: Ints, groups: int) -> None:
        """Puts what is kept of group i where group moved[i] is; −1: it has none left, forget it."""

    @abstractmethod
    def size(self) -> int:
        """Bytes kept."""


class Measure(ABC):
    """What is measured; a frozen dataclass of plain values."""

    @abstractmethod
    def start(self) -> Measuring:
        """Its beginning, when no group has anything."""


class Batch:
    """A grouping's changes of one step, with what was computed of them so far.

    Attributes:
        rows: The changes' rows.
        cells: How they lie.
        groups: How many groups there may be: numbers are smaller.
    """

    def __init__(
        self,
        rows: pa.RecordBatch,
        weight: Ints,
        cells: Cells,
        groups: int,
        kept: Measures,
        scalars: Scalars,
    ) -> None:
        self.rows = rows
        self.cells = cells
        self.groups = groups
        self._kept = kept
        self._scalars = scalars
        self._placed: dict[Argument, Ints] = {Argument(): weight}
        self._weights: dict[Argument, Ints] = {}
        self._columns: dict[str, pa.Array] = {}
        self._numeric: dict[tuple[int | str | None, Any], Any] = {}
        self._traces: dict[Measure, Any] = {}

    def column(self, column: int | str | None) -> pa.Array:
        """A column of the rows."""
        assert column is not None
        if isinstance(column, int):
            return self.rows.column(column)
        found = self._columns.get(column)
        if found is None:
            (found,) = self._scalars.compute(self.rows, [column])
            self._columns[column] = found
        return found

    def numeric(self, column: int | str | None, read: Callable[[pa.Array], Any]) -> Any:
        """A column's values as an array, by a function that reads them; read once."""
        found = self._numeric.get((column, read))
        if found is None:
            found = self._numeric[column, read] = read(self.column(column))
        return found

    def weights(self, argument: Argument) -> Ints:
        """The weight with which each change takes part, in the order of the cells."""
        found = self._weights.get(argument)
        if found is None:
            if argument.distinct:
                found = self.trace(Distinct(argument))
            else:
                found = self.placed_weights(argument)[self.cells.order]
            self._weights[argument] = found
        return found

    def placed_weights(self, argument: Argument) -> Ints:
        """As `weights`, in the order of the rows, and with every copy of a value."""
        nulls = argument.column
        key = Argument(nulls, None, argument.chosen)
        found = self._placed.get(key)
        if found is None:
            takes = None
            if nulls is not None and (column := self.column(nulls)).null_count:
                takes = column.is_valid().to_numpy(zero_copy_only=False)
            if argument.chosen is not None:
                chosen = self.column(argument.chosen).fill_null(False)
                mask = chosen.to_numpy(zero_copy_only=False)
                takes = mask if takes is None else takes & mask
            every = self._placed[Argument()]
            found = every if takes is None else np.where(takes, every, 0)
            self._placed[key] = found
        return found

    def trace(self, measure: Measure) -> Any:
        """What a measure gives for this batch."""
        found = self._traces.get(measure)
        if found is None:
            found = self._traces[measure] = self._kept.advance(measure, self)
        return found


class Measures:
    """The measures of one grouping.

    INV-MEASURE-1: a measure follows every batch, or it is gone. It begins when no group has rows;
    one that nobody asked for in a batch has missed it and is dropped. Whoever asks, asks in every
    batch, so nobody misses it later.
    """

    def __init__(self) -> None:
        self._kept: dict[Measure, Measuring] = {}
        self._asked: set[Measure] = set()
        self._may_begin = True

    def begin(self, may_begin: bool) -> None:
        """Before a batch; `may_begin` if no group has rows."""
        self._kept = {m: kept for m, kept in self._kept.items() if m in self._asked}
        self._asked.clear()
        self._may_begin = may_begin

    def advance(self, measure: Measure, batch: Batch) -> Any:
        """Follows a batch; called once for each batch and measure."""
        kept = self._kept.get(measure)
        if kept is None:
            if not self._may_begin:
                raise AssertionError("a measure that begins among rows")
            kept = self._kept[measure] = measure.start()
        self._asked.add(measure)
        return kept.advance(batch)

    def renumber(self, moved: Ints, groups: int) -> None:
        """As `Measuring.renumber`, of all."""
        for kept in self._kept.values():
            kept.renumber(moved, groups)

    def absorb(self, other: Measures, moved: Ints, groups: int) -> None:
        """Takes over the measures that another grouping of the same rows has beside these."""
        other.renumber(moved, groups)
        for measure, kept in other._kept.items():
            if measure not in self._kept or measure not in self._asked:
                self._kept[measure] = kept
                self._asked.add(measure)

    def size(self) -> int:
        """Bytes kept."""
        return sum(kept.size() for kept in self._kept.values())


@dataclass(frozen=True)
class Distinct(Measure):
    """Which changes make a value appear in a group, or disappear: DISTINCT inside an aggregate."""

    argument: Argument

    def start(self) -> Measuring:
        return Distinguishing(self.argument)


class Distinguishing(Measuring):
    """`Distinct` at work: the values of each group, with their counts."""

    def __init__(self, argument: Argument) -> None:
        self._argument = argument
        self._keys = make_order_keys(argument.type)
        self._held = OrderedMultisets()
        self._keys.on_rekey = self._held.rekey

    def advance(self, batch: Batch) -> Ints:
        weights = batch.placed_weights(self._argument)
        keys = self._keys.encode(batch.column(self._argument.column), weights)
        self._held.reserve(batch.groups)
        return self._held.find_transitions(batch.cells, weights[batch.cells.order], keys)

    def renumber(self, moved: Ints, groups: int) -> None:
        self._held.renumber(moved, groups)

    def size(self) -> int:
        return self._held.size() + self._keys.size()


def grow_by_group(array: npt.NDArray[Any], groups: int) -> npt.NDArray[Any]:
    """An array by group with room for so many; what is new is zero."""
    if groups <= len(array):
        return array
    fresh = np.zeros((max(groups, 2 * len(array)), *array.shape[1:]), array.dtype)
    fresh[: len(array)] = array
    return fresh


def move_rows(array: npt.NDArray[Any], moved: Ints, groups: int) -> npt.NDArray[Any]:
    """An array by group after groups got other numbers; −1: forgotten."""
    fresh = np.zeros((groups, *array.shape[1:]), array.dtype)
    numbers = moved[: len(array)]
    stays = numbers >= 0
    fresh[numbers[stays]] = array[: len(numbers)][stays]
    return fresh
