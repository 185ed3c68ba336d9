"""Numbers of rows: equal as SQL groups rows, in the order of appearance, whatever is forgotten."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.operators.structures.key_numbers import KeyNumbers

ROWS = st.lists(
    st.tuples(st.none() | st.integers(-3, 3), st.none() | st.sampled_from(["", "a", "b", "ü"])),
    max_size=30,
)
TYPES = [pa.int64(), pa.string()]


def columns(rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    return [pa.array([row[i] for row in rows], type_) for i, type_ in enumerate(TYPES)]


@given(st.lists(ROWS, max_size=4), ROWS)
def test_rows_are_numbered_by_first_appearance(
    batches: list[list[tuple[Any, ...]]], asked: list[tuple[Any, ...]]
) -> None:
    keys, known = KeyNumbers(TYPES), {}
    for rows in batches:
        expected = [known.setdefault(row, len(known)) for row in rows]
        assert keys.number(columns(rows)).tolist() == expected
    assert len(keys) == len(known)
    assert keys.find(columns(asked)).tolist() == [known.get(row, -1) for row in asked]
    assert len(keys) == len(known)


@given(ROWS, st.data())
def test_what_is_forgotten_leaves_the_order_of_the_rest(
    rows: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    keys = KeyNumbers(TYPES)
    keys.number(columns(rows))
    distinct = list(dict.fromkeys(rows))
    alive = data.draw(st.lists(st.booleans(), min_size=len(distinct), max_size=len(distinct)))
    moved = keys.compact(np.array(alive, np.bool_))
    left = [row for row, lives in zip(distinct, alive, strict=True) if lives]
    assert moved.tolist() == [left.index(row) if row in left else -1 for row in distinct]
    assert keys.find(columns(left)).tolist() == list(range(len(left)))
    gone = [row for row in distinct if row not in left]
    assert keys.find(columns(gone)).tolist() == [-1] * len(gone)
    assert keys.number(columns(gone)).tolist() == list(range(len(left), len(distinct)))


@pytest.mark.parametrize("width", [61, 62, 63, 124, 125, 300])
def test_keys_of_very_many_columns(width: int) -> None:
    """Each column may be NULL; zero is not NULL."""
    keys = KeyNumbers([pa.int64()] * width)
    rows = [[None if row == place else 0 for place in range(width)] for row in range(width)]
    rows.append([0] * width)
    given = [pa.array([row[place] for row in rows], pa.int64()) for place in range(width)]
    assert keys.number(given).tolist() == list(range(width + 1))
    moved = keys.compact(np.arange(width + 1) % 2 == 0)
    assert keys.find(given).tolist() == moved.tolist()


def test_many_rows_grow_the_table() -> None:
    keys = KeyNumbers([pa.int64()])
    values = pa.array(np.arange(5_000) * 977)
    assert keys.number([values]).tolist() == list(range(5_000))
    assert keys.find([values]).tolist() == list(range(5_000))
    assert keys.is_worth_compacting(2_000)
    assert not keys.is_worth_compacting(2_500)


@pytest.mark.parametrize(
    ("values", "type_", "numbers"),
    [
        ([0.0, -0.0, math.nan, -math.nan, None], pa.float64(), [0, 0, 1, 1, 2]),
        ([0, None, 0], pa.int64(), [0, 1, 0]),
        ([False, None, True], pa.bool_(), [0, 1, 2]),
        ([2**64 - 1, 2**63, None], pa.uint64(), [0, 1, 2]),
        (["", None, ""], pa.string(), [0, 1, 0]),
        ([[1, None], [1], [1, None], None, []], pa.list_(pa.int32()), [0, 1, 0, 2, 3]),
        (["a", "b", "a"], pa.dictionary(pa.int8(), pa.string()), [0, 1, 0]),
    ],
)
def test_equal_values_of_every_kind(values: list[Any], type_: Any, numbers: list[int]) -> None:
    assert KeyNumbers([type_]).number([pa.array(values, type_)]).tolist() == numbers


def test_rows_without_columns_are_one_group() -> None:
    keys = KeyNumbers([])
    assert len(keys) == 0
    keys.number_empty_rows()
    keys.number_empty_rows()
    assert len(keys) == 1
