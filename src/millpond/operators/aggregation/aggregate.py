"""What an aggregate is: a value of each group, followed through a batch."""

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
from millpond.synopses.order_keys import to_decimals


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate as a query calls it.

    Attributes:
        name: The function, as DuckDB calls it.
        argument: What it is called on.
        of: The type of the argument's column; None for `COUNT(*)`.
        gives: The type of its value, by DuckDB.
        share: The quantile, in [0, 1].
        descending: Whether the quantile counts from the greatest value.
    """

    name: str
    argument: Argument
    of: pa.DataType | None
    gives: pa.DataType
    share: float | None = None
    descending: bool = False


class Trace(Protocol):
    """An aggregate's values at the places of a batch's traces (`operators.cells`)."""

    def differs(self) -> Bools:
        """For each place but the last, whether the next one's value is another."""
        ...

    def values(self, places: Ints) -> pa.Array:
        """The values at some places."""
        ...


@dataclass(frozen=True)
class Aggregate(ABC):
    """An aggregate of a grouping: plain values, so that equal ones are equal.

    Attributes:
        argument: Which changes it is about.
        type: Its values'.
    """

    argument: Argument
    type: pa.DataType

    @abstractmethod
    def trace(self, batch: Batch) -> Trace:
        """Its values in a batch; asks the batch for the measures it is made of."""

    def of_nothing(self) -> Any:
        """Its value over no rows: what `SELECT aggregate` without GROUP BY gives then."""
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
        mask = None if self.valid is None else ~self.valid[places]
        values = pa.array(self.numbers[places], mask=mask)
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
        return to_decimals(self.words[places], self.valid[places], self.type)


@dataclass(frozen=True, eq=False)
class EntryTrace:
    """A trace of one of the entries that were picked from values in order."""

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
    """Doubles that look equal where they are: one NaN, one zero, and something where NULL."""
    values = values + 0.0
    values[np.isnan(values)] = np.nan
    if valid is not None:
        values[~valid] = 0.0
    return values
