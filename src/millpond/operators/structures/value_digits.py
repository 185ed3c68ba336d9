"""Numbers taken apart into digits, so that sums of them are kept and read without rounding.

A column has **units**, values of its type that are powers of 2^24, and a value is the sum of its
digits times these units. Digits are added up without carrying, so the digits of a sum are the sums
of the digits, in whatever order values come and go. So a sum can stand for its values wherever a
sum of them is formed: as a few rows that hold the units, each with its digit for a weight.

Doubles are whole numbers of 2^-1074; only the units that the values seen so far need are kept.
Infinities and NaNs are units of their own, whose digits count them.
"""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
from numba import types

from millpond.model.compiled import READ_F64, compiled
from millpond.operators.protocol.delta import Ints
from millpond.synopses.double_walks import NONE, measure_extent
from millpond.synopses.order_keys import is_whole, to_doubles, to_two_words, to_whole_numbers

#: The bits of a digit.
BITS = 24
_MASK = (1 << BITS) - 1
#: The exponent of the least unit of doubles.
_LEAST = -1074
_SPECIALS = (float("inf"), float("-inf"), float("nan"))
#: How many digits of doubles count infinities and NaNs; they come first.
SPECIAL = len(_SPECIALS)
_I64_2D = types.Array(types.int64, 2, "C")


def has_digits(type_: pa.DataType) -> bool:
    """Whether sums of a type's values can be kept as digits."""
    if pa.types.is_boolean(type_):
        return False
    return is_whole(type_) or pa.types.is_decimal128(type_) or pa.types.is_float64(type_)


class Digits:
    """Takes the values of one column apart.

    Attributes:
        count: How many digits a value has; for doubles it grows with the values that come.
    """

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._is_double = pa.types.is_float64(type_)
        #: Of doubles, the first unit's number and the number after the last unit's.
        self._low, self._high = 0, 0
        self._whole = 0 if self._is_double else _count_units(type_)

    @property
    def count(self) -> int:
        if self._is_double:
            return SPECIAL + self._high - self._low
        return self._whole

    def reach(self, column: pa.Array, weights: Ints) -> tuple[int, int]:
        """Make room for values, before they are taken apart.

        Returns:
            How many digits come before the units there were (behind those that count infinities and
            NaNs), and how many come after them.
        """
        if not self._is_double:
            return 0, 0
        low, high, _ = measure_extent(_read_doubles(column), np.ascontiguousarray(weights))
        if low == NONE:
            return 0, 0
        first, last = (low - _LEAST) // BITS, (high - _LEAST) // BITS + 1
        if self._low == self._high:
            self._low, self._high = first, first
        more = max(0, self._low - first), max(0, last - self._high)
        self._low, self._high = self._low - more[0], self._high + more[1]
        return more

    def split(self, column: pa.Array, out: Ints) -> None:
        """Write the digits of values into a row of `out` each; those of NULLs are zeros."""
        if self._is_double:
            _split_doubles(_read_doubles(column), self._low, out)
        elif is_whole(self._type):
            values = to_whole_numbers(column)
            for place in range(self._whole):
                digit = values >> (BITS * place)
                out[:, place] = digit if place == self._whole - 1 else digit & _MASK
        else:
            _split_wide(np.ascontiguousarray(to_two_words(column)), out)
        if column.null_count:
            out[column.is_null().to_numpy(zero_copy_only=False)] = 0

    def list_values(self) -> pa.Array:
        """List zero, and the units in the order of the digits."""
        if self._is_double:
            units = [2.0 ** (_LEAST + BITS * n) for n in range(self._low, self._high)]
            return pa.array([0.0, *_SPECIALS, *units], self._type)
        wholes = [0, *(1 << (BITS * place) for place in range(self._whole))]
        if pa.types.is_decimal128(self._type):
            digits = [tuple(map(int, str(whole))) for whole in wholes]
            scale = self._type.scale
            return pa.array([Decimal((0, own, -scale)) for own in digits], self._type)
        return pa.array(wholes, self._type)


def _count_units(type_: pa.DataType) -> int:
    """Count the powers of 2^24 that a type of whole numbers or decimals has."""
    if pa.types.is_decimal128(type_):
        most = 10**type_.precision - 1
    else:
        most = (1 << (type_.bit_width - pa.types.is_signed_integer(type_))) - 1
    return (most.bit_length() - 1) // BITS + 1


def _read_doubles(column: pa.Array) -> np.ndarray:
    return to_doubles(column)


@compiled(types.void(READ_F64, types.int64, _I64_2D))
def _split_doubles(values, low, out):  # type: ignore[no-untyped-def]
    """Write the digits of doubles: how many infinities and NaNs, then the digits from `low`."""
    mask = np.int64((1 << 24) - 1)
    for i in range(len(values)):
        value = values[i]
        for j in range(out.shape[1]):
            out[i, j] = 0
        if np.isnan(value):
            out[i, 2] = 1
        elif np.isinf(value):
            out[i, 0 if value > 0 else 1] = 1
        elif value != 0.0:
            fraction, exponent = math.frexp(value)
            lowest = max(exponent - 53, -1074)
            mantissa = np.int64(math.ldexp(abs(fraction), exponent - lowest))
            place = (lowest + 1074) // 24
            off = (lowest + 1074) - 24 * place
            sign = np.int64(1) if value > 0 else np.int64(-1)
            at = 3 + place - low
            # The mantissa has 53 bits and is shifted by up to 23.
            out[i, at] = sign * ((mantissa << off) & mask)
            rest = mantissa >> (24 - off)
            while rest:
                at += 1
                out[i, at] = sign * (rest & mask)
                rest >>= 24


@compiled(types.void(types.Array(types.int64, 2, "C", readonly=True), _I64_2D))
def _split_wide(words, out):  # type: ignore[no-untyped-def]
    """Write the digits of 128-bit numbers, given as low and high words."""
    mask = np.int64((1 << 24) - 1)
    last = out.shape[1] - 1
    for i in range(len(words)):
        low, high = np.uint64(words[i, 0]), words[i, 1]
        for place in range(last + 1):
            shift = 24 * place
            if shift == 0:
                part = words[i, 0]
            elif shift < 64:
                above = np.uint64(high) << np.uint64(64 - shift)
                part = np.int64((low >> np.uint64(shift)) | above)
            else:
                part = high >> np.int64(shift - 64)
            # The last digit has the rest, with the sign.
            out[i, place] = part if place == last else part & mask
