"""Totals by group are a function of the bag, and are read from files as they were written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.aggregates.segment_groups import compute_groups, merge_groups
from millpond.engine.aggregates.segment_totals import AggregatedSegment
from millpond.synopses.group_totals import Grouped, GroupTotals
from millpond.synopses.totals import OpenColumn, open_column

_GROUPED = Grouped(("k",), (("v", "chls"), ("x", "chl")))
_ROW = st.tuples(
    st.none() | st.sampled_from("abc"),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(allow_nan=False).map(lambda x: x + 0.0),
)


class _Rows(AggregatedSegment):
    """A segment whose matches are the rows at even places, or all rows."""

    def __init__(self, rows: list[tuple[Any, ...]], every: bool) -> None:
        types = (pa.string(), pa.int64(), pa.float64())
        self._columns = {
            name: pa.chunked_array([pa.array([row[i] for row in rows], type_)])
            for i, (name, type_) in enumerate(zip("kvx", types, strict=True))
        }
        self._size, self._every = len(rows), every

    @property
    def ts(self) -> np.ndarray:
        return np.arange(self._size)

    def matching(self, lo: int, hi: int) -> np.ndarray | None:
        return None if self._every else np.arange(lo + lo % 2, hi, 2)

    def column(self, name: str) -> OpenColumn:
        return open_column(self.values(name))

    def values(self, name: str) -> pa.ChunkedArray:
        return self._columns[name]


def rows_of(totals: GroupTotals) -> list[str]:
    return sorted(map(repr, totals.table.to_pylist()))


@given(rows=st.lists(_ROW, max_size=20), cut=st.integers(0, 20), every=st.booleans())
def test_totals_by_group(rows: list[tuple[Any, ...]], cut: int, every: bool) -> None:
    segment = _Rows(rows, every)
    cut = min(cut, len(rows))
    whole = compute_groups(segment, _GROUPED, 0, len(rows))
    parts = [
        compute_groups(segment, _GROUPED, 0, cut),
        compute_groups(segment, _GROUPED, cut, len(rows)),
    ]
    merged = merge_groups(_GROUPED, parts)
    assert merged.table.schema.names == whole.table.schema.names
    assert rows_of(merged) == rows_of(whole)
    again = GroupTotals.unpack(merged.pack())
    assert again.table.equals(merged.table)
    assert Grouped.read(_GROUPED.write()) == _GROUPED
    assert Grouped.read("approx_quantile") is None

    matches = [row for place, row in enumerate(rows) if every or place % 2 == 0]
    expected = []
    for key in {row[0] for row in matches}:
        own = [row for row in matches if row[0] == key]
        v, x = ([row[i] for row in own if row[i] is not None] for i in (1, 2))
        row = {"k0": key, "n": len(own), "c0": len(v), "s0": sum(v) if v else None}
        row |= {"l0": min(v, default=None), "h0": max(v, default=None), "c1": len(x)}
        expected.append(row | {"l1": min(x, default=None), "h1": max(x, default=None)})
    found = [{n: int(c) if n == "s0" and c is not None else c for n, c in row.items()}
             for row in whole.table.to_pylist()]  # fmt: skip
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
