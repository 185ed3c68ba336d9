"""Histograms of values against exact counts."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.joins.keys import Axis, code_column
from millpond.synopses.summaries.value_histogram import ValueHistogram


def fill(kind: ValueHistogram, codes: np.ndarray) -> np.ndarray:
    cells = kind.empty(1)
    which = np.zeros(len(codes), np.int64)
    kind.summarize(cells, which, codes.astype(np.int64), np.arange(len(codes)))
    return cells


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=300), st.integers(0, 8))
def test_a_histogram_is_never_off_by_more_than_it_says(values, bits):
    kind = ValueHistogram(bits, floats=False)
    codes = np.array(values, np.int64)
    cells = fill(kind, codes)
    asked = np.unique(np.concatenate([codes, codes + 1]))
    counts = np.array([(codes == value).sum() for value in asked])
    assert (
        np.abs(kind.count(cells, asked)[0] - counts) <= kind.error(cells, asked)[0] + 1e-9
    ).all()
    low, high = np.sort(np.stack([asked, asked[::-1]]), axis=0)
    counts = np.array([((codes >= a) & (codes <= b)).sum() for a, b in zip(low, high, strict=True)])
    found = kind.count_between(cells, low, high)[0]
    error = kind.error_between(cells, low, high)[0]
    assert (np.abs(found - counts) <= error + 1e-6 * (1 + counts)).all()


_FRACTIONS = st.one_of(
    st.floats(-1e12, 1e12),
    st.floats(),
    st.sampled_from([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -1e-20, 1e300, -1e300, 2.0**64]),
)


@given(
    st.lists(_FRACTIONS, min_size=1, max_size=8),
    st.lists(_FRACTIONS, min_size=2, max_size=3),
    st.integers(0, 8),
)
def test_a_histogram_of_fractions_is_never_off_by_more_than_it_says(values, bounds, bits):
    """Also of infinity, NaN, and what is too small or too large for a bar of its own."""
    kind = ValueHistogram(bits, floats=True)
    every = pa.chunked_array([values + bounds], pa.float64())
    every_code = np.ascontiguousarray(code_column(every, Axis.FLOAT).numbers)
    codes = every_code[: len(values)]
    cells = fill(kind, codes)
    for low, high in itertools.combinations_with_replacement(np.unique(every_code), 2):
        truth = int(((codes >= low) & (codes <= high)).sum())
        ends = np.array([low]), np.array([high])
        found = kind.count_between(cells, *ends)[0, 0]
        assert abs(found - truth) <= kind.error_between(cells, *ends)[0, 0] + 1e-6 * len(values)
        assert found >= 0
        if low == high:
            found = kind.count(cells, ends[0])[0, 0]
            assert abs(found - truth) <= kind.error(cells, ends[0])[0, 0]
        else:
            assert kind.count_between(cells, *ends[::-1])[0, 0] == 0
    # What surely has all of it is sure.
    ends = np.array([codes.min()]), np.array([codes.max()])
    if np.isneginf(values).any() and np.isnan(values).any():
        assert kind.error_between(cells, *ends)[0, 0] == 0
