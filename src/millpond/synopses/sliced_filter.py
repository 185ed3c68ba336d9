"""A Bloom filter by slices of time: is a key there, at an instant? Rarely wrongly yes.

A key is put in with the instant from which it is there and the one at which it leaves. The second
is rounded up to the end of a slice, and each slice has a filter of its own, which is forgotten as a
whole when it ends (PRESSURE.md, section 3; a filter of instants would take 64 bits for each bit).
So a key is never missed, and counts for less than a slice too long.

A slice's filter is made of parts: one of `_LEAST_KEYS` keys, and when it is full, one of half as
many more. The share of wrong answers that a filter may give is divided among all slices that can be
there at once, and a slice's among its parts, as 1/2, 1/6, 1/12, …. So it holds for any number of
keys, and nobody has to know beforehand how many there will be.

Keys are put in in the order in which they come, and one that a slice seems to have is left out of
it. So the bits are a function of the keys in that order, however they are cut into calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from numba import types

from millpond.model.compiled import I64, READ_I64, READ_U64, U8, U64, compiled
from millpond.model.time import BEGINNING, END

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

#: Room for keys of a slice's first part, and how many keys are put in at a time.
_LEAST_KEYS, _AT_ONCE = 64, 1 << 14
#: How many times the keys of a part the next one has room for.
_GROWTH = 1.5


@compiled(types.uint64(types.uint64, types.uint64, types.uint64))
def _locate(value, probe, bits):  # type: ignore[no-untyped-def]
    """The place of a hash's n-th bit among so many (fewer than 2^32)."""
    step = (value >> np.uint64(17)) * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
    mixed = value + probe * step
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed >> np.uint64(32)) * bits) >> np.uint64(32)


@compiled(
    types.void(READ_U64, READ_I64, U8, types.int64, types.int64, U64, types.int64, I64, I64, I64)
)
def _put(hashes, at, known, start, room, words, probes, new_bits, new_at, counts):  # type: ignore[no-untyped-def]
    """Put in hashes that are not known, from `start` on, until there is no room.

    `counts` is given back: where it stopped, how many keys went in, how many bits were set anew;
    those are in `new_bits`, and in `new_at` since when.
    """
    bits = np.uint64(64 * len(words))
    added = found = 0
    row = start
    while row < len(hashes) and added < room:
        if not known[row]:
            before = found
            for probe in range(probes):
                bit = _locate(hashes[row], np.uint64(probe), bits)
                mask = np.uint64(1) << (bit & np.uint64(63))
                if not words[bit >> np.uint64(6)] & mask:
                    words[bit >> np.uint64(6)] |= mask
                    new_bits[found] = bit
                    new_at[found] = at[row]
                    found += 1
            added += found > before
        row += 1
    counts[0], counts[1], counts[2] = row, added, found


