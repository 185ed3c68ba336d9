"""A filter of keys: has a key been put in? Never wrongly no, rarely wrongly yes.

A Bloom filter in parts (CIDR 5.1 and PRESSURE's table of synopses). Each part has room for a number
of keys, and twice as many as the part before, up to `_MOST_KEYS`. A part is forgotten when
everything that was put into it has expired, so the filter follows a window of time. Its size is
fixed: when `_MOST_PARTS` parts are full, nothing more fits.

With 32 bits and 16 probes a key, a full part says yes wrongly once in three million keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from numba import types

from millpond.model.compiled import READ_U64, U8, U64, compiled

Hashes = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_BITS, _PROBES = 32, 16
#: Keys of the first part, and of the largest; how many parts there are at most (8 MiB).
_LEAST_KEYS, _MOST_KEYS, _MOST_PARTS = 256, 32_768, 64


@compiled(types.void(READ_U64, U64, types.int64))
def _put(hashes, words, probes):  # type: ignore[no-untyped-def]
    """Set the bits of each hash."""
    mask = np.uint64(64 * len(words) - 1)
    for row in range(len(hashes)):
        place, step = hashes[row], (hashes[row] >> np.uint64(32)) | np.uint64(1)
        for probe in range(probes):
            bit = place & mask
            words[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
            place += step
            step += np.uint64(probe)  # so that keys with one step have different bits


@compiled(types.void(READ_U64, READ_U64, types.int64, U8))
def _find(hashes, words, probes, out):  # type: ignore[no-untyped-def]
    """Mark the hashes all of whose bits are set; others stay as they are."""
    mask = np.uint64(64 * len(words) - 1)
    for row in range(len(hashes)):
        place, step = hashes[row], (hashes[row] >> np.uint64(32)) | np.uint64(1)
        found = True
        for probe in range(probes):
            bit = place & mask
            if not (words[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1):
                found = False
                break
            place += step
            step += np.uint64(probe)  # so that keys with one step have different bits
        if found:
            out[row] = 1


@dataclass
class _Part:
    """A Bloom filter: its bits, room for how many keys, how many it has, when all have expired."""

    room: int
    words: npt.NDArray[np.uint64] = field(repr=False)
    keys: int = 0
    until: int = 0


class KeyFilter:
    """The keys that were put in, by 64-bit hashes, and have not expired."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def __len__(self) -> int:
        """How many parts hold keys; 0 if nothing can be in the filter."""
        return len(self._parts)

    @property
    def room(self) -> int:
        """How many more keys fit."""
        left = self._parts[-1].room - self._parts[-1].keys if self._parts else 0
        size = self._parts[-1].room if self._parts else _LEAST_KEYS // 2
        for _ in range(_MOST_PARTS - len(self._parts)):
            size = min(2 * size, _MOST_KEYS)
            left += size
        return left

    def put(self, hashes: Hashes, until: Ints) -> None:
        """Put in keys that fit (`room`).

        Args:
            hashes: uint64, a hash of each key.
            until: int64, the instant at which the key may be forgotten.
        """
        start = 0
        while start < len(hashes):
            if not self._parts or self._parts[-1].keys == self._parts[-1].room:
                last = self._parts[-1].room if self._parts else _LEAST_KEYS // 2
                room = min(2 * last, _MOST_KEYS)
                self._parts.append(_Part(room, np.zeros(room * _BITS // 64, np.uint64)))
            part = self._parts[-1]
            end = min(len(hashes), start + part.room - part.keys)
            _put(np.ascontiguousarray(hashes[start:end]), part.words, _PROBES)
            part.keys += end - start
            part.until = max(part.until, int(until[start:end].max()))
            start = end

    def find(self, hashes: Hashes) -> Bools:
        """Find the keys that may have been put in; all others have not been."""
        out = np.zeros(len(hashes), np.uint8)
        hashes = np.ascontiguousarray(hashes)
        for part in self._parts:
            _find(hashes, part.words, _PROBES, out)
        return out.astype(bool)

    def forget(self, upto: int) -> None:
        """Forget the parts whose keys have all expired up to an instant."""
        self._parts = [part for part in self._parts if part.until > upto]

    def bytes(self) -> int:
        """The size of its bits."""
        return sum(part.words.nbytes for part in self._parts)
