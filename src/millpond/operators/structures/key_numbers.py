"""Numbers distinct rows, so that operators look up, count and group by small whole numbers.

Two rows have the same number when SQL's grouping finds them equal: NULLs are equal to each other,
so are NaNs, and so are both zeros. Every column value becomes a 64-bit word: numbers are words
themselves; the distinct values of strings and other types are numbered. The words of a row are
looked up in an open hash table, by compiled code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import types

from millpond.model.compiled import I64, compiled
from millpond.model.nested_values import needs_keys, value_keys
from millpond.operators.protocol.delta import Bools, Ints
from millpond.synopses.mapped_memory import allocate_like

_WORDS = types.Array(types.int64, 2, "C", readonly=True)
_STORE = types.Array(types.int64, 2, "C")

#: Keys that a new table has room for; tables of fewer keys are never compacted.
_ROOM = 64


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
    """

    def __init__(self, columns: Sequence[pa.DataType]) -> None:
        self._types = list(columns)
        self._values: list[dict[Any, int]] = [{} for _ in columns]
        self._following = [0] * len(self._types)
        self._store = np.empty((_ROOM, len(self._types) + 1), np.int64)
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
        moved = np.where(alive, np.cumsum(alive) - 1, -1)
        words = np.ascontiguousarray(self._store[: self._count][alive])
        for place, values in enumerate(self._values):
            if values:
                used = set(words[:, place].tolist())
                # NULL is stored as 0, which may be another value's number: then one value more
                # than needed is kept, which is harmless.
                self._values[place] = {v: n for v, n in values.items() if n in used}
        self._count = 0
        room = _find_room(len(words))
        self._store = allocate_like(self._store, (room, words.shape[1]))
        self._table = allocate_like(self._table, 2 * room, -1)
        out = np.empty(len(words), np.int64)
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
            held = np.ascontiguousarray(grown[: self._count])
            out = np.empty(self._count, np.int64)
            _look_up(held, self._table, self._store, 0, True, out)

    def _words(self, columns: Sequence[pa.Array], insert: bool) -> npt.NDArray[np.int64]:
        length = len(columns[0]) if columns else 0
        words = np.zeros((length, len(self._types) + 1), np.int64)
        for place, column in enumerate(columns):
            words[:, place] = self._word(place, column, insert)
            if column.null_count:
                missing = column.is_null().to_numpy(zero_copy_only=False)
                words[missing, place] = 0
                words[missing, -1] |= 1 << (place % 62)
                if place >= 62:
                    raise ValueError("a key of more than 62 columns")
        return words

    def _word(self, place: int, column: pa.Array, insert: bool) -> npt.NDArray[Any]:
        type_ = column.type
        if pa.types.is_integer(type_) and not pa.types.is_uint64(type_):
            return _fill_nulls(column, pa.int64())
        if pa.types.is_boolean(type_):
            return _fill_nulls(column.cast(pa.int8()), pa.int64())
        if pa.types.is_floating(type_):
            values = _fill_nulls(column, pa.float64()) + 0.0  # both zeros are one
            values[np.isnan(values)] = np.nan  # so are all NaNs
            return values.view(np.int64)
        if pa.types.is_timestamp(type_) or pa.types.is_time64(type_):
            return _fill_nulls(column.cast(pa.int64()), pa.int64())
        if pa.types.is_date32(type_):
            return _fill_nulls(column.cast(pa.int32()), pa.int64())
        return self._number_objects(place, column, insert)

    def _number_objects(self, place: int, column: pa.Array, insert: bool) -> Ints:
        """Number values that are no numbers; each distinct value is looked up once."""
        if needs_keys(column.type):
            keys = value_keys(column)
            places_of = {key: number for number, key in enumerate(dict.fromkeys(keys))}
            distinct = list(places_of)
            indices = np.array([places_of[key] for key in keys], np.int64)
        else:
            is_encoded = pa.types.is_dictionary(column.type)
            encoded = column if is_encoded else column.dictionary_encode()
            distinct = encoded.dictionary.to_pylist()
            filled = pc.fill_null(encoded.indices, len(distinct))
            indices = filled.to_numpy(zero_copy_only=False)
        known = self._values[place]
        if insert:
            # A number is never used twice, even after values were forgotten.
            following = self._following[place]
            numbers = np.empty(len(distinct) + 1, np.int64)
            for i, value in enumerate(distinct):
                number = known.get(value)
                if number is None:
                    number = known[value] = following
                    following += 1
                numbers[i] = number
            self._following[place] = following
        else:
            numbers = np.array([*(known.get(v, -1) for v in distinct), 0], np.int64)
        numbers[-1] = 0
        return numbers[indices]


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
