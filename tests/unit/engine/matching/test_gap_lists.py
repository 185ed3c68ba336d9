"""Lists of gaps give back the rows they were made of, from bits and from numbers alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.matching.gap_lists import gaps_of_bits, gaps_of_rows, most_bytes, rows_of_gaps
from millpond.engine.matching.results_structure import (
    ALL,
    DENSE,
    GAPS,
    LIST,
    Matches,
    choose_encoding,
    encode,
)
from millpond.model.bit_matrix import bits_of_rows, words_for

ROWS = 70_000
numbers = st.one_of(
    st.sets(st.integers(0, ROWS - 1), max_size=60),
    st.builds(
        lambda start, step, size: set(range(start, min(ROWS, start + step * size), step)),
        st.integers(0, ROWS - 1),
        st.sampled_from([1, 2, 254, 255, 256, 257, 510, 511, 16_384]),
        st.integers(0, 40_000),
    ),
)


@given(numbers, st.integers(0, ROWS), st.integers(0, ROWS + 99))
def test_rows_come_back(rows: set[int], low: int, high: int) -> None:
    given_rows = np.array(sorted(rows), np.int64)
    data = gaps_of_rows(given_rows, ROWS)
    assert len(data) <= most_bytes(len(rows), ROWS)
    assert len(data) % 8 == 0
    found = rows_of_gaps(data, len(rows), low, high)
    assert found.tolist() == [row for row in sorted(rows) if low <= row < high]


@given(st.lists(numbers, min_size=1, max_size=4))
def test_bits_and_numbers_make_the_same_list(queries: list[set[int]]) -> None:
    bits = np.stack([bits_of_rows(np.array(sorted(q)), ROWS) for q in queries])
    chosen = np.arange(len(queries))[::-1].copy()
    counts = np.array([len(queries[c]) for c in chosen])
    data, ends = gaps_of_bits(bits, chosen, counts, ROWS)
    start = 0
    for place, end in zip(chosen, ends, strict=True):
        want = gaps_of_rows(np.array(sorted(queries[place])), ROWS)
        assert data[start:end].tobytes() == want.tobytes()
        start = int(end)


@pytest.mark.parametrize("rows", [1, 63, 64, 16_383, 16_384, 16_385, 40_000])
def test_batches_of_every_length(rows: int) -> None:
    every = np.arange(rows)
    assert rows_of_gaps(gaps_of_rows(every, rows), rows, 0, rows).tolist() == every.tolist()
    last = np.array([rows - 1])
    assert rows_of_gaps(gaps_of_rows(last, rows), 1, 0, rows).tolist() == [rows - 1]
    bits = bits_of_rows(last, rows).reshape(1, words_for(rows))
    data, _ = gaps_of_bits(bits, np.array([0]), np.array([1]), rows)
    assert data.tobytes() == gaps_of_rows(last, rows).tobytes()


@given(st.integers(1, 2_000_000), st.floats(0, 1))
def test_no_encoding_is_smaller_than_the_smallest(rows: int, share: float) -> None:
    count = int(rows * share)
    lengths = {
        LIST: 8 * ((count + 1) // 2),
        GAPS: int(most_bytes(count, rows)),
        DENSE: 8 * words_for(rows),
    }
    chosen = int(choose_encoding(count, rows))
    if count == rows:
        assert chosen == ALL
    else:
        assert lengths[chosen] == min(lengths.values())


def test_a_query_of_middling_selectivity_is_kept_as_gaps() -> None:
    rows = np.arange(5, 50_000, 17)
    matches = Matches(50_000, encode({3: rows}, 50_000))
    assert matches.to_table()["encoding"].to_pylist() == [GAPS]
    assert matches.reader().count(3) == len(rows)
    inside = rows[(rows >= 20_000) & (rows < 20_100)]
    assert matches.reader().rows(3, 20_000, 20_100).tolist() == inside.tolist()
