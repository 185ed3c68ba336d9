"""Blocked totals: running totals of a segment's matches, one for every 512 of them.

PSoup (VLDB Journal 2003, section 5) computes an aggregate over any window from a tree over the
data, annotated with the aggregates of its subtrees. This is the tree's lowest level: the matches of
a segment are cut into blocks. Counts and sums run, so those of any blocks are a difference of two;
the least and the greatest value are kept by block. What lies between the end of a window and the
next block is read from the segment: at most 511 matches at either end.

INV-BLOCK-1: blocked totals are a function of the matches, in the order of their rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millpond.synopses.total_walks import block_ends, block_whole, extend_ends, extend_whole
from millpond.synopses.totals import (
    NOTHING,
    Bools,
    ColumnKind,
    Doubles,
    Ints,
    OpenColumn,
    Total,
    double_keys,
    merge,
    run_sums,
    sum_of_words,
    total_of,
)

#: Matches of a block.
BLOCK = 512

_KINDS = (None, ColumnKind.COUNTED, ColumnKind.WHOLE, ColumnKind.DOUBLE)
_GREATEST, _LEAST = np.iinfo(np.int64).max, np.iinfo(np.int64).min
#: Numbers before the arrays of a packed entry.
_HEADER = 6
_FINITE = NOTHING.specials
_NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class BlockedTotals:
    """The running totals of a segment's matches, for one column or for none.

    With b blocks:

    Attributes:
        kind: What is known of the column; None: rows are counted only.
        rows: How many matches.
        starts: int64[b]: the row of each block's first match; None: every row matches.
        counts: int64[b + 1]: values that are not NULL, before each block; None if all are not.
        sums: int64[b + 1, n]: sums before each block; n is 2, the sums of high * 2^32 and low,
            or of doubles the number of words.
        base: The exponent of the unit of doubles' sums.
        specials: int64[b + 1, 3]: doubles that are not finite, before each block; None if all are.
        least: int64[b]: the key of each block's least value, if it has a value.
        greatest: int64[b]: the same of the greatest.
    """

    kind: ColumnKind | None
    rows: int
    starts: Ints | None
    counts: Ints | None = None
    sums: Ints | None = None
    base: int = 0
    specials: Ints | None = None
    least: Ints | None = None
    greatest: Ints | None = None

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.rows // BLOCK)

    @property
    def nbytes(self) -> int:
        """Bytes kept."""
        return sum(array.nbytes for array in self._arrays if array is not None)

    @property
    def _arrays(self) -> tuple[Ints | None, ...]:
        return self.starts, self.counts, self.sums, self.specials, self.least, self.greatest

    def find_starts(self) -> Ints:
        """Return int64[b]: the row of each block's first match."""
        return np.arange(0, self.rows, BLOCK) if self.starts is None else self.starts

    def total(self, first: int, last: int) -> Total:
        """Return the total of the blocks from `first` to before `last`."""
        rows = min(last * BLOCK, self.rows) - min(first * BLOCK, self.rows)
        if first >= last or rows <= 0:
            return Total()
        if self.kind is None:
            return Total(rows)
        count = rows if self.counts is None else int(self.counts[last] - self.counts[first])
        if self.sums is None or self.least is None or self.greatest is None or not count:
            return Total(rows, count)
        if self.kind is ColumnKind.WHOLE:
            high, low = (self.sums[last] - self.sums[first]).tolist()
            sum_ = (high << 32) + low
        else:
            before, upto = self.sums[first].view(np.uint64), self.sums[last].view(np.uint64)
            sum_ = sum_of_words(upto, self.base) - sum_of_words(before, self.base)
        specials = (0, 0, 0)
        if self.specials is not None:
            plus, minus, nan = (self.specials[last] - self.specials[first]).tolist()
            specials = (plus, minus, nan)
        # A block without values has the greatest key as its least, and the least as its greatest.
        least, greatest = int(self.least[first:last].min()), int(self.greatest[first:last].max())
        return Total(rows, count, sum_, specials, least, greatest)

    def pack(self) -> npt.NDArray[np.int64]:
        """Pack everything into one array, for a file; `unpack` is the inverse."""
        present = sum(1 << i for i, array in enumerate(self._arrays) if array is not None)
        width = self.sums.shape[1] if self.sums is not None else 0
        header = [_KINDS.index(self.kind), self.rows, present, width, self.base, 0]
        parts = [array.ravel() for array in self._arrays if array is not None]
        return np.concatenate([np.array(header, np.int64), *parts])

    @staticmethod
    def unpack(packed: npt.NDArray[np.int64]) -> BlockedTotals:
        """Read what `pack` wrote, without copying."""
        kind, rows, present, width, base, _ = packed[:_HEADER].tolist()
        blocks = -(-rows // BLOCK)
        shapes = ((blocks,), (blocks + 1,), (blocks + 1, width), (blocks + 1, 3), (blocks,))
        arrays: list[Ints | None] = []
        at = _HEADER
        for i, shape in enumerate((*shapes, (blocks,))):
            if not present >> i & 1:
                arrays.append(None)
                continue
            size = int(np.prod(shape))
            arrays.append(packed[at : at + size].reshape(shape))
            at += size
        starts, counts, sums, specials, least, greatest = arrays
        return BlockedTotals(
            _KINDS[kind], rows, starts, counts, sums, base, specials, least, greatest
        )


class BlocksAndRows:
    """The blocked totals of a column beside its values, for totals of blocks and further rows."""

    def __init__(self, blocks: BlockedTotals, column: OpenColumn | None, sums: bool) -> None:
        """With `sums` False, sums are left out where that saves time."""
        self._blocks, self._column, self._sums = blocks, column, sums
        #: What a walk over rows and blocks reads, for columns without NULLs, which most are.
        self._whole: tuple[Ints, Ints, Ints, Ints] | None = None
        self._ends: tuple[Doubles, Ints, Ints] | None = None
        least, greatest, running = blocks.least, blocks.greatest, blocks.sums
        if column is None or column.valid is not None or blocks.counts is not None:
            return
        numbers = column.numbers
        if numbers is None or running is None or least is None or greatest is None:
            return
        if not (numbers.flags.c_contiguous and numbers.dtype in (np.int64, np.float64)):
            return
        if blocks.kind is ColumnKind.WHOLE:
            self._whole = numbers, running, least, greatest
        elif not sums:
            self._ends = numbers, least, greatest

    def total(self, first: int, last: int, rows: Ints) -> Total:
        """Return the total of the blocks from `first` to before `last`, and of further rows."""
        if self._whole is None and self._ends is None:
            return self._merge(first, last, rows)
        size = len(rows)
        if first < last:
            size += min(last * BLOCK, self._blocks.rows) - first * BLOCK
        if not size:
            return NOTHING
        if self._whole is not None:
            numbers, sums, low, high = self._whole
            upper, lower, least, greatest = extend_whole(
                numbers, rows, sums, low, high, first, last
            )
            return Total(size, size, (upper << 32) + lower, _FINITE, least, greatest)
        assert self._ends is not None
        doubles, low, high = self._ends
        least, greatest = extend_ends(doubles, rows, low, high, first, last)
        return Total(size, size, 0, _FINITE, least, greatest)

    def _merge(self, first: int, last: int, rows: Ints) -> Total:
        own = self._blocks.total(first, last)
        if not len(rows):
            return own
        if self._column is None:
            return Total(own.rows + len(rows))
        return merge((own, total_of(self._column, rows, self._sums)))


def block_rows(matching: Ints | None, size: int) -> BlockedTotals:
    """Make blocked totals that count rows.

    Args:
        matching: The rows that match, ascending; None: all.
        size: How many rows the segment has.
    """
    if matching is None:
        return BlockedTotals(None, size, None)
    return BlockedTotals(None, len(matching), _starts(matching))


def block_values(matching: Ints | None, column: OpenColumn) -> BlockedTotals:
    """Make blocked totals of a column.

    Args:
        matching: The rows that match, ascending; None: all.
        column: The column.
    """
    starts = None if matching is None else _starts(matching)
    size, valid = column.size if matching is None else len(matching), column.valid
    if valid is not None and matching is not None:
        valid = valid[matching]
    firsts = np.arange(0, size, BLOCK)
    counts = None if valid is None else _run(np.add.reduceat(valid, firsts, dtype=np.int64))
    if column.numbers is None or not size:
        return BlockedTotals(column.kind, size, starts, counts)
    numbers, rows = _choose(column, matching, valid)
    chosen = numbers, _NO_ROWS if rows is None else rows, rows is None
    least, greatest = np.empty(len(firsts), np.int64), np.empty(len(firsts), np.int64)
    base, specials = 0, None
    if column.kind is ColumnKind.WHOLE:
        sums = np.zeros((len(firsts) + 1, 2), np.int64)
        block_whole(*chosen, BLOCK, sums, least, greatest)
    else:
        words, base, odd = run_sums(numbers, rows, np.append(firsts, size))
        sums, specials = words.view(np.int64), odd if odd[-1].any() else None
        block_ends(*chosen, BLOCK, least, greatest)
    if valid is not None:
        keys = numbers if column.kind is ColumnKind.WHOLE else double_keys(numbers)
        np.minimum.reduceat(np.where(valid, keys, _GREATEST), firsts, out=least)
        np.maximum.reduceat(np.where(valid, keys, _LEAST), firsts, out=greatest)
    return BlockedTotals(column.kind, size, starts, counts, sums, base, specials, least, greatest)


def _choose(
    column: OpenColumn, matching: Ints | None, valid: Bools | None
) -> tuple[npt.NDArray[Any], Ints | None]:
    """Choose int64 or float64 numbers, 0 where NULL, and which of them match (None: all)."""
    numbers = column.numbers
    assert numbers is not None
    type_: Any = np.int64 if column.kind is ColumnKind.WHOLE else np.float64
    if valid is None and numbers.dtype == type_ and numbers.flags.c_contiguous:
        return numbers, matching
    chosen = numbers if matching is None else numbers[matching]
    chosen = np.ascontiguousarray(chosen, type_)
    return chosen if valid is None else np.where(valid, chosen, type_(0)), None


def _starts(matching: Ints) -> Ints:
    return np.ascontiguousarray(matching[::BLOCK], dtype=np.int64)


def _run(by_block: Ints) -> Ints:
    running = np.zeros(len(by_block) + 1, np.int64)
    np.cumsum(by_block, out=running[1:])
    return running
