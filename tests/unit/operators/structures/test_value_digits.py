"""`operators/structures/value_digits.py`: a value is the sum of its digits times the units."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.operators.structures.value_digits import SPECIAL, Digits, has_digits

WHOLE = {
    pa.int8(): 8,
    pa.int16(): 16,
    pa.int32(): 32,
    pa.int64(): 64,
}


def split(digits: Digits, values: list[Any], type_: pa.DataType) -> list[list[int]]:
    column = pa.array(values, type_)
    digits.reach(column, np.ones(len(column), np.int64))
    out = np.full((len(column), digits.count), 7, np.int64)
    digits.split(column, out)
    return out.tolist()


def check(type_: pa.DataType, values: list[Any]) -> None:
    digits = Digits(type_)
    rows = split(digits, values, type_)
    zero, *units = digits.list_values().to_pylist()
    assert not zero
    assert len(units) == digits.count
    for value, row in zip(values, rows, strict=True):
        if value is None:
            assert not any(row)
        elif isinstance(value, float) and not math.isfinite(value):
            (place,) = np.flatnonzero(row)
            assert row[place] == 1
            assert repr(units[place]) == repr(value)
        else:
            assert all(abs(digit) < 1 << 24 for digit in row[:-1])
            found = sum(Fraction(u) * d for u, d in zip(units, row, strict=True) if d)
            assert found == Fraction(value)


@given(st.lists(st.none() | st.floats(allow_nan=True, allow_infinity=True), min_size=1))
def test_doubles(values: list[float | None]) -> None:
    check(pa.float64(), values)


@pytest.mark.parametrize("type_", WHOLE, ids=str)
@given(st.data())
def test_whole_numbers(type_: pa.DataType, data: st.DataObject) -> None:
    most = 1 << (WHOLE[type_] - 1)
    own = st.none() | st.integers(-most, most - 1) | st.sampled_from((-most, most - 1, -1))
    check(type_, data.draw(st.lists(own, min_size=1)))


@pytest.mark.parametrize("precision", [1, 7, 8, 18, 19, 20, 29, 38])
@given(st.data())
def test_decimals(precision: int, data: st.DataObject) -> None:
    scale = data.draw(st.integers(0, precision))
    most = 10**precision - 1
    wholes = st.integers(-most, most) | st.sampled_from((most, -most))
    own = st.none() | wholes.map(
        lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale))
    )
    check(pa.decimal128(precision, scale), data.draw(st.lists(own, min_size=1)))


def test_units_of_doubles_come_as_values_need_them() -> None:
    digits = Digits(pa.float64())
    ones = np.ones(1, np.int64)
    assert digits.count == SPECIAL
    assert digits.reach(pa.array([0.0]), ones) == (0, 0)
    below, above = digits.reach(pa.array([1.0]), ones)
    assert (below, digits.count) == (0, SPECIAL + above)
    assert digits.reach(pa.array([1.5]), ones) == (0, 0)
    assert digits.reach(pa.array([2.0**100]), ones)[0] == 0
    below, above = digits.reach(pa.array([5e-324]), ones)
    assert below > 0
    assert above == 0
    # What has no weight takes no part.
    assert digits.reach(pa.array([1e300]), np.zeros(1, np.int64)) == (0, 0)


def test_which_types_have_digits() -> None:
    no = [pa.string(), pa.bool_(), pa.uint64(), pa.float32(), pa.timestamp("us"), pa.date32()]
    assert not any(map(has_digits, no))
    yes = [*WHOLE, pa.uint8(), pa.uint32(), pa.float64(), pa.decimal128(5, 2), pa.decimal128(38, 9)]
    assert all(map(has_digits, yes))
