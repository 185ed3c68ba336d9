"""However elements are spread over segments, a slice has the same rows in the same order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engine.invocation.window_slices import find_slice, full_since
from millpond.model.windows import Range, Rows, Unbounded, Window


class Segment:
    """Elements (timestamp, arrival number) in order; every `keep`-th arrival matches."""

    def __init__(self, elements: list[tuple[int, int]], keep: int) -> None:
        elements = sorted(elements)
        self.ts = np.array([ts for ts, _ in elements], dtype=np.int64)
        self.seq = np.array([seq for _, seq in elements], dtype=np.int64)
        self.table = pa.table({"ts": self.ts, "seq": self.seq, "key": self.seq % 3})
        self.keep = keep
        self.min_ts, self.max_ts = int(self.ts[0]), int(self.ts[-1])

    def matching(self, lo: int, hi: int) -> np.ndarray | None:
        if self.keep == 1:
            return None
        return lo + np.flatnonzero(self.seq[lo:hi] % self.keep == 0)

    def sequence(self, rows: np.ndarray) -> np.ndarray:
        return self.seq[rows]

    def take(self, rows: np.ndarray, columns: Sequence[str]) -> pa.Table:
        return self.table.select(list(columns)).take(pa.array(rows))

    def span(self, lo: int, hi: int, columns: Sequence[str]) -> pa.Table:
        return self.table.select(list(columns)).slice(lo, hi - lo)

    def row_bytes(self, columns: Sequence[str] | None) -> float:
        return 8.0 * len(columns or self.table.column_names)

    def last_per_key(
        self, by: tuple[str, ...], count: int, every: bool, compute: Callable[[], np.ndarray]
    ) -> np.ndarray:
        return compute()


WINDOWS: list[Window] = [Unbounded(), Range(7, None), Range(40, 5), Rows(6, ()), Rows(2, ("key",))]


@settings(max_examples=300)
@given(
    stamps=st.lists(st.integers(0, 30), min_size=1, max_size=40),
    spread=st.data(),
    window=st.sampled_from(WINDOWS),
    keep=st.integers(1, 3),
    at=st.integers(0, 32),
    counts_all=st.booleans(),
)
def test_order_is_that_of_the_elements(stamps, spread, window, keep, at, counts_all):
    elements = [(ts, number) for number, ts in enumerate(stamps)]
    parts = spread.draw(st.lists(st.integers(0, 5), min_size=len(elements), max_size=len(elements)))
    held = [[e for e, p in zip(elements, parts, strict=True) if p == n] for n in range(6)]
    segments = [Segment(part, keep) for part in held if part]
    segments = spread.draw(st.permutations(segments))

    def rows(segments: Sequence[Segment]) -> list[tuple[int, int]]:
        tables = find_slice(segments, window, at, counts_all).read(["ts", "seq"])
        return [tuple(row.values()) for table in tables for row in table.to_pylist()]

    found = rows(segments)
    chosen = find_slice(segments, window, at, counts_all)
    assert chosen.measure(["ts"]) == 8 * len(found)
    assert chosen.measure() == 24 * len(found)
    assert found == sorted(found)
    assert found == rows([Segment(elements, keep)])
    if isinstance(window, Rows) and window.by:
        arrived = sorted(e for e in elements if e[0] <= at)
        counted = arrived if counts_all else [e for e in arrived if e[1] % keep == 0]
        last = [e for key in range(3) for e in [c for c in counted if c[1] % 3 == key][-2:]]
        assert found == sorted(e for e in last if e[1] % keep == 0)
    if isinstance(window, Rows) and not window.by:
        arrived = sorted(e for e in elements if e[0] <= at)
        counted = arrived if counts_all else [e for e in arrived if e[1] % keep == 0]
        last = counted[-window.count :]
        assert found == [e for e in last if e[1] % keep == 0]
        full = last[0][0] if len(last) == window.count else None
        assert full_since(segments, window, at, counts_all) == full


def test_only_what_overlaps_is_copied():
    ranges = [range(0, 100), range(99, 200), range(200, 300), range(250, 260)]
    number = iter(range(1000))
    segments = [Segment([(ts, next(number)) for ts in stamps], 1) for stamps in ranges]
    tables = find_slice(segments, Unbounded(), 1000).read(["ts"])
    assert [table.num_rows for table in tables] == [99, 2, 100, 50, 20, 40]


def test_segments_that_can_hold_no_successor_are_not_opened():
    class Unopened(Segment):
        def matching(self, lo: int, hi: int) -> np.ndarray | None:
            raise AssertionError("nobody needs it")

    older = Unopened([(ts, ts) for ts in range(100)], 1)
    newer = Segment([(ts, 1000 + ts) for ts in range(50, 200)], 1)
    (table,) = find_slice([older, newer], Rows(2, ()), 1000).read(["ts"])
    assert table["ts"].to_pylist() == [198, 199]
