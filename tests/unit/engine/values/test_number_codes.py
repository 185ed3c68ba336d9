"""The regions of numbers: how many cuts are at or below each."""

from __future__ import annotations

import math

import numpy as np
import pytest

from millpond.engine.values.buckets import FAR_CUTS
from millpond.engine.values.number_codes import FloatCoder, IntegerCoder
from millpond.engine.values.value_sets import INT64_MAX, INT64_MIN, float_key


@pytest.mark.parametrize(
    "cuts", [[], [5], [-3, 0, 7], [INT64_MIN, INT64_MAX], list(range(0, 3_000, 7))]
)
def test_integers(cuts: list[int]) -> None:
    values = np.array([INT64_MIN, -4, -3, 0, 4, 5, 6, 700, 2_999, INT64_MAX], np.int64)
    codes = np.full(len(values), -1, np.int32)
    IntegerCoder(np.array(cuts, np.int64)).code(values, codes)
    assert codes.tolist() == [sum(cut <= value for cut in cuts) for value in values.tolist()]


def test_more_integers_than_caches_hold() -> None:
    random = np.random.default_rng(1)
    cuts = np.unique(random.integers(-(10**12), 10**12, FAR_CUTS + 1000))
    assert len(cuts) > FAR_CUTS
    values = np.concatenate([cuts[::17], cuts[5::29] - 1, [INT64_MIN, -1, 0, INT64_MAX]])
    codes = np.full(len(values), -1, np.int32)
    IntegerCoder(cuts).code(values, codes)
    assert codes.tolist() == np.searchsorted(cuts, values, "right").tolist()


@pytest.mark.parametrize(
    "cuts", [[], [0.5], [-math.inf, -1.0, 0.0, 1e300], [1.0, math.inf, math.nan]]
)
def test_doubles(cuts: list[float]) -> None:
    keys = sorted(float_key(cut) for cut in cuts)
    values = np.array([-math.inf, -1.0, -0.0, 0.0, 0.5, 1e301, math.inf, math.nan])
    codes = np.full(len(values), -1, np.int32)
    FloatCoder(np.array(keys, np.int64)).code(values, codes)
    expected = [sum(key <= float_key(value) for key in keys) for value in values.tolist()]
    assert codes.tolist() == expected
