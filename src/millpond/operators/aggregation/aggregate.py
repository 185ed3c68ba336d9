"""The protocol of aggregates: a value of each group, followed through a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.operators.aggregation.cells import find_differences
from millpond.operators.aggregation.measures import Argument, Batch
from millpond.operators.aggregation.ordered_measures import Picks
from millpond.operators.protocol.delta import Bools, Ints
from millpond.synopses.order_keys import pick_valid, to_decimals, to_mask
from millpond.synopses.valued_orders import OrderTerm


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate as a query calls it.

    Attributes:
        name: The function's name in DuckDB.
        argument: The argument that it is called with.
        of: The type of the argument's column; None for `COUNT(*)`.
        gives: The type of its value, as DuckDB has it.
        share: The quantile, in [0, 1].
        descending: Whether the quantile counts from the greatest value.
        by: The second argument of `arg_max` and its like: what is the greatest.
        text: The second argument, if it is a constant text.
        order: What the call orders its rows by itself: columns, and how each of them orders.
        stamps: The columns that say in which order the rows came, of a call that shows it.
    """

    name: str
    argument: Argument
    of: pa.DataType | None
    gives: pa.DataType
    share: float | None = None
    descending: bool = False
    by: Argument | None = None
    text: str | None = None
    order: tuple[tuple[int | str, OrderTerm], ...] = ()
    stamps: tuple[int, ...] = ()


class Trace(Protocol):
    """An aggregate's values at the places of a batch's traces (`operators.cells`)."""

    def differs(self) -> Bools:
        """Find, for each place but the last, whether the value at the next place differs."""
        ...

    def values(self, places: Ints) -> pa.Array:
        """Pick the values at some places."""
        ...


@dataclass(frozen=True)
class Aggregate(ABC):
    """An aggregate of a grouping; a dataclass of plain values, so that equal aggregates are equal.

    Attributes:
        argument: The changes that take part.
        type: The type of its values.
    """

    argument: Argument
    type: pa.DataType

    @property
    def is_extreme(self) -> bool:
        """Whether it is of the least or the greatest row: most other rows do not change it."""
        return False

    @property
    def columns(self) -> tuple[int | str | None, ...]:
        """The columns it reads, by place or as SQL."""
        return (self.argument.column, self.argument.chosen)

    @abstractmethod
    def trace(self, batch: Batch) -> Trace:
        """Compute its values in a batch from measures, which it asks the batch for."""

    def of_nothing(self) -> Any:
        """Its value over no rows, as `SELECT aggregate` without GROUP BY gives it."""
        return None


@dataclass(frozen=True, eq=False)
class NumberTrace:
    """A trace of numbers, NULL where not valid."""

    numbers: npt.NDArray[Any]
    valid: Bools | None
    type: pa.DataType

    def differs(self) -> Bools:
        return find_differences(self.numbers, self.valid)

    def values(self, places: Ints) -> pa.Array:
        mask = to_mask(pick_valid(self.valid, places))
        values = pa.array(self.numbers.take(places), mask=mask)
        if values.type == self.type:
            return values
        is_time = pa.types.is_timestamp(self.type)
        return values.view(self.type) if is_time else values.cast(self.type)


@dataclass(frozen=True, eq=False)
class TwoWordTrace:
    """A trace of 128-bit numbers (low, high), as decimals; NULL where not valid."""

    words: Ints
    valid: Bools
    type: pa.DataType

    def differs(self) -> Bools:
        return find_differences(self.words, self.valid)

    def values(self, places: Ints) -> pa.Array:
        words = self.words.take(places, axis=0)
        return to_decimals(words, pick_valid(self.valid, places), self.type)


@dataclass(frozen=True, eq=False)
class EntryTrace:
    """A trace of one of the entries that a `Picked` measure picks from sorted values."""

    picks: Picks
    entry: int
    type: pa.DataType

    def differs(self) -> Bools:
        return find_differences(self.picks.keys[:, self.entry], self.picks.valid)

    def values(self, places: Ints) -> pa.Array:
        values = self.picks.values(self.entry, places)
        return values if values.type == self.type else values.cast(self.type)


def normalize_doubles(
    values: npt.NDArray[np.float64], valid: Bools | None
) -> npt.NDArray[np.float64]:
    """Make equal doubles equal in their bits: one NaN, one zero, one value for NULL."""
    values = values + 0.0
    values[np.isnan(values)] = np.nan
    if valid is not None:
        values[~valid] = 0.0
    return values
