"""Bounds of estimates hold at their confidence, over thousands of random cases."""

from __future__ import annotations

import math

import numpy as np
import pytest

from millpond.synopses.sample_bounds import bound_counts, bound_means, bound_sums

#: Cases of each kind; each has a seed of its own.
CASES = 3_000


def draw_values(random: np.random.Generator) -> np.ndarray:
    """Values of one group, of one of several shapes: also those that bounds find hard."""
    count = int(random.integers(1, 400))
    match int(random.integers(5)):
        case 0:
            return random.normal(0, 10, count)
        case 1:
            return random.exponential(5, count)
        case 2:  # a few values carry the sum
            return np.where(random.random(count) < 0.02, 1000.0, random.random(count))
        case 3:
            return np.full(count, 7.0)
    return random.integers(-3, 4, count).astype(np.float64)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_bounds_miss_no_more_often_than_they_say(share: float) -> None:
    facts = []
    for seed in range(CASES):
        random = np.random.default_rng([seed, int(share * 100)])
        values = draw_values(random)
        kept = values[random.random(len(values)) < share]
        spread = (kept.mean(), kept.var()) if len(kept) else (0.0, 0.0)
        exact = len(values), values.sum(), values.mean(), np.abs(values).max(), np.ptp(values)
        facts.append((*exact, len(kept), kept.sum(), (kept**2).sum(), *spread))
    count, total, mean, greatest, span, n, part, squares, average, variance = np.array(facts).T
    some = n > 0
    for delta in (0.05, 0.3):
        counts = bound_counts(n, share, delta)
        sums = bound_sums(part, squares, share, greatest, delta)
        means = bound_means(
            average[some], variance[some], n[some], span[some] * (1 + 1e-12) + 1e-9, delta
        )
        for exact, (low, high) in ((count, counts), (total, sums), (mean[some], means)):
            missed = int((~((low <= exact) & (exact <= high))).sum())
            cases = len(exact)
            assert missed <= delta * cases + 4 * math.sqrt(cases * delta * (1 - delta))


def test_a_count_has_exactly_the_numbers_that_its_tests_do_not_refuse() -> None:
    share, delta = 0.25, 0.1
    sampled = np.arange(0, 30, dtype=np.float64)
    low, high = bound_counts(sampled, share, delta)

    def tail(n: int, least: int) -> float:
        return sum(math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(least, n + 1))

    for k, first, last in zip(sampled.astype(int), low, high, strict=True):
        allowed = [
            n
            for n in range(int(k), 300)
            if tail(n, k) > delta / 2 and 1 - tail(n, k + 1) > delta / 2
        ]
        assert (allowed[0], allowed[-1]) == (first, last)


def test_bounds_become_narrow_as_the_sample_grows() -> None:
    low, high = bound_counts(np.array([50_000.0]), 0.05, 0.05)
    assert (high[0] - low[0]) / 1_000_000 < 0.02
    low, high = bound_sums(np.array([50_000.0]), np.array([50_000.0]), 0.05, 1.0, 0.05)
    assert (high[0] - low[0]) / 1_000_000 < 0.03
    low, high = bound_means(np.array([5.0]), np.array([1.0]), np.array([1e6]), 100.0, 0.05)
    assert high[0] - low[0] < 0.02
