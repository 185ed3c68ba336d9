"""The filter by slices of time: never wrongly no, wrongly yes as seldom as it says, in few bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.time import BEGINNING
from millpond.synopses.sliced_filter import SlicedFilter, predict_bits


def draw_keys(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


def list_found(filter_: SlicedFilter, keys: np.ndarray) -> set[tuple[int, int, int]]:
    """Each key's place, since when, and until when it seems to be there."""
    found = set()
    for places, since, end in filter_.find(keys):
        found |= {(int(p), int(s), end) for p, s in zip(places, since, strict=True)}
    return found


@settings(max_examples=60)
@given(st.data())
def test_keys_are_found_since_they_came_until_their_slice_ends(data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), max_size=30))
    cut = data.draw(st.integers(0, len(pairs)))
    keys, at = draw_keys(1, 10), np.arange(len(pairs))
    hashes = keys[[key for key, _ in pairs]] if pairs else keys[:0]
    ends = np.array([100 * end for _, end in pairs], np.int64)
    whole, parts = SlicedFilter(1e-9, 4), SlicedFilter(1e-9, 4)
    whole.put(hashes, at, ends)
    parts.put(hashes[:cut], at[:cut], ends[:cut])
    parts.put(hashes[cut:], at[cut:], ends[cut:])
    first = {}
    for place, (key, end) in enumerate(pairs):
        first.setdefault((key, 100 * end), place)
    expected = {(key, since, end) for (key, end), since in first.items()}
    assert list_found(whole, keys) == list_found(parts, keys) == expected
    assert len(whole) == len(expected)
    whole.settle(200)
    kept = {(key, BEGINNING, end) for key, _, end in expected if end > 200}
    assert list_found(whole, keys) == kept
    assert list(whole.find(keys, only_new=True)) == []


@pytest.mark.parametrize("share", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("count", [50, 2_000, 30_000])
def test_wrong_answers_are_as_rare_as_it_says(share: float, count: int) -> None:
    """By 4 sigma, for any number of keys, however they are spread over the slices."""
    keys, asked, slices = draw_keys(2, count), draw_keys(3, 20_000), 12
    filter_ = SlicedFilter(share, slices)
    ends = np.random.default_rng(4).integers(1, slices + 1, count) ** 2 // slices + 1
    filter_.put(keys, np.arange(count), ends)
    wrong = len({place for place, _, _ in list_found(filter_, asked)}) / len(asked)
    assert wrong <= share + 4 * (share / len(asked)) ** 0.5
    assert {place for place, _, _ in list_found(filter_, keys)} == set(range(count))


def test_it_takes_the_bits_that_are_predicted() -> None:
    """Of keys that come once; each further slice that a key is in takes as much again."""
    keys, slices = draw_keys(5, 200_000), 102
    filter_ = SlicedFilter(0.01, slices)
    ends = np.arange(len(keys)) // (len(keys) // (slices - 2)) + 1
    filter_.put(keys, np.arange(len(keys)), ends)
    bits = 8 * filter_.bytes() / len(keys)
    assert 0.5 < bits / predict_bits(0.01, slices) < 1.5
    filter_.put(keys, np.arange(len(keys)), ends[::-1].copy())
    assert 1.5 < 8 * filter_.bytes() / len(keys) / bits < 2.5


def test_bits_depend_on_the_order_of_keys_and_not_on_calls() -> None:
    keys = draw_keys(6, 3_000)
    at, ends = np.arange(len(keys)), np.full(len(keys), 7)
    asked = draw_keys(7, 5_000)
    found = []
    for calls in (1, 17):
        filter_ = SlicedFilter(0.2, 1)
        for some in np.array_split(at, calls):
            filter_.put(keys[some], at[some], ends[some])
        found.append(list_found(filter_, asked))
    assert found[0] == found[1] != set()
