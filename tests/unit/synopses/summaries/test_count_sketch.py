"""Count sketches against exact counts."""

from __future__ import annotations

import numpy as np
import pytest

from millpond.synopses.summaries.count_sketch import CountSketch


def fill(kind: CountSketch, codes: np.ndarray) -> np.ndarray:
    cells = kind.empty(1)
    which = np.zeros(len(codes), np.int64)
    kind.summarize(cells, which, codes.astype(np.int64), np.arange(len(codes)))
    return cells


def test_a_count_sketch_is_off_by_more_than_its_error_once_in_twenty_times_at_most():
    kind = CountSketch(32)
    off = tried = 0
    for seed in range(20):
        codes = np.random.default_rng(seed).zipf(1.3, 5_000).clip(0, 10**6) + seed * 10**7
        cells = fill(kind, codes)
        values, counts = np.unique(codes, return_counts=True)
        estimates = kind.count(cells, values)[0]
        off += int((np.abs(estimates - counts) > kind.error(cells, values)[0]).sum())
        tried += len(values)
    # A bound fails if its violations exceed the expectation by four standard deviations.
    assert off <= 0.05 * tried + 4 * np.sqrt(0.05 * 0.95 * tried)


def test_a_count_sketch_finds_frequent_values():
    codes = np.concatenate([np.full(1_000, 7), np.arange(1_000) + 100])
    kind = CountSketch(64)
    cells = fill(kind, codes)
    assert kind.count(cells, np.array([7]))[0, 0] == pytest.approx(1_000, abs=30)
    assert kind.confidence(cells)[0] < kind.confidence(fill(kind, codes[1_000:]))[0]
    with pytest.raises(NotImplementedError):
        kind.count_between(cells, np.array([1]), np.array([2]))
