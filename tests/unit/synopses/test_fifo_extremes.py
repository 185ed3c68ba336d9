"""Extremes of keys that leave as they came, held to multisets."""

from __future__ import annotations

import numpy as np
import pytest

from millpond.operators.aggregation.cells import Layout
from millpond.synopses.fifo_extremes import FifoExtremes
from millpond.synopses.multiset_walks import GREATEST, LEAST
from millpond.synopses.ordered_multiset import OrderedMultisets

PICKS = np.array([GREATEST, LEAST])
SHARES = np.zeros(2)


@pytest.mark.parametrize("spread", [2, 40, 2**61])
@pytest.mark.parametrize("seed", range(4))
def test_they_give_what_multisets_give(seed: int, spread: int) -> None:
    """Groups come, grow and are renumbered; keys leave after ten instants."""
    rng = np.random.default_rng(seed)
    held, sets, layout = FifoExtremes(), OrderedMultisets(), Layout()
    groups, alive, now = 2, [], 0
    for step in range(20):
        groups += int(rng.integers(0, 4))
        held.reserve(groups)
        sets.reserve(groups)
        changes = []
        for at in range(now, now + 8):
            leaving = [one for one in alive if one[0] + 10 == at]
            alive = [one for one in alive if one[0] + 10 != at]
            rng.shuffle(leaving)
            changes += [(at, group, key, -weight) for _, group, key, weight in leaving]
            for _ in range(int(rng.integers(0, 30 if step < 15 else 2))):
                group, key = int(rng.integers(0, groups)), int(rng.integers(-spread, spread))
                weight = int(rng.integers(0, 3))
                changes.insert(len(changes), (at, group, key, weight))
                alive.append((at, group, key, weight))
        now += 8
        if not changes:
            continue
        at, numbers, keys, weights = (np.array(c, np.int64) for c in zip(*changes, strict=True))
        cells = layout.lay_out(numbers, at, groups)
        ordered = weights[cells.order]
        found = held.walk(cells, ordered, keys, PICKS, SHARES)
        expected = sets.walk(cells, ordered, keys, PICKS, SHARES)
        assert found[:, 2].tolist() == expected[:, 2].tolist()
        some = expected[:, 2] > 0
        assert found[some].tolist() == expected[some].tolist()
        if step % 4 == 3:
            moved = rng.permutation(groups)
            gone = moved == 0
            moved[gone] = -1
            alive = [(a, int(moved[g]), k, w) for a, g, k, w in alive if moved[g] >= 0]
            held.renumber(moved, groups)
            sets.renumber(moved, groups)


def test_nodes_are_used_again() -> None:
    held, layout = FifoExtremes(), Layout()
    held.reserve(1)
    for start in range(0, 30_000, 1_000):
        at = np.arange(start, start + 1_000)
        keys = np.concatenate([at, at - 50])
        weights = np.repeat([1, -1], 1_000)
        weights[1_000 : 1_000 + max(0, 50 - start)] = 0
        order = np.argsort(np.concatenate([at, at]), kind="stable")
        cells = layout.lay_out(np.zeros(2_000, np.int64), np.sort(np.concatenate([at, at])), 1)
        placed, some = keys[order], weights[order]
        trace = held.walk(cells, some[cells.order], placed, PICKS, SHARES)
        assert trace[-1].tolist() == [start + 999, start + 950, 50]
    assert held.size() < 20_000


def test_nodes_of_forgotten_groups_are_used_again() -> None:
    held, layout = FifoExtremes(), Layout()
    for _ in range(100):
        held.reserve(2)
        cells = layout.lay_out(np.repeat([0, 1], 40), np.arange(80), 2)
        held.walk(cells, np.ones(80, np.int64), np.arange(80), PICKS, SHARES)
        held.renumber(np.array([-1, -1]), 0)
    assert held.size() < 20_000


def test_keys_become_others_in_the_same_order() -> None:
    held, cells = FifoExtremes(), Layout().lay_out(np.zeros(3, np.int64), np.zeros(3, np.int64), 1)
    held.reserve(1)
    held.walk(cells, np.ones(3, np.int64), np.array([5, -7, 9]), PICKS, SHARES)
    held.rekey(np.array([-7, 0, 5, 9]), np.array([1, 2, 3, 4]))
    none = Layout().lay_out(np.zeros(1, np.int64), np.ones(1, np.int64), 1)
    trace = held.walk(none, np.zeros(1, np.int64), np.zeros(1, np.int64), PICKS, SHARES)
    assert trace[-1].tolist() == [4, 1, 3]


def test_no_more_can_leave_than_came() -> None:
    held, cells = FifoExtremes(), Layout().lay_out(np.zeros(1, np.int64), np.zeros(1, np.int64), 1)
    held.reserve(1)
    with pytest.raises(AssertionError, match="not there"):
        held.walk(cells, np.array([-1]), np.array([5]), PICKS, SHARES)
