"""Walks over rows and blocks give what Python's own sum, min and max give."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millpond.synopses.total_walks import (
    block_ends,
    block_whole,
    extend_ends,
    extend_whole,
    find_ends,
    sum_whole,
)
from millpond.synopses.totals import double_keys

BLOCK = 3
NO_ROWS = np.zeros(0, np.int64)
WHOLE = st.integers(-(2**63), 2**63 - 1)


@st.composite
def chosen(draw: st.DrawFn, size: int) -> tuple[int, int, list[int]]:
    """Some blocks of so many values, and further rows that lie in none of them."""
    blocks = -(-size // BLOCK)
    first = draw(st.integers(0, blocks))
    last = draw(st.integers(first, blocks))
    others = [row for row in range(size) if not first <= row // BLOCK < last]
    return first, last, draw(st.lists(st.sampled_from(others), unique=True)) if others else []


@given(st.data(), st.lists(WHOLE, min_size=1, max_size=20))
def test_whole_numbers(data: st.DataObject, values: list[int]) -> None:
    first, last, rows = data.draw(chosen(len(values)))
    numbers, count = np.array(values, np.int64), -(-len(values) // BLOCK)
    sums = np.zeros((count + 1, 2), np.int64)
    least, greatest = np.empty(count, np.int64), np.empty(count, np.int64)
    block_whole(numbers, NO_ROWS, True, BLOCK, sums, least, greatest)
    inside = [*values[first * BLOCK : last * BLOCK], *(values[row] for row in rows)]
    further = np.array(rows, np.int64)
    high, low, *ends = extend_whole(numbers, further, sums, least, greatest, first, last)
    assert (high << 32) + low == sum(inside)
    assert ends == ([min(inside), max(inside)] if inside else [2**63 - 1, -(2**63)])
    high, low, *ends = sum_whole(numbers)
    assert ((high << 32) + low, *ends) == (sum(values), min(values), max(values))


@given(st.data(), st.lists(st.floats(), min_size=1, max_size=20))
def test_doubles(data: st.DataObject, values: list[float]) -> None:
    first, last, rows = data.draw(chosen(len(values)))
    numbers, count = np.array(values), -(-len(values) // BLOCK)
    least, greatest = np.empty(count, np.int64), np.empty(count, np.int64)
    block_ends(numbers, NO_ROWS, True, BLOCK, least, greatest)
    keys = double_keys(numbers).tolist()
    inside = [*keys[first * BLOCK : last * BLOCK], *(keys[row] for row in rows)]
    ends = extend_ends(numbers, np.array(rows, np.int64), least, greatest, first, last)
    assert ends == ((min(inside), max(inside)) if inside else (2**63 - 1, -(2**63)))
    assert find_ends(numbers) == (min(keys), max(keys))
