"""Bits of rows, rows of bits, and the transposition between element-major and query-major."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from millpond.model.bit_matrix import bits_of_rows, count_ones, rows_of_bits, transpose_tile


@njit
def turn_round(tile: np.ndarray) -> None:
    transpose_tile(tile)


def as_bits(tile: np.ndarray) -> np.ndarray:
    """(row, matrix, column) of a tile's bits."""
    return np.unpackbits(tile.view(np.uint8), bitorder="little").reshape(64, 8, 64)


def test_transposition_exchanges_rows_and_columns_of_all_eight_matrices() -> None:
    tile = np.random.default_rng(1).integers(0, 2**64, 512, dtype=np.uint64)
    before = as_bits(tile)
    turn_round(tile)
    assert np.array_equal(as_bits(tile), before.transpose(2, 1, 0))


@given(
    st.sets(st.integers(0, 299)), st.integers(-5, 310).map(lambda n: max(n, 0)), st.integers(0, 300)
)
def test_rows_of_a_range_are_those_that_were_set(rows: set[int], low: int, high: int) -> None:
    words = bits_of_rows(np.array(sorted(rows), np.int64), 300)
    want = [r for r in sorted(rows) if low <= r < high]
    assert rows_of_bits(words, low, high).tolist() == want
    assert count_ones(words, low, high) == len(want)


@pytest.mark.parametrize("bits", [1, 63, 64, 65, 128])
def test_every_row_of_a_full_matrix_is_found(bits: int) -> None:
    words = bits_of_rows(np.arange(bits), bits)
    assert len(words) == (bits + 63) // 64
    assert rows_of_bits(words, 0, bits).tolist() == list(range(bits))


def test_words_that_cannot_be_written_are_read() -> None:
    words = bits_of_rows(np.array([3]), 64)
    words.flags.writeable = False
    assert rows_of_bits(words, 0, 64).tolist() == [3]
