"""Sums and sums of squares of doubles, exact however many come and go, rounded once.

A running sum of doubles that is rounded at every step depends on the order of the steps, and
drifts: after 1e16 has come and gone, the 1.0 that was there before it is lost. But a double is a
whole number of units of 2^-1074, so a sum can be kept as one long whole number (a
superaccumulator; Kulisch). Such a sum forgets completely, and does not depend on any order. Only
the words that the values seen so far can reach are kept: three or four if all values are of about
one magnitude, more when a batch brings greater or smaller ones. The sum is rounded to the nearest
double (ties to even) where it is read, so it is a function of the bag and of nothing else.

DuckDB's own sum rounds at every step, in the order in which it happens to find the rows; it may
differ from this in the last digits, and after cancellation in more. Compensated sums (Kahan,
Neumaier) and double-doubles come closer but still depend on history; only an exact sum does not.

Infinities and NaNs are counted beside the sum.

INV-SUM-1: kept words hold the exact sum in units of 2^base, where `base` is a multiple of 64, with
room for 2^40 rows of the greatest magnitude seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from millpond.synopses.double_walks import NONE, measure_extent
from millpond.synopses.mapped_memory import allocate_like

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

#: Bits above the greatest value: for the number of rows, and for the sign.
_HEADROOM = 42


class ExactSums:
    """For each group, the exact sum of its doubles and, if asked for, of their squares.

    Attributes:
        words: uint64[groups, n]: the sums, in units of 2^base.
        squares: uint64[groups, m]: the sums of squares, in units of 2^(2 * base).
        specials: int64[groups, 3]: how many +infinity, −infinity and NaN.
    """

    def __init__(self, with_squares: bool = False) -> None:
        self.words = np.zeros((0, 1), np.uint64)
        self.squares = np.zeros((0, 1), np.uint64)
        self.specials = np.zeros((0, 3), np.int64)
        self.base = 0
        self._empty = True
        self._top = -NONE
        self._with_squares = with_squares

    def reserve(self, groups: int) -> None:
        """Make room for groups."""
        self.words = _add_rows(self.words, groups)
        self.specials = _add_rows(self.specials, groups)
        if self._with_squares:
            self.squares = _add_rows(self.squares, groups)

    def reach(self, values: npt.NDArray[np.float64], weights: Ints) -> None:
        """Make room for values; call it with all values before they are added.

        Args:
            values: Any doubles.
            weights: Of the values; those with weight 0 are not looked at.
        """
        low, high, greatest = measure_extent(values, weights)
        if low == NONE:
            return
        # A weight of w stands for w rows.
        high += max(0, greatest.bit_length() - 1)
        base = low // 64 * 64
        if self._empty:
            self.base, self._empty = base, False
        if base < self.base:
            more = (self.base - base) // 64
            self.words = _shift_units(self.words, more)
            self.squares = _shift_units(self.squares, 2 * more)
            self.base = base
        self._top = max(self._top, high)
        self.words = _widen(self.words, count_words(self.base, self._top))
        if self._with_squares:
            needed = (2 * (self._top - self.base) + _HEADROOM) // 64 + 1
            self.squares = _widen(self.squares, needed)

    def size(self) -> int:
        """Bytes kept."""
        return self.words.nbytes + self.squares.nbytes + self.specials.nbytes

    def renumber(self, moved: Ints, groups: int) -> None:
        """Move group i's sums to group moved[i]; those with −1 are empty and forgotten."""
        self.words = _move_groups(self.words, moved, groups)
        self.squares = _move_groups(self.squares, moved, groups)
        self.specials = _move_groups(self.specials, moved, groups)


def count_words(base: int, top: int) -> int:
    """Count the words a sum needs in units of 2^base, if every value is below 2^top."""
    return (top - base + _HEADROOM) // 64 + 1


def _add_rows(array: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    if rows <= len(array):
        return array
    grown = allocate_like(array, (max(rows, 2 * len(array)), array.shape[1]))
    grown[: len(array)] = array
    return grown


def _shift_units(words: Words, more: int) -> Words:
    """Write the same numbers in units 2^(64 * more) times as small."""
    return np.concatenate([np.zeros((len(words), more), np.uint64), words], axis=1)


def _widen(words: Words, needed: int) -> Words:
    """Write the same numbers in at least `needed` words: the sign is repeated."""
    more = needed - words.shape[1]
    if more <= 0:
        return words
    sign = (words[:, -1:].view(np.int64) >> 63).view(np.uint64)
    return np.concatenate([words, np.repeat(sign, more, axis=1)], axis=1)


def _move_groups(array: npt.NDArray[Any], moved: Ints, groups: int) -> npt.NDArray[Any]:
    fresh = allocate_like(array, (groups, array.shape[1]))
    kept = moved[: len(array)]
    fresh[kept[kept >= 0]] = array[: len(kept)][kept >= 0]
    return fresh
