"""Totals are exact and functions of the bag, however it is cut, merged, blocked and packed."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.synopses.blocked_totals import BLOCK, BlockedTotals, block_rows, block_values
from millpond.synopses.order_keys import make_order_keys
from millpond.synopses.totals import (
    NOTHING,
    Total,
    merge,
    open_column,
    round_sum,
    total_of,
)

WHOLE = st.integers(-(2**63), 2**63 - 1)
COLUMNS = {
    pa.int64(): WHOLE,
    pa.int8(): st.integers(-128, 127),
    pa.bool_(): st.booleans(),
    pa.decimal128(18, 3): st.decimals(-(10**15) + 1, 10**15 - 1, places=3),
    pa.timestamp("us"): st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
    pa.date32(): st.dates(),
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.string(): st.text(max_size=3),
}


@st.composite
def columns(draw: Any) -> pa.Array:
    type_ = draw(st.sampled_from(list(COLUMNS)))
    values = draw(st.lists(st.none() | COLUMNS[type_], max_size=40))
    return pa.array(values, type_)


def sum_naively(values: list[Any], type_: pa.DataType) -> Any:
    if pa.types.is_decimal(type_):
        return sum(int(v.scaleb(type_.scale)) for v in values)
    if pa.types.is_floating(type_):
        exact = sum((Fraction(v) for v in values if math.isfinite(v)), Fraction(0))
        return int(exact * 2**1074)
    if pa.types.is_timestamp(type_):
        return sum((v - datetime(1970, 1, 1)) // timedelta(microseconds=1) for v in values)
    if pa.types.is_date(type_):
        return sum(v.toordinal() - 719_163 for v in values)
    return sum(int(v) for v in values)


def check(total: Total, column: pa.Array) -> None:
    """Compare a total with what Python computes of the values."""
    type_, values = column.type, [v for v in column.to_pylist() if v is not None]
    assert (total.rows, total.values) == (len(column), len(values))
    if pa.types.is_string(type_):
        assert total[2:] == NOTHING[2:]
        return
    assert total.sum == sum_naively(values, type_)
    if pa.types.is_floating(type_):
        odd = [sum(v == math.inf for v in values), sum(v == -math.inf for v in values)]
        assert total.specials == (*odd, sum(math.isnan(v) for v in values))
    keys = [total.least, total.greatest]
    if not values:
        assert keys == [None, None]
        return
    ends = make_order_keys(type_).decode(np.array(keys), np.ones(2, bool)).to_pylist()
    numbers = [v for v in values if v == v]  # NaN is above everything, as DuckDB orders
    least = min(numbers) if numbers else math.nan
    greatest = max(values) if len(numbers) == len(values) else math.nan
    for found, expected in zip(ends, (least, greatest), strict=True):
        assert found == expected or (found != found and expected != expected)


@given(columns())
def test_a_total_is_what_the_values_say(column: pa.Array) -> None:
    check(total_of(open_column(column)), column)


@given(columns(), st.lists(st.integers(0, 40), max_size=3), st.randoms())
def test_parts_merge_in_any_order(column: pa.Array, cuts: list[int], random: Any) -> None:
    ends = sorted({0, len(column), *(c for c in cuts if c < len(column))})
    parts = [total_of(open_column(column.slice(a, b - a))) for a, b in pairwise(ends)]
    random.shuffle(parts)
    assert merge(parts) == total_of(open_column(column))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e308, 1e308, -1e308], 1e308),
        ([1e16, 1.0, -1e16], 1.0),
        ([5e-324, 5e-324], 1e-323),
        ([1e308, 1e308], math.inf),
        ([-1e308, -1e308], -math.inf),
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1.0], -math.inf),
        ([0.1] * 10, 1.0),
    ],
)
def test_sums_of_doubles_are_rounded_once(values: list[float], expected: float) -> None:
    assert round_sum(total_of(open_column(pa.array(values, pa.float64())))) == expected


@given(columns(), st.integers(0, 40), st.integers(0, 40))
def test_a_range_of_rows_is_those_rows(column: pa.Array, lo: int, hi: int) -> None:
    opened = open_column(column)
    rows = np.arange(len(column))[lo:hi]
    assert total_of(opened, slice(lo, hi)) == total_of(opened, rows)
    without = total_of(opened, rows, sums=False)
    assert (without.values, without.least, without.greatest) == (
        (found := total_of(opened, rows)).values,
        found.least,
        found.greatest,
    )


@pytest.mark.parametrize("values", [[math.inf, -math.inf], [math.nan, 1.0]])
def test_sums_that_are_no_number(values: list[float]) -> None:
    assert math.isnan(round_sum(total_of(open_column(pa.array(values, pa.float64())))))


@pytest.mark.parametrize("type_", list(COLUMNS), ids=str)
@pytest.mark.parametrize("share", [None, 0.4])
def test_blocks_give_the_total_of_any_of_them(type_: pa.DataType, share: float | None) -> None:
    random = np.random.default_rng(7)
    size = 3 * BLOCK + 5
    numbers = random.integers(-100, 100, size)
    match type_:
        case t if pa.types.is_string(t):
            values: list[Any] = [str(n) for n in numbers]
        case t if pa.types.is_floating(t):
            values = (numbers * 0.1 * 2.0 ** random.integers(-30, 30, size)).tolist()
            values[3], values[BLOCK + 3], values[2 * BLOCK] = math.inf, math.nan, -math.inf
        case t if pa.types.is_boolean(t):
            values = (numbers > 0).tolist()
        case t if pa.types.is_decimal(t):
            values = [Decimal(int(n)) / 1000 for n in numbers]
        case _:
            values = pa.array(numbers).cast(pa.int32()).cast(pa.int64()).to_pylist()
    nulls = random.random(size) < 0.1
    nulls[BLOCK : 2 * BLOCK] = True  # a block without a value
    column = pa.array([None if n else v for n, v in zip(nulls, values, strict=True)])
    column = column.cast(pa.int32()).cast(type_) if pa.types.is_date(type_) else column.cast(type_)
    matching = None if share is None else np.flatnonzero(random.random(size) < share)
    found = block_values(matching, open_column(column))
    rows = np.arange(size) if matching is None else matching
    for blocks in (found, BlockedTotals.unpack(found.pack())):
        assert blocks.blocks == -(-len(rows) // BLOCK)
        for first in range(blocks.blocks + 1):
            for last in range(first, blocks.blocks + 1):
                chosen = rows[first * BLOCK : last * BLOCK]
                assert blocks.total(first, last) == total_of(open_column(column), chosen)
        assert blocks.find_starts().tolist() == rows[::BLOCK].tolist()


def test_blocks_of_rows() -> None:
    assert block_rows(None, 10_000).total(0, 2) == Total(2 * BLOCK)
    own = block_rows(np.arange(0, 20_000, 2), 20_000)
    assert own.total(1, own.blocks) == Total(10_000 - BLOCK)
    empty = BlockedTotals.unpack(block_rows(np.zeros(0, np.int64), 5).pack())
    assert (empty.blocks, empty.total(0, 0), len(empty.find_starts())) == (0, NOTHING, 0)


def test_blocks_of_no_values() -> None:
    nothing = np.zeros(0, np.int64)
    for type_ in COLUMNS:
        column = pa.array([None, None], type_)
        assert block_values(nothing, open_column(column)).total(0, 0) == NOTHING
