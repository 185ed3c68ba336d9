"""The fair queue of WEIGHTED, held to a queue that makes one probe at a time."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.promising.fair_order import FairQueue

_WEIGHT = st.sampled_from([5e-324, 1e-200, 1e-9, 0.3, 1.0, 2.0, 7.0, 1e12, 1.7e308])


@given(
    st.lists(st.tuples(_WEIGHT, st.integers(0, 3), st.integers(0, 6)), min_size=1, max_size=12),
    st.integers(0, 60),
)
def test_any_beginning_is_that_of_the_queue_one_by_one(
    regions: list[tuple[float, int, int]], budget: int
) -> None:
    """Whatever the weights, also where they differ by hundreds of orders of magnitude."""
    weights = np.array([weight for weight, _, _ in regions])
    done, left = (np.array([region[n] for region in regions]) for n in (1, 2))
    queue = FairQueue.of(weights, np.arange(len(regions)))
    taken, _ = queue.divide(np.zeros(len(regions), np.int64), done, left, np.array([budget]))
    one = np.arange(len(regions))
    every = [(queue.find_times(one, done + n + 1)[r], r, n) for r in one for n in range(left[r])]
    wanted = np.zeros(len(regions), np.int64)
    for _, region, _ in heapq.nsmallest(budget, every):
        wanted[region] += 1
    assert taken.tolist() == wanted.tolist()


@pytest.mark.parametrize("clock", [0.0, 12.5, 1e9])
def test_budgets_of_several_owners_are_spent_in_proportion(clock: float) -> None:
    owner = np.array([1, 0, 1, 0, 1])
    weights = np.array([1.0, 3.0, 2.0, 1.0, 5.0])
    queue = FairQueue.of(weights, np.arange(5), np.full(5, clock))
    nothing, left = np.zeros(5, np.int64), np.full(5, 1_000)
    taken, reached = queue.divide(owner, nothing, left, np.array([400, 800]))
    assert taken.tolist() == pytest.approx([100, 300, 200, 100, 500], abs=1)
    assert np.bincount(owner, taken).tolist() == [400, 800]
    assert reached == pytest.approx(np.full(2, clock + 100), abs=1)
