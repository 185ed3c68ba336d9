"""The mutable sides of what a Query SteM is made of: blocks of queries, and indexes of led ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from millpond.engine.matching.grouped_filter import BLOCK, MOST_REGIONS, Block
from millpond.engine.matching.led_queries import LedQueries
from millpond.engine.matching.predicate_columns import PredicateColumns

#: A block with fewer queries than this share of its room is merged with others.
_SPARSE = 4
_NONE = np.zeros(0, np.int64)


def _free_slots() -> npt.NDArray[np.int64]:
    return np.full(BLOCK, -1, np.int64)


@dataclass(slots=True, eq=False)
class BlockDraft:
    """The mutable side of a block: its slots, and the block as last built."""

    slots: npt.NDArray[np.int64] = field(default_factory=_free_slots)  # by position, -1 if free
    packed: list[bytes] = field(default_factory=lambda: [b""] * BLOCK)  # factors, by position
    size: int = 0
    cuts: dict[str, int] = field(default_factory=dict)  # attribute -> cuts, at most
    built: Block | None = None

    def take(self, slot: int, packed: bytes) -> int:
        """Give the slot the first free position."""
        position = int(self.slots.argmin())
        self.slots[position] = slot
        self.packed[position] = packed
        self.size += 1
        self.built = None
        return position

    def leave(self, position: int) -> bytes:
        """Free the position; return the packed factors that were there."""
        packed = self.packed[position]
        self.slots[position] = -1
        self.packed[position] = b""
        self.size -= 1
        self.built = None
        return packed

    def members(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (position, slot, packed factors) of each slot, by position."""
        for position in np.flatnonzero(self.slots >= 0).tolist():
            yield position, int(self.slots[position]), self.packed[position]

    @property
    def is_thin(self) -> bool:
        """Whether most of the block's room is empty, both for queries and for cuts."""
        return self.size * _SPARSE < BLOCK and all(
            n * _SPARSE < MOST_REGIONS for n in self.cuts.values()
        )

    def has_room(self, cuts: Mapping[str, int]) -> bool:
        return self.size < BLOCK and all(
            self.cuts.get(a, 0) + n <= MOST_REGIONS for a, n in cuts.items()
        )


@dataclass(slots=True, eq=False)
class LedIndex:
    """The mutable side of an index: which of its queries were removed."""

    led: LedQueries
    removed: npt.NDArray[np.bool_]
    gone: npt.NDArray[np.int64] = field(default_factory=lambda: _NONE)  # as of the last snapshot
    size: int = 0

    @staticmethod
    def of(led: LedQueries) -> LedIndex:
        return LedIndex(led, np.zeros(len(led), np.bool_), size=len(led))

    def find(self, slot: int) -> int | None:
        """Return a slot's place, if it is there and was not removed."""
        slots = self.led.columns.slots
        place = int(np.searchsorted(slots, slot))
        is_there = place < len(slots) and slots[place] == slot and not self.removed[place]
        return place if is_there else None

    def remove(self, place: int) -> None:
        self.removed[place] = True
        self.size -= 1

    def find_gone(self) -> npt.NDArray[np.int64]:
        """List the places that were removed."""
        if len(self.gone) + self.size != len(self.led):
            self.gone = np.flatnonzero(self.removed)
        return self.gone

    @property
    def is_thin(self) -> bool:
        return self.size * 2 < len(self.led)

    def live(self) -> PredicateColumns:
        """Return the predicates of the queries that were not removed."""
        columns = self.led.columns
        return columns.select(np.flatnonzero(~self.removed)) if len(self.find_gone()) else columns
