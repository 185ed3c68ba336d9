"""The measures of aggregates, and the batch that they follow.

A **measure** is a value kept for every group and followed through a batch's cells: the number of
rows, the sum of a column, the values in order. Aggregates are functions of measures, and equal
measures are kept once: `SUM(x)`, `AVG(x)` and `COUNT(x)` of one grouping, in one query or in
several, are two measures. A `Measure` describes what to keep (plain values, hashable); the
`MeasureState` that it makes keeps the values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.model.patterns import Pattern
from millpond.operators.aggregation.cells import Cells
from millpond.operators.protocol.delta import Ints
from millpond.operators.protocol.node import Scalars
from millpond.synopses.mapped_memory import allocate_like
from millpond.synopses.order_keys import make_order_keys
from millpond.synopses.ordered_multiset import OrderedMultisets


@dataclass(frozen=True)
class Argument:
    """The changes that take part in a measure, and the column that it measures.

    A column is a place, or SQL over `c0`, `c1`, …, computed once for all measures of a batch.

    Attributes:
        column: The column to measure; its NULLs take no part. None: every row takes part.
        type: The column's type.
        chosen: A boolean column; only rows where it is true take part. None: all rows.
        distinct: Whether a value counts once in a group, however many copies it has.
    """

    column: int | str | None = None
    type: pa.DataType | None = None
    chosen: int | str | None = None
    distinct: bool = False


class MeasureState(ABC):
    """Keeps a measure's values for every group."""

    @abstractmethod
    def advance(self, batch: Batch) -> Any:
        """Follow a batch; return the measure's trace, which the batch keeps for all aggregates."""

    @abstractmethod
    def renumber(self, moved: Ints, groups: int) -> None:
        """Move the values of group i to group moved[i]; −1: group i has no rows, forget it."""

    @abstractmethod
    def size(self) -> int:
        """The size of the kept values, in bytes."""


class Measure(ABC):
    """Describes a measure; a frozen dataclass of plain values."""

    @abstractmethod
    def start(self, leaving: Pattern) -> MeasureState:
        """Start measuring, when no group has rows; `leaving` says how rows leave a group."""


class Batch:
    """A grouping's changes of one step, with the columns and traces computed so far.

    Attributes:
        rows: The changes' rows.
        cells: The changes' layout.
        groups: The bound of the groups' numbers.
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
        """Get a column of the rows."""
        assert column is not None
        if isinstance(column, int):
            return self.rows.column(column)
        found = self._columns.get(column)
        if found is None:
            (found,) = self._scalars.compute(self.rows, [column])
            self._columns[column] = found
        return found

    def numeric(self, column: int | str | None, read: Callable[[pa.Array], Any]) -> Any:
        """Get a column's values as an array; `read` converts them, once a batch."""
        found = self._numeric.get((column, read))
        if found is None:
            found = self._numeric[column, read] = read(self.column(column))
        return found

    def weights(self, argument: Argument) -> Ints:
        """Compute the weight with which each change takes part, in the order of the cells."""
        found = self._weights.get(argument)
        if found is None:
            if argument.distinct:
                found = self.trace(Distinct(argument))
            else:
                placed, every = self.placed_weights(argument), Argument()
                takes_all = placed is self._placed[every] and argument != every
                found = self.weights(every) if takes_all else placed.take(self.cells.order)
            self._weights[argument] = found
        return found

    def placed_weights(self, argument: Argument) -> Ints:
        """Compute `weights` in the order of the rows, with all copies of a value (no DISTINCT)."""
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
        """Get the trace of a measure for this batch."""
        found = self._traces.get(measure)
        if found is None:
            found = self._traces[measure] = self._kept.advance(measure, self)
        return found


class Measures:
    """The measures of one grouping.

    INV-MEASURE-1: a measure follows every batch, or it is dropped. It begins when no group has
    rows. If no aggregate asks for a measure in a batch, the measure has missed that batch and is
    dropped. An aggregate asks for its measures in every batch, so none needs a dropped measure.

    Args:
        leaving: How rows leave a group: MONOTONIC, not at all; WEAKEST, in the order in which they
            came, those of one instant at one instant; any other, in any order.
    """

    def __init__(self, leaving: Pattern = Pattern.STRICT) -> None:
        self._leaving = leaving
        self._kept: dict[Measure, MeasureState] = {}
        self._asked: set[Measure] = set()
        self._may_begin = True

    def begin(self, may_begin: bool) -> None:
        """Prepare for a batch; measures may begin with it if no group has rows (`may_begin`)."""
        self._kept = {m: kept for m, kept in self._kept.items() if m in self._asked}
        self._asked.clear()
        self._may_begin = may_begin

    def advance(self, measure: Measure, batch: Batch) -> Any:
        """Advance a measure by a batch; called once for each batch and measure."""
        kept = self._kept.get(measure)
        if kept is None:
            if not self._may_begin:
                raise AssertionError("a measure that begins among rows")
            kept = self._kept[measure] = measure.start(self._leaving)
        self._asked.add(measure)
        return kept.advance(batch)

    def follow(self, batch: Batch) -> None:
        """Advance all measures by a batch of which no aggregate is told."""
        for measure in list(self._asked):
            batch.trace(measure)

    def renumber(self, moved: Ints, groups: int) -> None:
        """Renumber the groups of all measures, as `MeasureState.renumber` does."""
        for kept in self._kept.values():
            kept.renumber(moved, groups)

    def absorb(self, other: Measures, moved: Ints, groups: int) -> None:
        """Take over the measures that only another grouping of the same rows has."""
        other.renumber(moved, groups)
        for measure, kept in other._kept.items():
            if measure not in self._kept or measure not in self._asked:
                self._kept[measure] = kept
                self._asked.add(measure)

    def size(self) -> int:
        """The size of the kept values, in bytes."""
        return sum(kept.size() for kept in self._kept.values())


@dataclass(frozen=True)
class Distinct(Measure):
    """The changes by which values appear in a group or disappear: DISTINCT inside an aggregate."""

    argument: Argument

    def start(self, leaving: Pattern) -> MeasureState:
        return DistinctState(self.argument)


class DistinctState(MeasureState):
    """Keeps `Distinct`: the values of each group, with their counts."""

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


def move_rows(array: npt.NDArray[Any], moved: Ints, groups: int) -> npt.NDArray[Any]:
    """Move the entries of an array by group to the groups' new numbers; −1: forget the entry."""
    fresh = allocate_like(array, (groups, *array.shape[1:]))
    numbers = moved[: len(array)]
    stays = numbers >= 0
    fresh[numbers[stays]] = array[: len(numbers)][stays]
    return fresh
