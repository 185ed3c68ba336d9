"""Values as 64-bit keys in the same order, and back.

Whole numbers, booleans, times and decimals of up to 18 digits are their own keys. A double's key
is its bits, flipped so that keys compare as the doubles do, with one NaN above everything (as
DuckDB orders) and one zero. Any other value (strings, wide decimals) gets a **label** when it is
first seen (`ordered_texts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.synopses.mapped_memory import choose_like, grow_array
from millpond.synopses.ordered_texts import OrderedTexts
from millpond.synopses.text_numbers import from_texts, to_texts

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: So many forgotten values may be kept before the others are labelled anew.
_SLACK = 1_024


class OrderKeys(Protocol):
    """Keys of one column's values."""

    #: Called when keys change: (all old keys ascending, the new keys).
    on_rekey: Callable[[Ints, Ints], None]
    #: Lists the keys that are kept, if most of those that come are not; None: those are kept of
    #: which more came than went.
    in_use: Callable[[], Ints] | None

    def encode(self, column: pa.Array, weights: Ints) -> Ints:
        """Return the key of each value; arbitrary where it is NULL or its weight is 0.

        Args:
            column: The values.
            weights: How many of each come or go; a value of which none is left may be forgotten.
        """
        ...

    def decode(self, keys: Ints, valid: Bools | None) -> pa.Array:
        """Return the values of keys; NULL where not valid (None: all are)."""
        ...

    def size(self) -> int:
        """Bytes kept, about."""
        ...


def make_order_keys(type_: pa.DataType) -> OrderKeys:
    """Make keys for columns of a type."""
    if pa.types.is_floating(type_):
        return FloatKeys(type_)
    if is_whole(type_) or is_time(type_):
        return WholeKeys(type_)
    if pa.types.is_uint64(type_):
        return UnsignedKeys()
    return LabelKeys(type_)


def can_be_ordered(type_: pa.DataType) -> bool:
    """Whether columns of a type have keys."""
    return bool(
        pa.types.is_floating(type_)
        or is_whole(type_)
        or is_time(type_)
        or pa.types.is_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_decimal128(type_)
        or pa.types.is_uint64(type_)
    )


def is_whole(type_: pa.DataType) -> bool:
    """Whether values are whole numbers (or units of a decimal's last digit) of up to 64 bits."""
    if pa.types.is_decimal128(type_):
        return bool(type_.precision <= 18)
    if pa.types.is_uint64(type_):
        return False
    return bool(pa.types.is_integer(type_) or pa.types.is_boolean(type_))


def is_time(type_: pa.DataType) -> bool:
    """Whether values are instants, dates or times of day."""
    return bool(
        pa.types.is_timestamp(type_) or pa.types.is_date32(type_) or pa.types.is_time64(type_)
    )


def to_whole_numbers(column: pa.Array) -> Ints:
    """Convert a column's values to int64; arbitrary where NULL."""
    type_ = column.type
    if pa.types.is_decimal128(type_):
        return np.ascontiguousarray(to_two_words(column)[:, 0])
    if pa.types.is_date32(type_):
        column = column.view(pa.int32())
    elif is_time(type_):
        column = column.view(pa.int64())
    elif pa.types.is_boolean(type_):
        column = column.cast(pa.int8())
    if column.null_count:
        column = column.fill_null(0)
    values = column.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values, dtype=np.int64)


def view_numbers(column: pa.Array) -> npt.NDArray[Any]:
    """Return a column's whole numbers or doubles in their own width; arbitrary where NULL.

    Nothing is copied but booleans. Decimals of up to 18 digits give their unscaled values.
    """
    type_, data = column.type, column.buffers()[1]
    if pa.types.is_boolean(type_) or data is None or not len(column):
        return to_doubles(column) if pa.types.is_floating(type_) else to_whole_numbers(column)
    if pa.types.is_decimal128(type_):
        return to_two_words(column)[:, 0]
    if is_time(type_):
        dtype: Any = np.int32 if pa.types.is_date32(type_) else np.int64
    else:
        dtype = _dtype_of(type_)
    return np.frombuffer(data, dtype, column.offset + len(column))[column.offset :]


def _dtype_of(type_: pa.DataType) -> npt.DTypeLike:
    """NumPy's type of whole numbers or doubles. Arrow's own answer needs pandas before Arrow 26."""
    if pa.types.is_floating(type_):
        return np.dtype(f"f{type_.bit_width // 8}")
    return np.dtype(f"{'i' if pa.types.is_signed_integer(type_) else 'u'}{type_.bit_width // 8}")


def to_two_words(column: pa.Array) -> npt.NDArray[np.int64]:
    """Convert a decimal column's unscaled values to int64[n, 2], low and high."""
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros((len(column), 2), np.int64)
    words = np.frombuffer(data, np.int64, 2 * (column.offset + len(column)))
    return words.reshape(-1, 2)[column.offset :]


def to_doubles(column: pa.Array) -> npt.NDArray[np.float64]:
    """Convert a column of numbers to doubles, as DuckDB casts them; arbitrary where NULL."""
    type_ = column.type
    if pa.types.is_floating(type_):
        if column.null_count:
            column = column.fill_null(0)
        values = column.to_numpy(zero_copy_only=False)
        return np.ascontiguousarray(values, dtype=np.float64)
    values = to_whole_numbers(column).astype(np.float64)
    if pa.types.is_decimal128(type_):
        values /= 10.0**type_.scale
    return values


