"""The order in which WEIGHTED makes its probes: a fair queue (promising tuples, section 4.1.1).

A region of weight w that came at the clock c has its j-th probe at c + (j − u) / w, where u, from 0
to 1, is a hash of the region: so of many regions of little weight some come early. Probes are made
in the order of these times, whatever the budget: so a budget that is cut finds the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.engine.joins.keys import Keys, Numbers, mix_numbers
from millpond.synopses.summaries.protocol import Estimates

#: Weights beyond these count as these: times stay numbers.
_LEAST, _GREATEST = 1e-280, 1e280


@dataclass(frozen=True, eq=False)
class FairQueue:
    """Regions that have their probes in proportion to their weights.

    Attributes:
        weights: Their weights, above 0.
        shift: u of each region.
        begun: The clock when each came.
    """

    weights: Estimates
    shift: Estimates
    begun: Estimates

    @staticmethod
    def of(weights: Estimates, hashed: Keys, begun: Estimates | None = None) -> FairQueue:
        """Make a queue of regions; `hashed` has a number of each that is mixed to u."""
        shift = (mix_numbers(hashed) >> np.uint64(11)) / float(1 << 53)
        begun = np.zeros(len(weights)) if begun is None else begun
        return FairQueue(np.clip(weights, _LEAST, _GREATEST), shift, begun)

    def find_times(self, region: Numbers, number: Numbers) -> Estimates:
        """When some regions have their probes of some numbers; the first is number 1."""
        shifted = number - self.shift[region]
        return np.asarray(self.begun[region] + shifted / self.weights[region])

    def count_due(self, at: Estimates, most: Numbers) -> Numbers:
        """How many probes each region has had at an instant of the clock, of at most so many."""
        with np.errstate(over="ignore"):
            number = np.floor((at - self.begun) * self.weights + self.shift)
        found: Numbers = np.clip(number, 0, most).astype(np.int64)
        # The times say what is due; the product is off by one where it was rounded.
        every = np.arange(len(found))
        found -= (found > 0) & (self.find_times(every, found) > at)
        found += (found < most) & (self.find_times(every, found + 1) <= at)
        return found

    def divide(
        self, owner: Numbers, done: Numbers, left: Numbers, budgets: Numbers
    ) -> tuple[Numbers, Estimates]:
        """Divide budgets among the regions of each owner.

        Args:
            owner: Whose region each is, as a place in `budgets`.
            done: The probes each has had.
            left: How many more it can have.
            budgets: The probes of each owner.

        Returns:
            How many probes each region gets, together as many as the budget or all there are; and
            by owner the time just before its next one.
        """
        count, most = len(budgets), done + left

        def list_due(at: Estimates) -> Numbers:
            return np.maximum(self.count_due(at[owner], most) - done, 0)

        low, high = np.zeros(count), np.zeros(count)
        np.maximum.at(high, owner, self.find_times(np.arange(len(owner)), most))
        short = np.bincount(owner, left, minlength=count) > budgets
        # Times are not negative: their order is that of their bits, so this ends at neighbours.
        while ((gap := high.view(np.int64) - low.view(np.int64)) > 1).any():
            middle = (low.view(np.int64) + gap // 2).view(np.float64)
            fits = np.bincount(owner, list_due(middle), minlength=count) <= budgets
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        taken = np.where(short[owner], list_due(low), left)
        # Probes that come at one time: of the first regions as many as there is room for.
        tied = np.where(short[owner], list_due(high) - taken, 0)
        order = np.argsort(owner, kind="stable")
        before = np.cumsum(tied[order]) - tied[order]
        room = budgets - np.bincount(owner, taken, minlength=count).astype(np.int64)
        firsts = np.searchsorted(owner[order], np.arange(count))
        base = np.append(before, 0)[np.minimum(firsts, len(before))]
        owned = owner[order]
        taken[order] += np.clip(room[owned] - (before - base[owned]), 0, tied[order])
        return taken, low
