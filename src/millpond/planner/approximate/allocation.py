"""Memory for the best precision: how much of each input a query reads (STREAM, section 5.3).

The bytes granted to a query are divided among its windows so that the answer is expected to lack
and to have wrong as few rows as possible. A packaged solver looks for the division; equal shares of
the memory are where it begins, so what it finds is never predicted to be worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from millpond.operators.protocol.precision import Precision

Floats = npt.NDArray[np.float64]

#: Gives the precision of an answer if these shares of the windows are read, each from 0 to 1.
Predict = Callable[[Sequence[float]], Precision | None]


def share_equally(needs: Sequence[float], least: Sequence[float], granted: float) -> list[float]:
    """Divide the memory equally; what one window does not need, the others have.

    Args:
        needs: How many bytes each window has if all of it is read.
        least: The least share of each that may be read; 1 if it has to be read whole.
        granted: How many bytes there are.

    Returns:
        The share of each that is read, not below the least.

    >>> share_equally([100, 1_000], [0.01, 0.01], 600)
    [1.0, 0.5]
    """
    low, high = 0.0, max(needs, default=0.0)
    for _ in range(60):
        middle = (low + high) / 2
        taken = _take(needs, least, middle)
        if sum(n * s for n, s in zip(needs, taken, strict=True)) <= granted:
            low = middle
        else:
            high = middle
    taken = _take(needs, least, low)
    return [max(own, round(share, 9)) for share, own in zip(taken, least, strict=True)]


def _take(needs: Sequence[float], least: Sequence[float], each: float) -> list[float]:
    return [
        max(own, min(1.0, each / need)) if need else 1.0
        for need, own in zip(needs, least, strict=True)
    ]


def allocate(
    predict: Predict, needs: Sequence[float], least: Sequence[float], granted: float
) -> list[float] | None:
    """Choose the share of each window that is read; arguments as of `share_equally`.

    Returns:
        None if nothing is predicted.
    """
    # Imported here: a pond that reduces no join does not need the solver.
    from scipy.optimize import minimize

    bytes_of, lowest = np.array(needs, np.float64), np.array(least, np.float64)
    if predict(least) is None:
        return None

    def lose(shares: Floats) -> float:
        found = predict([min(max(float(s), 1e-9), 1.0) for s in shares])
        assert found is not None
        return min(found.missing + found.false_positives, 1e9)

    def count_spare(shares: Floats) -> float:
        return float(granted - bytes_of @ shares) / granted

    equal = np.array(share_equally(needs, least, granted))
    best, best_loss = equal, lose(equal)
    alike = np.maximum(lowest, min(1.0, granted / max(float(bytes_of.sum()), 1.0)))
    for begin in (equal, alike, *_prefer_each(bytes_of, lowest, granted)):
        found = minimize(
            lose,
            begin,
            method="SLSQP",
            bounds=list(zip(lowest, np.ones(len(needs)), strict=True)),
            constraints=[{"type": "ineq", "fun": count_spare}],
        )
        for shares in (begin, np.clip(found.x, lowest, 1.0)):
            loss = lose(shares)
            if count_spare(shares) >= -1e-9 and loss < best_loss * (1 - 1e-6):
                best, best_loss = shares, loss
    return [float(share) for share in best]


def _prefer_each(needs: Floats, least: Floats, granted: float) -> list[Floats]:
    """For each window, all that is left for it when the others have the least."""
    found = []
    for place in range(len(needs)):
        left = granted - float(needs @ least) + float(needs[place] * least[place])
        shares = least.copy()
        if needs[place]:
            shares[place] = min(1.0, max(least[place], left / needs[place]))
        found.append(shares)
    return found


def round_down(share: float, least: float) -> float:
    """Round a share of 0 to 1 to per cent with four digits, down, and not below the least.

    >>> round_down(0.123456, 0.05), round_down(1.0, 0.05), round_down(0.0512, 0.05)
    (12.34, 100.0, 5.12)
    """
    percent = share * 100
    if percent >= 100 * (1 - 1e-9):
        return 100.0
    step = 10.0 ** (math.floor(math.log10(percent)) - 3)
    return max(float(f"{math.floor(percent / step + 1e-6) * step:.4g}"), least * 100)
