"""Totals of ranges of rows, with blocks and without: the same, and few rows are read."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.aggregates.segment_totals import (
    Asked,
    BlockedSegment,
    EveryRow,
    OpenMatches,
    compute_blocks,
    compute_totals,
    find_rows,
)
from millpond.engine.matching.results_structure import Matches, MatchReader, encode
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
        self.reader = (
            MatchReader(Matches(SIZE, encode({0: self.rows}, SIZE)).to_table())
            if self.rows is not None
            else None
        )

    def matching(self, lo: int, hi: int) -> np.ndarray | None:
        self.read += hi - lo
        if self.rows is None:
            return None
        return self.rows[slice(*np.searchsorted(self.rows, (lo, hi)))]

    def open_matches(self) -> OpenMatches:
        return EveryRow() if self.reader is None else self.reader.open(0)

    def column(self, name: str) -> OpenColumn:
        return open_column(self.table[name])

    def total(self, column: str | None, lo: int, hi: int) -> Total:
        rows = np.arange(SIZE) if self.rows is None else self.rows
        rows = rows[(rows >= lo) & (rows < hi)]
        return (
            Total(len(rows)) if column is None else total_of(open_column(self.table[column]), rows)
        )


SEGMENTS = [Segment(share) for share in (None, 0.9, 0.3, 0.01, 0.0)]
INSTANT = st.integers(-2, SIZE // 2 + 2)


@given(
    st.sampled_from(SEGMENTS),
    st.sampled_from([None, "a", "b", "x", "y"]),
    st.none() | INSTANT,
    INSTANT,
)
def test_any_range(segment: Segment, column: str | None, low: int | None, high: int) -> None:
    lo, hi = find_rows(segment, low, high)
    expected = segment.total(column, lo, hi) if lo < hi else NOTHING
    blocks = compute_blocks(segment, column)
    asked = [Asked(column), Asked(None)]
    both = [blocks, compute_blocks(segment, None)]
    rows = Total(expected.rows)
    assert BlockedSegment(segment, asked, both).read(low, high) == [expected, rows]
    assert compute_totals(segment, asked, lo, hi) == [expected, rows]
    (without,) = BlockedSegment(segment, [Asked(column, sums=False)], [blocks]).read(low, high)
    assert without._replace(sum=0, specials=NOTHING.specials) == expected._replace(
        sum=0, specials=NOTHING.specials
    )


@pytest.mark.parametrize("share", [None, 0.9, 0.3])
def test_only_what_lies_between_the_ends_and_the_blocks_is_read(share: float | None) -> None:
    segment = Segment(share)
    opened = BlockedSegment(segment, [Asked("a")], [compute_blocks(segment, "a")])
    read = []
    find = opened._matches.find_at_edges
    opened._matches = mock.Mock(find_at_edges=lambda *edges: read.append(find(*edges)) or read[-1])
    (total,) = opened.read(int(segment.ts[0]) + 1, int(segment.ts[-1]) - 1)
    assert total.rows > 3 * BLOCK * (share or 1)
    assert 0 < len(read[0]) < 2 * BLOCK


def test_rows_by_time() -> None:
    segment = SEGMENTS[0]
    for low, high in ((None, 50), (10, 10), (100, 99), (-5, 10**9)):
        inside = (segment.ts <= high) & (True if low is None else segment.ts >= low)
        lo, hi = find_rows(segment, low, high)
        assert max(hi - lo, 0) == inside.sum()