class WholeKeys:
    """Values that are their own keys."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self.on_rekey: Callable[[Ints, Ints], None] = _ignore
        self.in_use: Callable[[], Ints] | None = None

    def encode(self, column: pa.Array, weights: Ints) -> Ints:
        return to_whole_numbers(column)

    def decode(self, keys: Ints, valid: Bools | None) -> pa.Array:
        if pa.types.is_decimal128(self._type):
            return to_decimals(np.stack([keys, keys >> 63], axis=1), valid, self._type)
        mask = to_mask(valid)
        if pa.types.is_boolean(self._type):
            return pa.array(keys.astype(bool), mask=mask)
        if pa.types.is_date32(self._type):
            return pa.array(keys.astype(np.int32), mask=mask).view(self._type)
        if is_time(self._type):
            return pa.array(keys, mask=mask).view(self._type)
        return pa.array(keys.astype(_dtype_of(self._type)), mask=mask)

    def size(self) -> int:
        return 0


class FloatKeys:
    """Doubles, whose keys are made from their bits."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self.on_rekey: Callable[[Ints, Ints], None] = _ignore
        self.in_use: Callable[[], Ints] | None = None

    def encode(self, column: pa.Array, weights: Ints) -> Ints:
        values = to_doubles(column) + 0.0  # both zeros become one
        values[np.isnan(values)] = np.nan  # all NaNs become one
        return flip_order_bits(values.view(np.int64))

    def decode(self, keys: Ints, valid: Bools | None) -> pa.Array:
        values = flip_order_bits(keys).view(np.float64)
        return pa.array(values.astype(_dtype_of(self._type), copy=False), mask=to_mask(valid))

    def size(self) -> int:
        return 0


def flip_order_bits(bits: Ints) -> Ints:
    """Convert a double's bits to a key, or a key to a double's bits."""
    return bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))


class UnsignedKeys:
    """Whole numbers of 64 bits without a sign; their keys are 2⁶³ less."""

    def __init__(self) -> None:
        self.on_rekey: Callable[[Ints, Ints], None] = _ignore
        self.in_use: Callable[[], Ints] | None = None

    def encode(self, column: pa.Array, weights: Ints) -> Ints:
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        return values.view(np.int64) ^ np.int64(-(2**63))

    def decode(self, keys: Ints, valid: Bools | None) -> pa.Array:
        return pa.array((keys ^ np.int64(-(2**63))).view(np.uint64), mask=to_mask(valid))

    def size(self) -> int:
        return 0


class LabelKeys:
    """Values that have texts in the same order; their keys are the texts' labels."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._texts = OrderedTexts()
        #: How many of each text there are, by its number; and of how many texts there are any.
        self._held = np.zeros(0, np.int64)
        self._alive = 0
        self.in_use: Callable[[], Ints] | None = None

    @property
    def on_rekey(self) -> Callable[[Ints, Ints], None]:
        return self._texts.on_relabel

    @on_rekey.setter
    def on_rekey(self, listener: Callable[[Ints, Ints], None]) -> None:
        self._texts.on_relabel = listener

    def encode(self, column: pa.Array, weights: Ints) -> Ints:
        count = len(self._texts)
        if count > 2 * self._alive + _SLACK:
            self._forget(count)
        numbers = self._texts.number(to_texts(column), weights != 0)
        taking = numbers >= 0
        keys = np.zeros(len(numbers), np.int64)
        keys[taking] = self._texts.labels[numbers[taking]]
        if self.in_use is None:
            self._count(numbers[taking], weights[taking])
        return keys

    def _forget(self, count: int) -> None:
        """Forget the texts that are not kept."""
        if self.in_use is None:
            alive = self._held[:count] > 0
            self._held = choose_like(self._held[:count], alive)
        else:
            alive = np.zeros(count, np.bool_)
            alive[self._texts.find(self.in_use())] = True
            self._alive = int(np.count_nonzero(alive))
        self._texts.forget(alive)

    def _count(self, numbers: Ints, weights: Ints) -> None:
        """Count how many of each text come or go."""
        self._held = grow_array(self._held, len(self._texts))
        touched = np.unique(numbers)
        before = np.count_nonzero(self._held[touched])
        np.add.at(self._held, numbers, weights)
        self._alive += int(np.count_nonzero(self._held[touched]) - before)

    def decode(self, keys: Ints, valid: Bools | None) -> pa.Array:
        return from_texts(self.take_texts(keys, valid), self._type)

    def take_texts(self, keys: Ints, valid: Bools | None, head: Sequence[int] = ()) -> pa.Array:
        """Return the texts of keys without their heads; NULL where not valid, or shorter."""
        distinct, places = np.unique(keys, return_inverse=True)
        dictionary = self._texts.take(self._texts.find(distinct), head)
        return dictionary.take(pa.array(places.ravel(), mask=to_mask(valid)))

    def size(self) -> int:
        return self._texts.size() + self._held.nbytes


def to_decimals(words: npt.NDArray[Any], valid: Bools | None, type_: pa.DataType) -> pa.Array:
    """Make a decimal column of unscaled values int64[n, 2], low and high; NULL where not valid."""
    if not len(words):
        return pa.array([], type_)
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [mask, pa.py_buffer(np.ascontiguousarray(words))]
    return pa.Array.from_buffers(type_, len(words), buffers)


def to_mask(valid: Bools | None) -> Bools | None:
    """Make the mask by which Arrow knows NULLs; None if there is none, which costs least."""
    return None if valid is None else ~valid


def pick_valid(valid: Bools | None, places: Ints) -> Bools | None:
    """Pick which of the values at some places are not NULL; None: all of them."""
    if valid is None or valid.all():
        return None
    found = valid.take(places)
    return None if found.all() else found


def _ignore(old: Ints, new: Ints) -> None:
    """Do nothing: for keys that never change."""
