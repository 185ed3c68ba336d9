"""The measure that keeps values in order: for extremes and quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.operators.aggregation.measures import Argument, Batch, Measure, MeasureState
from millpond.operators.protocol.delta import Bools, Ints
from millpond.synopses.extremes import Extremes
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

    def start(self, only_grows: bool) -> MeasureState:
        return PickedState(self.argument, self.kind, self.share, only_grows)


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


def hold_keys(
    order: OrderKeys, kinds: tuple[int, ...], only_grows: bool
) -> OrderedMultisets | Extremes:
    """Make what keeps each group's keys, for picks of some kinds."""
    held: OrderedMultisets | Extremes = OrderedMultisets()
    if only_grows and Extremes.KINDS.issuperset(kinds):
        held = Extremes()
        order.in_use = held.list_keys
    order.on_rekey = held.rekey
    return held


class PickedState(MeasureState):
    """Keeps `Picked`."""

    def __init__(
        self, argument: Argument, kind: tuple[int, ...], share: float, only_grows: bool
    ) -> None:
        self._argument = argument
        self._kinds = np.array(kind, np.int64)
        self._shares: npt.NDArray[Any] = np.full(len(kind), share)
        self._order = make_order_keys(argument.type)
        self._held = hold_keys(self._order, kind, only_grows)

    def advance(self, batch: Batch) -> Picks:
        weights = batch.placed_weights(self._argument)
        keys = self._order.encode(batch.column(self._argument.column), weights)
        self._held.reserve(batch.groups)
        in_order = batch.weights(self._argument)
        trace = self._held.walk(batch.cells, in_order, keys, self._kinds, self._shares)
        counts = trace[:, -1]
        return Picks(trace[:, :-1], counts > 0, counts, self._order)

    def renumber(self, moved: Ints, groups: int) -> None:
        self._held.renumber(moved, groups)

    def size(self) -> int:
        return self._held.size() + self._order.size()
