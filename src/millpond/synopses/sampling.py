"""Samples: which elements a `SAMPLE(p)` keeps (SEMANTICS, section 2)."""

from __future__ import annotations

import numpy as np


def choose_sample(seed: int, sequence: np.ndarray, percent: float) -> np.ndarray:
    """Choose the elements a SAMPLE keeps: a fixed function of seed and arrival sequence.

    SplitMix64's finaliser spreads (seed, sequence) over 64 bits; an element is kept when the result
    lies in the first `percent` % of them.
    """
    mixed = sequence.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(
        seed & (2**64 - 1)
    )
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    threshold = min(int(percent / 100 * 2**64), 2**64 - 1)
    return mixed < np.uint64(threshold) if percent < 100 else np.ones(len(sequence), dtype=bool)
