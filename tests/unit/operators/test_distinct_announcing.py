"""DISTINCT that announces expirations: when the last copies of rows leave."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from tests.tools import check_operator as checking
from tests.tools.check_operator import EDGES, GivenInput, Life, sum_deltas

from millpond.operators.distinct_announcing import DistinctAnnouncing

TYPES = (pa.string(), pa.float64())


def test_last_copies_of_many_rows_leave_when_they_are_due() -> None:
    chance = np.random.default_rng(3)
    at = np.sort(chance.integers(0, 4_000, 6_000))
    lives = [
        Life((str(key), 0.0), int(begun), int(begun + lasts))
        for key, begun, lasts in zip(
            chance.integers(0, 2_000, 6_000), at, chance.integers(1, 900, 6_000), strict=True
        )
    ]
    node = DistinctAnnouncing(GivenInput("one", TYPES, EDGES[2]))
    for steps in (range(1, 5_000, 23), range(100, 5_001, 490)):
        run = checking.run(node, {"one": lives}, list(steps))
        for now in steps:
            there = {life.row for life in lives if life.at <= now < life.until}
            assert sum_deltas(run.deltas, now) == Counter(dict.fromkeys(there, 1))
        assert run.left == 0


def test_a_copy_that_comes_when_the_last_one_has_left() -> None:
    """A step ended at 15, and the row left then; the next step begins with that instant."""
    node = DistinctAnnouncing(GivenInput("one", TYPES, EDGES[2]))
    first, second = Life(("a", 0.0), 13, 15), Life(("a", 0.0), 15, 16)
    run = checking.run(node, {}, [15, 16], late={"one": [[first], [second]]})
    assert sum_deltas(run.deltas[:1], 15) == Counter()
    assert sum_deltas(run.deltas, 15) == Counter([("a", 0.0)])
    assert sum_deltas(run.deltas, 16) == Counter()
