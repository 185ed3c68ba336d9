"""Which elements are shed, and how they are counted."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.admission.shed import (
    choose_elements,
    count_seconds,
    is_chunk_shed,
    shed_table,
)


def test_about_the_share_is_shed_and_a_greater_share_sheds_more() -> None:
    masks = [choose_elements(7, 0, 100_000, share) for share in (0.0, 0.5, 0.9, 1.0)]
    assert [round(float(mask.mean()), 1) for mask in masks] == [0.0, 0.5, 0.9, 1.0]
    for less, more in itertools.pairwise(masks):
        assert not (less & ~more).any()


def test_what_is_shed_does_not_depend_on_the_cut() -> None:
    whole = choose_elements(3, 10, 1000, 0.5)
    parts = [choose_elements(3, 10 + at, 100, 0.5) for at in range(0, 1000, 100)]
    assert (whole == np.concatenate(parts)).all()
    assert (whole != choose_elements(4, 10, 1000, 0.5)).any()


def test_chunks_are_shed_whole() -> None:
    found = [is_chunk_shed(1, number, 0.5) for number in range(2000)]
    assert 900 < sum(found) < 1100
    assert not any(is_chunk_shed(1, number, 0.0) for number in range(100))
    assert all(is_chunk_shed(1, number, 1.0) for number in range(100))


@given(st.lists(st.integers(-(10**15), 10**15)))
def test_every_element_is_counted_in_its_second(stamps: list[int]) -> None:
    seconds, counts = count_seconds(np.array(stamps, np.int64))
    assert counts.sum() == len(stamps)
    expected = {stamp // 1_000_000 * 1_000_000 for stamp in stamps}
    assert seconds.tolist() == sorted(expected)
    assert shed_table(np.array(stamps, np.int64), "1-3")["elements"].to_pylist() == counts.tolist()
