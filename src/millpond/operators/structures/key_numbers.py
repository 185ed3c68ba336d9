"""Numbers distinct rows, so that operators look up, count and group by small whole numbers.

Two rows have the same number when SQL's grouping finds them equal: NULLs are equal to each other,
so are NaNs, and so are both zeros. (Expressions can see which zero it is, so those that add up rows
before expressions are evaluated have zeros told apart.) Every column value becomes a 64-bit word:
numbers are words themselves; the distinct values of strings and other types are numbered
(`text_numbers`). The words of a row are looked up in an open hash table, by compiled code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from millpond.model.compiled import I64, compiled
from millpond.operators.protocol.delta import Bools, Ints
from millpond.synopses.mapped_memory import allocate_like, choose_like
from millpond.synopses.order_keys import is_time, is_whole, to_whole_numbers
from millpond.synopses.text_numbers import TextNumbers, to_texts

_WORDS = types.Array(types.int64, 2, "C", readonly=True)
_STORE = types.Array(types.int64, 2, "C")

#: Keys that a new table has room for; tables of fewer keys are never compacted.
_ROOM = 64
#: How many columns a word says of whether they are NULL.
_MARKED = 62


@compiled(types.int64(_WORDS, I64, _STORE, types.int64, types.boolean, I64))
def _look_up(words, table, store, count, insert, out):  # type: ignore[no-untyped-def]
    """Number rows of words; a new row gets the next number with `insert`, else -1."""
    mask = len(table) - 1
    width = words.shape[1]
    for row in range(words.shape[0]):
        mixed = np.uint64(0x9E3779B97F4A7C15)
        for j in range(width):
            mixed ^= np.uint64(words[row, j])
            mixed *= np.uint64(0xBF58476D1CE4E5B9)
            mixed ^= mixed >> np.uint64(29)
        slot = np.int64(mixed >> np.uint64(1)) & mask
        number = np.int64(-1)
        while True:
            held = table[slot]
            if held < 0:
                if insert:
                    number = count
                    table[slot] = number
                    for j in range(width):
                        store[number, j] = words[row, j]
                    count += 1
                break
            same = True
            for j in range(width):
                if store[held, j] != words[row, j]:
                    same = False
                    break
            if same:
                number = held
                break
            slot = (slot + 1) & mask
        out[row] = number
    return count


class KeyNumbers:
    """Numbers 0, 1, … for the distinct rows it has seen.

    Rows are numbered in the order of their first appearance. `compact` forgets rows and numbers
    the rest anew; without it a table only grows.

    Args:
        columns: The columns' types.
        zeros: Whether 0.0 and -0.0 are different numbers; within arrays and structs they are not.
    """

    def __init__(self, columns: Sequence[pa.DataType], zeros: bool = False) -> None:
        self._types = list(columns)
        self._zeros = zeros
        #: A word a column, and behind them words whose bits say which columns are NULL.
        self._width = len(self._types) + 1 + len(self._types) // _MARKED
        #: By column, the numbers of its distinct values; None until it has values that need any.
        self._texts: list[TextNumbers | None] = [None] * len(self._types)
        self._store = np.empty((_ROOM, self._width), np.int64)
        self._table = np.full(2 * _ROOM, -1, np.int64)
        self._count = 0

    def __len__(self) -> int:
        """The number of distinct rows that have a number."""
        return self._count

    def number(self, columns: Sequence[pa.Array]) -> Ints:
        """Number the rows; a row not seen before gets a new number."""
        words = self._words(columns, True)
        self._make_room(len(words))
        out = np.empty(len(words), np.int64)
        self._count = _look_up(words, self._table, self._store, self._count, True, out)
        return out

    def number_empty_rows(self) -> None:
        """Take number 0 for all rows that have no columns."""
        self._count = max(self._count, 1)

    def find(self, columns: Sequence[pa.Array]) -> Ints:
        """Find the rows' numbers; -1 for a row not seen before."""
        words = self._words(columns, False)
        out = np.empty(len(words), np.int64)
        _look_up(words, self._table, self._store, self._count, False, out)
        return out

    def compact(self, alive: Bools) -> Ints:
        """Forget the numbers where `alive` is false; return each one's new number, -1 if gone."""
        moved: Ints = np.cumsum(alive, out=allocate_like(self._table, self._count))
        moved -= 1
        np.putmask(moved, ~alive, -1)
        words = choose_like(self._store[: self._count], alive)
        for place, texts in enumerate(self._texts):
            if texts is not None and len(texts):
                # NULL is stored as 0, which may be another value's number: then one value more
                # than needed is kept, which is harmless.
                used = np.zeros(len(texts), np.bool_)
                used[words[:, place]] = True
                words[:, place] = texts.compact(used)[words[:, place]]
        self._count = 0
        room = _find_room(len(words))
        self._store = allocate_like(self._store, (room, words.shape[1]))
        self._table = allocate_like(self._table, 2 * room, -1)
        out: Ints = allocate_like(self._table, len(words))
        self._count = _look_up(words, self._table, self._store, 0, True, out)
        return moved

    def is_worth_compacting(self, alive: int) -> bool:
        """Whether compaction is worth its cost when only `alive` numbers are still needed."""
        return self._count > max(_ROOM, 2 * alive)

    def _make_room(self, more: int) -> None:
        needed = self._count + more
        if needed > len(self._store):
            room = _find_room(needed)
            grown = allocate_like(self._store, (room, self._store.shape[1]))
            grown[: self._count] = self._store[: self._count]
            self._store = grown
            self._table = allocate_like(self._table, 2 * room, -1)
            held = grown[: self._count]
            out = allocate_like(self._table, self._count)
            _look_up(held, self._table, self._store, 0, True, out)

    def _words(self, columns: Sequence[pa.Array], insert: bool) -> npt.NDArray[np.int64]:
        length = len(columns[0]) if columns else 0
        words = np.zeros((length, self._width), np.int64)
        for place, column in enumerate(columns):
            words[:, place] = self._word(place, column, insert)
            if column.null_count:
                missing = column.is_null().to_numpy(zero_copy_only=False)
                words[missing, place] = 0
                words[missing, len(columns) + place // _MARKED] |= 1 << (place % _MARKED)
        return words

    def _word(self, place: int, column: pa.Array, insert: bool) -> npt.NDArray[Any]:
        type_ = column.type
        if is_whole(type_) or is_time(type_):
            return to_whole_numbers(column)
        if pa.types.is_uint64(type_):
            return _fill_nulls(column, type_).view(np.int64)
        if pa.types.is_floating(type_):
            values = _fill_nulls(column, pa.float64())
            # Both zeros are one, unless they are told apart.
            values = values + (-0.0 if self._zeros else 0.0)
            values[np.isnan(values)] = np.nan  # so are all NaNs
            return values.view(np.int64)
        return self._number_texts(place, column, insert)

    def _number_texts(self, place: int, column: pa.Array, insert: bool) -> Ints:
        """Number values that are no numbers; arbitrary where NULL."""
        texts = self._texts[place]
        if texts is None:
            texts = self._texts[place] = TextNumbers()
        look_up = texts.number if insert else texts.find
        if not pa.types.is_dictionary(column.type):
            return look_up(to_texts(column))
        if column.dictionary.null_count or not 0 < len(column.dictionary) <= len(column):
            return look_up(to_texts(column.dictionary_decode()))
        numbers = look_up(to_texts(column.dictionary))
        return np.asarray(numbers[_fill_nulls(column.indices, pa.int64())])


def _find_room(keys: int) -> int:
    """Find how many keys a table has room for that holds so many."""
    return max(_ROOM, 1 << int(keys + keys // 2).bit_length())


def _fill_nulls(column: pa.Array, type_: pa.DataType) -> npt.NDArray[Any]:
    """Read a column as NumPy values, with 0 for NULL; copy them before writing."""
    if column.type != type_:
        column = column.cast(type_)
    if column.null_count:
        column = column.fill_null(0)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values
