"""Bounds of estimates from a sample in which every element is with the same probability.

Each element is in the sample independently with probability p (a hash decides); the elements are
fixed, and the probability is over the seed. All intervals hold whatever the values are.

- A **count** C: the sample has K ~ Bin(C, p). The interval has every C that a two-sided test of K
  does not refuse, as Clopper and Pearson's (1934) has every probability; here the number of trials
  is what is not known.
- A **sum** S = Σ xᵢ: estimated by Ŝ = Σ sampled xᵢ / p. With |xᵢ| ≤ M, Bernstein's inequality gives
  |Ŝ − S| ≤ √(2 V L) + M L / (3 p), V = (1 − p)/p · Σ xᵢ², L = ln(1/δ'). Σ xᵢ² is not known. Its
  estimate Q̂ = Σ sampled xᵢ² / p is seldom much too small: √Σxᵢ² ≤ (a + √(a² + 4 Q̂)) / 2 with
  a = M √(2 L / p), by the lower tail for terms that are not negative. Each of the three events has
  a third of δ.
- An **average**: given its number n, a sample is one without replacement from all rows of the
  group. Bardenet and Maillard (Bernoulli 21(3), 2015, theorem 4.3) bound its mean by the empirical
  variance and the range of values; ρ is taken as 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

#: κ of Bardenet and Maillard's empirical Bernstein-Serfling inequality.
_KAPPA = 7 / 3 + 3 / np.sqrt(2)


def bound_counts(sampled: np.ndarray, share: float, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Bound how many elements there are, by how many are in the sample.

    Args:
        sampled: float64, whole numbers.
        share: The probability with which an element is in the sample, above 0 and below 1.
        delta: With which probability an interval may miss.

    Returns:
        The least and the greatest number (float64), both included.
    """
    spread = np.sqrt(sampled + 1) * 10 + 100 * np.log(2 / delta)
    far = np.ceil((sampled + spread) / share) + 10
    # The least n with P(Bin(n, p) ≥ K) > δ/2, and the greatest with P(Bin(n, p) ≤ K) > δ/2.
    least = _find_first(sampled, far, lambda n: _at_least(sampled, n, share) > delta / 2)
    beyond = _find_first(sampled, far, lambda n: 1 - _at_least(sampled + 1, n, share) <= delta / 2)
    return least, np.maximum(beyond - 1, least)


def _at_least(k: np.ndarray, n: np.ndarray, share: float) -> np.ndarray:
    """P(Bin(n, p) ≥ k)."""
    from scipy.special import betainc  # slow to load, and only sampled answers need it

    inside = (k > 0) & (n >= k)
    found = betainc(np.where(inside, k, 1.0), np.where(inside, n - k + 1, 1.0), share)
    return np.where(k <= 0, 1.0, np.where(inside, found, 0.0))


def _find_first(
    low: np.ndarray, high: np.ndarray, is_true: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """The first whole number from `low` to `high` for which a condition holds from then on."""
    low, high = low.astype(np.float64).copy(), high.astype(np.float64).copy()
    while bool((low < high).any()):
        middle = np.floor((low + high) / 2)
        holds = is_true(middle)
        high = np.where(holds & (low < high), middle, high)
        low = np.where(~holds & (low < high), middle + 1, low)
    return low


def bound_sums(
    total: np.ndarray, squares: np.ndarray, share: float, greatest: np.ndarray | float, delta: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bound sums.

    Args:
        total: The sums in the sample (float64).
        squares: The sums of squares in the sample (float64).
        share: As for `bound_counts`.
        greatest: No value is farther from 0, in the sample or out of it.
        delta: As for `bound_counts`.
    """
    log = np.log(3 / delta)
    a = greatest * np.sqrt(2 * log / share)
    root = (a + np.sqrt(a * a + 4 * squares / share)) / 2
    reach = root * np.sqrt(2 * log * (1 - share) / share) + greatest * log / (3 * share)
    estimate = total / share
    return estimate - reach, estimate + reach


def bound_means(
    mean: np.ndarray,
    variance: np.ndarray,
    count: np.ndarray,
    span: np.ndarray | float,
    delta: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Bound averages.

    Args:
        mean: The averages in the sample (float64).
        variance: The variances in the sample, over n (float64).
        count: How many values are in the sample (float64), at least 1.
        span: The greatest possible value minus the least.
        delta: As for `bound_counts`.
    """
    log = np.log(10 / delta)
    reach = np.sqrt(variance * 2 * log / count) + _KAPPA * span * log / count
    return mean - reach, mean + reach
