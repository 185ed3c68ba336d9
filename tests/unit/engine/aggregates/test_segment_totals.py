"""Totals of ranges of rows, with blocks and without: the same, and few rows are read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.aggregates.segment_totals import (
    Asked,
    compute_blocks,
    compute_totals,
    find_rows,
    read_totals,
)
from millpond.synopses.blocked_totals import BLOCK
from millpond.synopses.totals import NOTHING, OpenColumn, Total, open_column, total_of

SIZE = 5 * BLOCK + 17


class Segment:
    """A segment in memory; counts the rows whose matches are read."""

    def __init__(self, share: float | None) -> None:
        random = np.random.default_rng(3)
        self.ts = np.sort(random.integers(0, SIZE // 2, SIZE))
        self.rows = None if share is None else np.flatnonzero(random.random(SIZE) < share)
        self.table = {
            "a": pa.array(random.integers(-100, 100, SIZE), mask=random.random(SIZE) < 0.2),
            "b": pa.array(random.integers(-(2**31), 2**31, SIZE).astype(np.int32)),
            "x": pa.array(random.normal(size=SIZE)),
            "y": pa.array(random.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5], SIZE)),
        }
        self.read = 0

    def matching(self, lo: int, hi: int) -> np.ndarray | None:
        self.read += hi - lo
        if self.rows is None:
            return None
        return self.rows[slice(*np.searchsorted(self.rows, (lo, hi)))]

    def column(self, name: str) -> OpenColumn:
        return open_column(self.table[name])

    def total(self, column: str | None, lo: int, hi: int) -> Total:
        rows = np.arange(SIZE) if self.rows is None else self.rows
        rows = rows[(rows >= lo) & (rows < hi)]
        return (
            Total(len(rows)) if column is None else total_of(open_column(self.table[column]), rows)
        )


SEGMENTS = [Segment(share) for share in (None, 0.9, 0.3, 0.01, 0.0)]
ROW = st.integers(0, SIZE) | st.sampled_from([0, 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, SIZE])


@given(st.sampled_from(SEGMENTS), st.sampled_from([None, "a", "b", "x", "y"]), ROW, ROW)
def test_any_range(segment: Segment, column: str | None, lo: int, hi: int) -> None:
    expected = segment.total(column, lo, hi) if lo < hi else NOTHING
    blocks = compute_blocks(segment, column)
    asked = [Asked(column), Asked(None)]
    both = [blocks, compute_blocks(segment, None)]
    rows = Total(expected.rows)
    assert read_totals(segment, asked, both, lo, hi) == [expected, rows]
    assert compute_totals(segment, asked, lo, hi) == [expected, rows]
    (without,) = read_totals(segment, [Asked(column, sums=False)], [blocks], lo, hi)
    assert without._replace(sum=0, specials=NOTHING.specials) == expected._replace(
        sum=0, specials=NOTHING.specials
    )


@pytest.mark.parametrize("share", [None, 0.9, 0.3])
def test_only_what_lies_between_the_ends_and_the_blocks_is_read(share: float | None) -> None:
    segment = Segment(share)
    blocks = compute_blocks(segment, "a")
    segment.read = 0
    read_totals(segment, [Asked("a")], [blocks], 1, SIZE - 1)
    assert 0 < segment.read <= 2 * BLOCK / (share or 1) * 1.2


def test_rows_by_time() -> None:
    segment = SEGMENTS[0]
    for low, high in ((None, 50), (10, 10), (100, 99), (-5, 10**9)):
        inside = (segment.ts <= high) & (True if low is None else segment.ts >= low)
        lo, hi = find_rows(segment, low, high)
        assert max(hi - lo, 0) == inside.sum()
