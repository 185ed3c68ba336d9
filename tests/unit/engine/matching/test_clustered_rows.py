"""Matches that are kept with like elements side by side come back in the order of arrival."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engine.matching.clustered_rows import (
    cluster,
    restore_rows,
    rows_of_clustered,
    take_in_order,
    write_clustered,
)
from millpond.engine.values.region_codes import CodableColumn
from millpond.engine.values.value_sets import Domain
from millpond.model.bit_matrix import bits_of_rows, rows_of_bits, words_for

BLOCK = 65_536
MOST = 1 << 40


def make_values(rows: int, attributes: int = 3, values: int = 50, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, values, (attributes, rows))


def open_column(values: pa.Array) -> CodableColumn:
    return CodableColumn(values, Domain.INT64)


def order_of(rows: int, seed: int = 1) -> np.ndarray:
    return cluster([open_column(pa.array(own)) for own in make_values(rows, seed=seed)], rows)


def number_elements(order: np.ndarray) -> np.ndarray:
    """Return the element at each place, numbered through all blocks."""
    return np.arange(len(order)) // BLOCK * BLOCK + order


def place_bits(found: list[np.ndarray], order: np.ndarray) -> np.ndarray:
    """Make a row of bits a query, place by place."""
    place = np.empty(len(order), np.int64)
    place[number_elements(order)] = np.arange(len(order))
    return np.stack([bits_of_rows(np.sort(place[rows]), len(order)) for rows in found])


def random_rows(rows: int, share: float, seed: int) -> np.ndarray:
    return np.flatnonzero(np.random.default_rng(seed).random(rows) < share)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 511, 513, BLOCK - 1, BLOCK, BLOCK + 1, 150_000])
def test_every_block_is_a_permutation(rows: int) -> None:
    order = order_of(rows)
    assert np.sort(number_elements(order)).tolist() == list(range(rows))
    codes = make_values(rows, attributes=2).astype(np.int32)
    assert take_in_order(codes, order).tolist() == codes[:, number_elements(order)].tolist()


def test_like_elements_stand_side_by_side() -> None:
    values = make_values(BLOCK, attributes=3, values=16).astype(np.int32)
    order = cluster([open_column(pa.array(own)) for own in values], BLOCK)
    taken = take_in_order(values, order)
    assert np.count_nonzero((taken[:, 1:] != taken[:, :-1]).any(axis=0)) < 16**3
    assert np.count_nonzero((values[:, 1:] != values[:, :-1]).any(axis=0)) > 60_000


@pytest.mark.parametrize(
    ("domain", "values"),
    [
        (Domain.INT64, pa.array([3, 1, None, 2] * 1000, pa.int64())),
        (Domain.FLOAT, pa.array([-0.5, float("nan"), None, float("inf")] * 1000)),
        (Domain.TEXT, pa.array(["m", "b", None, ""] * 1000)),
        (Domain.BOOL, pa.array([True, False, None, True] * 1000)),
    ],
)
def test_elements_of_a_cell_stay_as_they_came(domain: Domain, values: pa.Array) -> None:
    order = cluster([CodableColumn(values, domain)], 4_000)
    taken = [repr(value) for value in values.take(pa.array(order)).to_pylist()]
    runs = 1 + sum(one != two for one, two in pairwise(taken))
    assert runs == len({repr(value) for value in values.slice(0, 4).to_pylist()})
    assert (np.diff(order.astype(int)) < 0).sum() == runs - 1


@pytest.mark.parametrize("attributes", [0, 1, 2, 5, 20])
def test_any_number_of_attributes_is_ordered_by(attributes: int) -> None:
    values = make_values(5_000, attributes=max(attributes, 1), values=3_000)
    order = cluster([open_column(pa.array(own)) for own in values[:attributes]], 5_000)
    assert np.sort(order).tolist() == list(range(5_000))
    assert (order.tolist() == list(range(5_000))) == (attributes == 0)


def test_attributes_of_one_value_divide_nothing() -> None:
    columns = [open_column(pa.array([7] * 999)), open_column(pa.array([None] * 999, pa.int64()))]
    assert cluster(columns, 999).tolist() == list(range(999))


def test_very_large_values_are_divided() -> None:
    values = pa.array([2**63 - 1, -(2**63), 0] * 1000, pa.int64())
    order = cluster([open_column(values)], 3_000)
    assert values.take(pa.array(order)).to_pylist() == sorted(values.to_pylist())


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 64, 100, 4_096, BLOCK, BLOCK + 70, 2 * BLOCK + 5_000]),
    st.lists(st.sampled_from([0.0, 0.0001, 0.01, 0.06, 0.5, 0.97, 1.0]), min_size=1, max_size=5),
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 140_000), min_size=4, max_size=4),
)
def test_rows_come_back(rows: int, shares: list[float], seed: int, cuts: list[int]) -> None:
    order = order_of(rows, seed)
    found = [random_rows(rows, share, seed + i) for i, share in enumerate(shares)]
    bits = place_bits(found, order)
    chosen = np.arange(len(found))[::-1].copy()
    data, ends = write_clustered(bits, chosen, np.full(len(found), MOST // 2**20), rows)
    low, begin, end, high = sorted(min(cut, rows) for cut in cuts)
    start = 0
    for query, upto in zip(chosen.tolist(), ends.tolist(), strict=True):
        own = data[start:upto].copy()  # nothing behind it may be looked at
        start = upto
        assert len(own) % 8 == 0
        assert own[-1] == 0  # reading looks at one byte behind the last
        wanted = found[query]
        whole = rows_of_clustered(own, order, len(wanted), 0, rows, rows, rows)
        assert whole.tolist() == wanted.tolist()
        edges = rows_of_clustered(own, order, len(wanted), low, begin, end, high)
        is_inside = ((wanted >= low) & (wanted < begin)) | ((wanted >= end) & (wanted < high))
        assert edges.tolist() == wanted[is_inside].tolist()
    restore_rows(bits, chosen, order)
    for query, wanted in enumerate(found):
        assert rows_of_bits(bits[query], 0, rows).tolist() == wanted.tolist()


def test_only_chosen_queries_are_put_back() -> None:
    order = order_of(5_000)
    found = [random_rows(5_000, 0.1, seed) for seed in range(3)]
    bits = place_bits(found, order)
    before = bits.copy()
    restore_rows(bits, np.array([1]), order)
    assert bits[[0, 2]].tolist() == before[[0, 2]].tolist()
    assert rows_of_bits(bits[1], 0, 5_000).tolist() == found[1].tolist()


def test_what_takes_more_than_it_may_is_left_out() -> None:
    rows = 100_000
    order = order_of(rows)
    found = [random_rows(rows, share, 5) for share in (0.3, 0.01, 0.3)]
    bits = place_bits(found, order)
    every = np.arange(3)
    data, ends = write_clustered(bits, every, np.full(3, 1 << 20), rows)
    sizes = np.diff(ends, prepend=0)
    assert len(data) == ends[-1]
    fits, starts = sizes.copy(), np.concatenate([[0], ends[:-1]])
    fits[1] -= 1
    fewer, cut = write_clustered(bits, every, fits, rows)
    assert np.diff(cut, prepend=0).tolist() == [sizes[0], 0, sizes[2]]
    kept = [data[starts[query] : ends[query]] for query in (0, 2)]
    assert fewer.tolist() == np.concatenate(kept).tolist()
    assert write_clustered(bits, every, np.zeros(3, np.int64), rows)[1].tolist() == [0, 0, 0]


def test_clumps_take_less_than_bits() -> None:
    values = make_values(BLOCK, attributes=2, values=1_000)
    order = cluster([open_column(pa.array(own)) for own in values], BLOCK)
    clump = np.flatnonzero((values[0] < 250) & (values[1] < 250))
    data, _ = write_clustered(place_bits([clump], order), np.array([0]), np.array([9_999]), BLOCK)
    assert len(data) < len(clump) / 3 < 8 * words_for(BLOCK) / 4


def test_words_that_match_whole_take_a_byte() -> None:
    every, order = np.arange(BLOCK), order_of(BLOCK)
    data, ends = write_clustered(
        place_bits([every], order), np.array([0]), np.array([9_999]), BLOCK
    )
    assert ends.tolist() == [4 + BLOCK // 512 + BLOCK // 64 + 4]
    read = rows_of_clustered(data, order, BLOCK, 0, BLOCK, BLOCK, BLOCK)
    assert read.tolist() == every.tolist()
