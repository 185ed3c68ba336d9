"""Keys in their order: as sorting says, at every place of every batch."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from millpond.operators.aggregation.cells import Layout
from millpond.synopses.key_lists import KeyLists


class Play:
    """Plays changes of keys, and compares each place with a bag of them."""

    def __init__(self, seed: int, groups: int) -> None:
        self.random = Random(seed)
        self.groups = groups
        self.lists, self.layout = KeyLists(), Layout()
        self.bags: list[Counter[int]] = [Counter() for _ in range(groups)]

    def draw(self, count: int, now: int) -> list[tuple[int, int, int, int]]:
        """Draw changes (instant, group, weight, key), of which none takes too much."""
        some = []
        free = [Counter(bag) for bag in self.bags]
        for place in range(count):
            group = self.random.randrange(self.groups)
            held = sorted(free[group].elements())
            if held and self.random.random() < 0.5:
                key, weight = self.random.choice(held), -1
            else:
                key, weight = self.random.randint(-5, 5), self.random.choice([0, 1, 1, 2])
            free[group][key] += weight
            some.append((now + place // 3, group, weight, key))
        return some

    def step(self, some: list[tuple[int, int, int, int]]) -> None:
        at, group, weight, key = (np.array(column, np.int64) for column in zip(*some, strict=True))
        cells = self.layout.lay_out(group, at, self.groups)
        self.lists.reserve(self.groups)
        history = self.lists.walk(cells, weight.take(cells.order), key)
        shown = []
        for t, number in enumerate(cells.groups):
            bag = self.bags[number]
            shown.append(sorted(bag.elements()))
            for c in range(cells.starts[t], cells.starts[t + 1]):
                for place in cells.order[cells.bounds[c] : cells.bounds[c + 1]]:
                    bag[int(key[place])] += int(weight[place])
                shown.append(sorted(bag.elements()))
        places = np.arange(cells.places)
        assert history.counts.tolist() == [len(keys) for keys in shown]
        offsets, entries = history.lay_out(places)
        keys = history.keys.take(entries)
        assert [keys[lo:hi].tolist() for lo, hi in pairwise(offsets)] == shown
        some_places = places[::-2]
        offsets, entries = history.lay_out(some_places)
        assert history.keys.take(entries).tolist() == [k for p in some_places for k in shown[p]]
        inner = np.flatnonzero(~cells.seams)
        for values in (history.keys, history.keys // 4):
            found = history.compare(inner, np.ascontiguousarray(values))
            coarse = 1 if values is history.keys else 4
            said = [[k // coarse for k in keys] for keys in shown]
            assert found.tolist() == [said[p] != said[p + 1] for p in inner]


@pytest.mark.parametrize("seed", range(10))
def test_they_are_what_sorting_says(seed: int) -> None:
    play = Play(seed, 4)
    for step in range(25):
        play.step(play.draw(play.random.choice([1, 7, 40]), step * 100))
        if step % 6 == 5:  # twice as large, as when there is no room between labels
            play.lists.rekey(np.arange(-50, 51), np.arange(-50, 51) * 2)
            play.bags = [Counter({2 * k: n for k, n in b.items()}) for b in play.bags]
            play.bags = [Counter({k: n for k, n in b.items() if n}) for b in play.bags]
            play.step(
                [(step * 100 + 50, g, -n, k) for g, b in enumerate(play.bags) for k, n in b.items()]
                or [(0, 0, 0, 0)]
            )


def test_groups_are_renumbered() -> None:
    play = Play(1, 3)
    play.step([(0, 0, 1, 7), (0, 1, 2, 8), (0, 2, 1, 9), (1, 2, -1, 9)])
    play.lists.renumber(np.array([1, 0, -1]), 4)
    play.groups = 4
    play.bags = [play.bags[1], play.bags[0], Counter(), Counter()]
    play.step([(2, 3, 1, 5), (2, 0, 1, -1), (3, 1, -1, 7), (4, 2, 1, 3)])


def test_the_room_of_forgotten_groups_is_used_again() -> None:
    lists, layout = KeyLists(), Layout()
    sizes = []
    for step in range(100):
        for weight in (1, -1):
            cells = layout.lay_out(np.arange(200) % 2, np.full(200, 2 * step), 2)
            lists.reserve(2)
            history = lists.walk(cells, np.full(200, weight), np.arange(200) + step)
            assert history.counts.tolist() == ([0, 100, 0, 100] if weight > 0 else [100, 0] * 2)
        lists.renumber(np.array([-1, -1]), 1)
        sizes.append(lists.size())
    assert sizes[-1] <= 2 * sizes[5]


def test_what_is_not_there_does_not_leave() -> None:
    lists = KeyLists()
    lists.reserve(1)
    cells = Layout().lay_out(np.array([0, 0]), np.array([1, 2]), 1)
    with pytest.raises(AssertionError):
        lists.walk(cells, np.array([1, -1]), np.array([4, 5]))
