"""Samples of values against exact counts."""

from __future__ import annotations

import numpy as np

from millpond.synopses.summaries.value_sample import ValueSample


def fill(kind: ValueSample, codes: np.ndarray) -> np.ndarray:
    cells = kind.empty(1)
    which = np.zeros(len(codes), np.int64)
    kind.summarize(cells, which, codes.astype(np.int64), np.arange(len(codes)))
    return cells


def test_a_small_sample_is_exact_and_a_large_one_says_how_far_it_may_be_off():
    kind = ValueSample(200)
    random = np.random.default_rng(1)
    few, many = random.integers(0, 5, 150), random.integers(0, 5, 20_000)
    cells = fill(kind, few)
    assert kind.count(cells, np.arange(5))[0].tolist() == np.bincount(few).tolist()
    assert (kind.error(cells, np.arange(5)) == 0).all()
    assert kind.confidence(cells)[0] == 1
    cells = fill(kind, many)
    off = np.abs(kind.count(cells, np.arange(5))[0] - np.bincount(many))
    assert (off <= kind.error(cells, np.arange(5))[0]).all()


def test_samples_of_parts_make_the_sample_of_the_whole():
    kind = ValueSample(50)
    codes, arrivals = np.arange(1_000) % 37, np.arange(1_000)
    which = np.zeros(500, np.int64)
    parts = [kind.empty(1) for _ in range(2)]
    kind.summarize(parts[0], which, codes[::2], arrivals[::2])
    kind.summarize(parts[1], which, codes[1::2], arrivals[1::2])
    both = kind.collapse(np.concatenate(parts), np.zeros(2, np.int64), 1)
    assert (both == fill(kind, codes)).all()
