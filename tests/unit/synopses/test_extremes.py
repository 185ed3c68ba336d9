"""Extremes of what only grows, held to multisets."""

from __future__ import annotations

import numpy as np
import pytest

from millpond.operators.aggregation.cells import Layout
from millpond.synopses.extremes import Extremes
from millpond.synopses.multiset_walks import GREATEST, LEAST
from millpond.synopses.ordered_multiset import OrderedMultisets

PICKS = np.array([GREATEST, LEAST])
SHARES = np.zeros(2)


@pytest.mark.parametrize("seed", range(5))
def test_they_give_what_multisets_give(seed: int) -> None:
    rng = np.random.default_rng(seed)
    held, sets, layout = Extremes(), OrderedMultisets(), Layout()
    groups = 4
    for step in range(8):
        groups += int(rng.integers(0, 5))
        held.reserve(groups)
        sets.reserve(groups)
        numbers = rng.integers(0, groups, 60)
        keys = rng.integers(-(2**62), 2**62, 60)
        cells = layout.lay_out(numbers, np.sort(rng.integers(0, 20, 60)), groups)
        weights = rng.integers(0, 3, 60)
        found = held.walk(cells, weights, keys, PICKS, SHARES)
        expected = sets.walk(cells, weights, keys, PICKS, SHARES)
        some = expected[:, -1] > 0
        assert (found[:, -1] > 0).tolist() == some.tolist()
        assert found[some, :2].tolist() == expected[some, :2].tolist()
        if step % 3 == 2:
            moved = rng.permutation(groups)
            moved[moved == 0] = -1
            held.renumber(moved, groups)
            sets.renumber(moved, groups)


def test_keys_become_others_in_the_same_order() -> None:
    held, cells = Extremes(), Layout().lay_out(np.array([0, 0, 2]), np.zeros(3, np.int64), 3)
    held.reserve(3)
    held.walk(cells, np.ones(3, np.int64), np.array([5, -7, 9]), PICKS, SHARES)
    held.rekey(np.array([-7, 0, 5, 9]), np.array([1, 2, 3, 4]))
    assert sorted(held.list_keys().tolist()) == [1, 3, 4, 4]


def test_nothing_can_go() -> None:
    held, cells = Extremes(), Layout().lay_out(np.zeros(1, np.int64), np.zeros(1, np.int64), 1)
    held.reserve(1)
    with pytest.raises(AssertionError, match="only come"):
        held.walk(cells, np.array([-1]), np.array([5]), PICKS, SHARES)
