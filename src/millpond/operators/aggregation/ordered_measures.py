"""The measure that keeps values in order: for extremes and quantiles."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.model.patterns import Pattern
from millpond.operators.aggregation.measures import Argument, Batch, Measure, MeasureState
from millpond.operators.protocol.delta import Bools, Ints
from millpond.synopses.extremes import Extremes
from millpond.synopses.fifo_extremes import FifoExtremes
from millpond.synopses.order_keys import OrderKeys, make_order_keys, pick_valid
from millpond.synopses.ordered_multiset import OrderedMultisets


@dataclass(frozen=True)
class Picked(Measure):
    """Entries of a group's values in order: a trace of `Picks`.

    Attributes:
        argument: The values.
        kind: Which entries (`synopses.multiset_walks.LEAST` …).
        share: The quantile, in [0, 1].
    """

    argument: Argument
    kind: tuple[int, ...]
    share: float = 0.0

    def start(self, leaving: Pattern) -> MeasureState:
        return PickedValuesState(self, leaving)


@dataclass(frozen=True, eq=False)
class Picks:
    """The entries that were picked at each place.

    Attributes:
        keys: int64[places, entries]: the entries' keys.
        valid: Whether there were any values to pick from.
        counts: int64: the number of values to pick from.
        order: Turns keys into values.
    """

    keys: Ints
    valid: Bools
    counts: Ints
    order: OrderKeys

    def values(self, entry: int, places: Ints) -> pa.Array:
        """Get the values of an entry at some places."""
        return self.order.decode(self.keys[:, entry].take(places), pick_valid(self.valid, places))


#: What keeps each group's keys.
HeldKeys = OrderedMultisets | FifoExtremes | Extremes


def hold_keys(order: OrderKeys, kinds: tuple[int, ...], leaving: Pattern) -> HeldKeys:
    """Make what keeps each group's keys, for picks of some kinds of keys that leave so."""
    held: HeldKeys = OrderedMultisets()
    if Extremes.KINDS.issuperset(kinds) and leaving == Pattern.MONOTONIC:
        held = Extremes()
        order.in_use = held.list_keys
    elif FifoExtremes.KINDS.issuperset(kinds) and leaving == Pattern.WEAKEST:
        held = FifoExtremes()
    order.on_rekey = held.rekey
    return held


class PickedState(MeasureState):
    """Keeps values of each group in order, and picks some of them.

    Args:
        order: Makes the values' keys.
        kinds, share: As `Picked` has them.
        leaving: How rows leave a group.
    """

    def __init__(
        self, order: OrderKeys, kinds: tuple[int, ...], share: float, leaving: Pattern
    ) -> None:
        self._kinds = np.array(kinds, np.int64)
        self._shares: npt.NDArray[Any] = np.full(len(kinds), share)
        self._order = order
        self._held = hold_keys(order, kinds, leaving)

    @abstractmethod
    def read(self, batch: Batch) -> tuple[pa.Array, Ints, Ints]:
        """Read what is put in order of a batch.

        Returns:
            The value of each change; how many of it come or go; and the same in the order of the
            cells, without copies that do not count.
        """

    def advance(self, batch: Batch) -> Picks:
        values, placed, weights = self.read(batch)
        keys = self._order.encode(values, placed)
        self._held.reserve(batch.groups)
        trace = self._held.walk(batch.cells, weights, keys, self._kinds, self._shares)
        counts = trace[:, -1]
        return Picks(trace[:, :-1], counts > 0, counts, self._order)

    def renumber(self, moved: Ints, groups: int) -> None:
        self._held.renumber(moved, groups)

    def size(self) -> int:
        return self._held.size() + self._order.size()


class PickedValuesState(PickedState):
    """Keeps `Picked`."""

    def __init__(self, measure: Picked, leaving: Pattern) -> None:
        order = make_order_keys(measure.argument.type)
        super().__init__(order, measure.kind, measure.share, leaving)
        self._argument = measure.argument

    def read(self, batch: Batch) -> tuple[pa.Array, Ints, Ints]:
        placed = batch.placed_weights(self._argument)
        return batch.column(self._argument.column), placed, batch.weights(self._argument)
