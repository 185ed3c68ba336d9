"""Histograms of values against exact counts."""

from __future__ import annotations

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


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=100))
def test_a_histogram_of_fractions_counts_ranges(values):
    kind = ValueHistogram(4, floats=True)
    codes = np.ascontiguousarray(code_column(pa.chunked_array([values]), Axis.FLOAT).numbers)
    cells = fill(kind, codes)
    low, high = np.array([codes.min()]), np.array([codes.max()])
    found, error = kind.count_between(cells, low, high), kind.error_between(cells, low, high)
    assert abs(found[0, 0] - len(values)) <= error[0, 0] + 1e-6 * len(values)
    assert kind.count_between(cells, high + 1, low)[0, 0] == 0