@compiled(types.void(READ_U64, READ_U64, types.int64, READ_I64, READ_I64, I64))
def _find(hashes, words, probes, new_bits, new_at, since):  # type: ignore[no-untyped-def]
    """Find since when all bits of each hash are set; END: they are not.

    `new_bits` ascend; bits that are set and not among them were set before.
    """
    bits = np.uint64(64 * len(words))
    for row in range(len(hashes)):
        latest = np.int64(BEGINNING)
        for probe in range(probes):
            bit = _locate(hashes[row], np.uint64(probe), bits)
            if not (words[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1):
                latest = np.int64(END)
                break
            if len(new_bits):
                place = np.searchsorted(new_bits, np.int64(bit))
                if place < len(new_bits) and new_bits[place] == np.int64(bit):
                    latest = max(latest, new_at[place])
        since[row] = latest


_NONE = np.empty(0, np.int64)


@dataclass
class _Part:
    """A Bloom filter.

    Attributes:
        room: For how many more keys.
        probes: How many bits a key has.
        words: The bits.
        new_bits, new_at: The bits set since `SlicedFilter.settle`, ascending, and since when.
    """

    room: int
    probes: int
    words: npt.NDArray[np.uint64] = field(repr=False)
    new_bits: Ints = field(default_factory=_NONE.copy, repr=False)
    new_at: Ints = field(default_factory=_NONE.copy, repr=False)

    @classmethod
    def of(cls, room: int, share: float) -> _Part:
        """An empty one that says wrongly yes for at most this share when it is full."""
        probes = max(1, math.ceil(-math.log2(share)))
        return cls(room, probes, np.zeros(math.ceil(room * probes / math.log(2) / 64), np.uint64))

    def put(self, hashes: Hashes, at: Ints, known: npt.NDArray[np.uint8], start: int) -> int:
        """Put keys in while there is room; return where it stopped."""
        most = (len(hashes) - start) * self.probes
        bits, since = np.empty(most, np.int64), np.empty(most, np.int64)
        counts = np.zeros(3, np.int64)
        _put(hashes, at, known, start, self.room, self.words, self.probes, bits, since, counts)
        stopped, added, found = counts.tolist()
        self.room -= added
        bits = np.concatenate([self.new_bits, bits[:found]])
        order = np.argsort(bits)
        self.new_at = np.concatenate([self.new_at, since[:found]])[order]
        self.new_bits = bits[order]
        return int(stopped)

    def find(self, hashes: Hashes) -> Ints:
        since = np.empty(len(hashes), np.int64)
        _find(hashes, self.words, self.probes, self.new_bits, self.new_at, since)
        return since


class SlicedFilter:
    """The keys that are there, by 64-bit hashes.

    Args:
        share: The share of the keys that are not there for which it may say yes, 0 to 1.
        slices: How many slices can be there at once.
    """

    def __init__(self, share: float, slices: int) -> None:
        self._share = share / slices
        #: By the instant at which a slice ends, its parts.
        self._slices: dict[int, list[_Part]] = {}
        self._keys: dict[int, int] = {}

    def __len__(self) -> int:
        """How many keys were put in that may still be there, in each slice once."""
        return sum(self._keys.values())

    def put(self, hashes: Hashes, at: Ints, ends: Ints) -> None:
        """Put in keys that come in this order.

        Args:
            hashes: uint64, a hash of each key.
            at: The instants from which they are there, ascending.
            ends: The instants at which the slices end that they are in.
        """
        for end in np.unique(ends).tolist():
            chosen = np.flatnonzero(ends == end)
            for start in range(0, len(chosen), _AT_ONCE):
                some = chosen[start : start + _AT_ONCE]
                self._put_slice(end, hashes[some], at[some])

    def _put_slice(self, end: int, hashes: Hashes, at: Ints) -> None:
        parts = self._slices.setdefault(end, [])
        known = np.zeros(len(hashes), np.uint8)
        for part in parts[:-1]:
            known |= part.find(hashes) < END
        start = 0
        while start < len(hashes):
            if not parts or not parts[-1].room:
                if parts:
                    known[start:] |= parts[-1].find(hashes[start:]) < END
                number = len(parts)
                own = self._share / ((number + 1) * (number + 2))
                parts.append(_Part.of(int(_LEAST_KEYS * _GROWTH**number), own))
            before = parts[-1].room
            start = parts[-1].put(hashes, at, known, start)
            self._keys[end] = self._keys.get(end, 0) + before - parts[-1].room

    def find(self, hashes: Hashes, only_new: bool = False) -> Iterator[tuple[Ints, Ints, int]]:
        """Find keys, by parts of slices that have some of them.

        Args:
            hashes: uint64, a hash of each key.
            only_new: Whether to look only where keys were put in since `settle`.

        Yields:
            The places of keys that seem to be there; since when, BEGINNING if they were there when
            `settle` was called; and until when.
        """
        hashes = np.ascontiguousarray(hashes)
        for end, parts in self._slices.items():
            for part in parts:
                if only_new and not len(part.new_bits):
                    continue
                since = part.find(hashes)
                places = np.flatnonzero(since < END)
                if len(places):
                    yield places, since[places], end

    def settle(self, upto: int) -> None:
        """Forget the slices that ended up to an instant, and which bits are new."""
        for end in [end for end in self._slices if end <= upto]:
            del self._slices[end], self._keys[end]
        for parts in self._slices.values():
            for part in parts:
                part.new_bits = part.new_at = _NONE.copy()

    def bytes(self) -> int:
        """The size of its bits."""
        return sum(part.words.nbytes for parts in self._slices.values() for part in parts)


def predict_bits(share: float, slices: int) -> float:
    """How many bits a key is expected to take in each slice that it is in.

    >>> round(predict_bits(0.01, 101))
    34
    """
    return math.ceil(-math.log2(share / slices / 40)) / math.log(2) * 1.25
