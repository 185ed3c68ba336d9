"""Ordered multisets held to sorted lists."""

from __future__ import annotations

import math

import numpy as np
import pytest

from millpond.operators.aggregation.cells import Layout
from millpond.synopses.multiset_walks import ABOVE, BELOW, DISCRETE, DISTINCT, GREATEST, LEAST
from millpond.synopses.ordered_multiset import OrderedMultisets

PICKS = np.array([LEAST, GREATEST, DISTINCT, DISCRETE, BELOW, ABOVE])
SHARES = np.array([0.0, 0.0, 0.0, 0.3, 0.7, 0.7])


def picked(values: list[int]) -> list[int]:
    n = len(values)
    place = (n - 1) * 0.7
    discrete = values[max(1, n - math.floor(n - 0.3 * n)) - 1]
    between = [values[math.floor(place)], values[math.ceil(place)]]
    return [values[0], values[-1], len(set(values)), discrete, *between, n]


@pytest.mark.parametrize("spread", [5, 100, 10**6])
def test_they_are_what_sorting_says(spread: int) -> None:
    """They grow, then shrink to nothing; in the end no node is in use."""
    rng = np.random.default_rng(spread)
    sets, layout, groups = OrderedMultisets(), Layout(), 3
    sets.reserve(groups)
    held: list[list[int]] = [[] for _ in range(groups)]
    for step in range(14):
        changes: list[tuple[int, int, int]] = []
        at = 0
        bags = [list(values) for values in held]
        for _ in range(250):
            at += int(rng.integers(0, 2))
            group = int(rng.integers(0, groups))
            bag = bags[group]
            if not bag or rng.random() < (0.7 if step < 7 else 0.2):
                key, weight = int(rng.integers(-spread, spread)), int(rng.integers(1, 3))
                bag += [key] * weight
            else:
                # The oldest, as from a window, or any.
                key = bag.pop(0 if rng.random() < 0.5 else int(rng.integers(0, len(bag))))
                weight = -1
            changes.append((group, key, weight))
        numbers, keys, weights = (np.array(column) for column in zip(*changes, strict=True))
        cells = layout.lay_out(numbers, np.sort(rng.integers(0, at + 1, len(changes))), groups)
        trace = sets.walk(cells, weights[cells.order], keys, PICKS, SHARES)
        for t, group in enumerate(cells.groups.tolist()):
            for c in range(cells.starts[t], cells.starts[t + 1]):
                places = cells.order[cells.bounds[c] : cells.bounds[c + 1]]
                for place in places[weights[places] > 0]:
                    held[group] += [int(keys[place])] * int(weights[place])
                for place in places[weights[places] < 0]:
                    held[group].remove(int(keys[place]))
                if held[group]:
                    assert trace[c + t + 1].tolist() == picked(sorted(held[group]))
                else:
                    assert trace[c + t + 1, -1] == 0
    for group, values in enumerate(held):
        rest = np.array(values, np.int64)
        rng.shuffle(rest)
        cells = layout.lay_out(np.full(len(rest), group), np.zeros(len(rest), np.int64), groups)
        sets.find_transitions(cells, np.full(len(rest), -1), rest)
    assert sets.nodes == 0


def test_what_is_not_there_cannot_go() -> None:
    sets = OrderedMultisets()
    sets.reserve(1)
    cells = Layout().lay_out(np.zeros(1, np.int64), np.zeros(1, np.int64), 1)
    with pytest.raises(AssertionError, match="not there"):
        sets.find_transitions(cells, np.array([-1]), np.array([5]))


def test_transitions_tell_first_and_last() -> None:
    sets = OrderedMultisets()
    sets.reserve(1)
    cells = Layout().lay_out(np.zeros(5, np.int64), np.arange(5), 1)
    weights, keys = np.array([2, 1, -1, -2, -1]), np.array([7, 8, 7, 7, 8])
    with pytest.raises(AssertionError, match="not there"):
        sets.find_transitions(cells, weights, keys)
    sets = OrderedMultisets()
    sets.reserve(1)
    found = sets.find_transitions(cells, np.array([2, 1, -1, -1, -1]), keys)
    assert found.tolist() == [1, 1, 0, -1, -1]
