"""Rows that left before their partner came stay away, whatever comes later into the filter."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.tools import check_operator as checking
from tests.tools.check_operator import EDGES, LATE, GivenInput, Life, sum_deltas

from millpond.model.time import END
from millpond.operators.filtered_semijoin import FilteredSemijoin, Slicing


@pytest.mark.parametrize("anti", [False, True])
@pytest.mark.parametrize("length", [None, 1_000])
def test_a_row_that_expired_before_its_partner_came_does_not_come(
    length: int | None, anti: bool
) -> None:
    """It is still among the rows that are kept, for they are purged seldom."""
    left = GivenInput("left", (pa.string(),), EDGES[1])
    right = GivenInput("right", (pa.string(),), EDGES[0])
    rows = [Life(("a",), 1, 6), *(Life((f"b{n}",), 2, 900) for n in range(9))]
    until = END if length is None else 5_000
    partners = [Life((key,), at, until) for key, at in (("a", 30), ("c", 40), ("d", 50))]
    node = FilteredSemijoin(left, right, (0,), (0,), anti, (0,), Slicing(1e-6, length, 9))
    drawn = {"left": rows, "right": partners}
    found = checking.run(node, drawn, [10, 35, 45, 55, LATE])
    for at in range(60):
        kept = {one.row: 1 for one in rows if one.at <= at < one.until}
        assert sum_deltas(found.deltas, at) == (kept if anti else {}), at
