"""The promise of regions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.engine.promising.promise import estimate_regions, merge_zones, prioritize
from millpond.engine.scalars.residual_query import Residual
from millpond.errors import MillpondError
from millpond.planner.bind.preference import BoundPreference
from millpond.synopses.summaries.stream_summary import StreamSummary, make_kind
from millpond.synopses.summaries.zones import Grid

GRID = Grid.of(6_400, 2, 2)


def preference(sql: str) -> BoundPreference:
    return BoundPreference("desc", sql, (), ("v",), 1.0, None, "")


def test_a_priority_is_computed_where_anything_is_expected():
    expected = np.array([[1.0, 0.0], [3.0, 4.0]])
    values = {0: pa.chunked_array([[10, 20]])}
    found = prioritize(Residual(), preference("(e0 * v0)"), [expected], values, expected)
    assert found.tolist() == [[10, 0], [30, 80]]
    plain = prioritize(Residual(), preference("(e0)"), [expected], {}, expected)
    assert (plain == expected).all()
    nulls = prioritize(Residual(), preference("(nullif(e0, 1))"), [expected], {}, expected)
    assert np.isnan(nulls[0, 0])
    with pytest.raises(MillpondError, match="POND-40"):
        prioritize(Residual(), preference("(CAST('x' AS INTEGER))"), [expected], {}, expected)


def test_zones_are_merged_where_a_window_reaches():
    kind = make_kind("count sketch", 1 << 18, GRID, False)
    ts = np.arange(0, 6_400, 10)
    summary = StreamSummary.begin(kind, GRID, 6_400).with_elements(
        ts, np.zeros(len(ts), np.int64), np.arange(len(ts))
    )
    assert merge_zones(summary, 0, 10_000).cells[0, 0] == len(ts)
    some = merge_zones(summary, 6_390, 10_000).cells[0, 0]
    assert 0 < some < len(ts)
    counts = summary.count_by_zone(np.zeros(1, np.int64))
    shares = estimate_regions(summary, "frequency", counts, np.zeros(1, np.int64))
    assert set(shares[counts > 0].tolist()) == {1.0}
    assert (estimate_regions(summary, "error", counts, np.zeros(1, np.int64)) >= 0).all()
