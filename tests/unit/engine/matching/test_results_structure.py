"""The Results Structure: every encoding gives back the rows it was made of, in any range."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.matching.results_structure import (
    ALL,
    DENSE,
    GAPS,
    LIST,
    SCHEMA,
    FilterPassage,
    Matches,
    MatchReader,
    choose_encoding,
    encode,
    list_bytes,
)

#: Rows of the batch, and how many of them match, so that each encoding is the smallest.
SHARES = {ALL: 1.0, DENSE: 0.4, GAPS: 0.08, LIST: 0.0005}
ROWS = 20_000


def choose_rows(share: float, seed: int = 0) -> np.ndarray:
    return np.flatnonzero(np.random.default_rng(seed).random(ROWS) < share)


@pytest.mark.parametrize("encoding", SHARES)
def test_each_encoding_gives_its_rows_back(encoding: int) -> None:
    rows = choose_rows(SHARES[encoding])
    pieces = encode({3: rows}, ROWS)
    assert [batch.column(2).to_pylist() for batch in pieces] == [[encoding]]
    reader = MatchReader(pa.Table.from_batches(pieces, SCHEMA))
    assert reader.count(3) == len(rows)
    for low, high in ((0, ROWS), (-5, ROWS + 5), (63, 65), (777, 12_345), (9, 9), (ROWS, ROWS + 1)):
        expected = rows[(rows >= low) & (rows < high)]
        assert reader.rows(3, low, high).tolist() == expected.tolist()


@given(
    st.dictionaries(st.integers(0, 2**32 - 1), st.sets(st.integers(0, 299)), max_size=8),
    st.integers(0, 300),
    st.integers(0, 300),
)
def test_slots_of_all_encodings_are_read_from_one_table(
    found: dict[int, set[int]], low: int, high: int
) -> None:
    arrays = {slot: np.array(sorted(rows), np.int64) for slot, rows in found.items()}
    reader = Matches(300, encode(arrays, 300)).reader()
    assert reader.slots.tolist() == sorted(slot for slot, rows in found.items() if rows)
    for slot, rows in found.items():
        assert reader.count(slot) == len(rows)
        expected = sorted(row for row in rows if low <= row < high)
        assert reader.rows(slot, low, high).tolist() == expected


def test_a_slot_without_a_match_has_no_rows() -> None:
    reader = MatchReader(SCHEMA.empty_table())
    assert reader.slots.tolist() == []
    assert reader.count(1) == 0
    assert reader.rows(1, 0, 10).tolist() == []


def test_no_encoding_is_larger_than_the_bits() -> None:
    counts = np.arange(1, ROWS)
    rows = [choose_rows(count / ROWS) for count in counts[::1_999]]
    for own in rows:
        if len(own):
            (piece,) = encode({0: own}, ROWS)
            assert len(piece.column(3)[0].as_py()) <= 8 * ((ROWS + 63) // 64)


def test_lists_are_padded_to_words() -> None:
    assert [list_bytes(n) for n in (0, 1, 2, 3)] == [0, 8, 8, 16]
    assert choose_encoding(np.array([0, ROWS]), ROWS).tolist() == [LIST, ALL]


def test_passages_add_up() -> None:
    assert FilterPassage(1, 2, 3).plus(FilterPassage(10, 20, 30)) == FilterPassage(11, 22, 33)
