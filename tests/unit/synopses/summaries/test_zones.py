"""How a summary divides the past."""

from __future__ import annotations

import pytest

from millpond.model.time import BEGINNING
from millpond.synopses.summaries.zones import LINES, ZONES, Grid


@pytest.mark.parametrize(("rate", "depth"), [(1, 1), (1, 4), (4, 6), (64, 2), (3, 16)])
def test_granularities_span_what_was_declared(rate, depth):
    grid = Grid.of(64_000, rate, depth)
    position = 10 * grid.reach // grid.line * grid.line
    edges, granularity = grid.divide(position)
    assert edges[-1] == position
    assert (edges[1:] > edges[:-1]).all()
    assert sorted(set(granularity.tolist())) == list(range(1, depth + 1))
    newest = edges[-1] - edges[:-1][granularity == 1][0]
    assert LINES * grid.line <= newest <= LINES * grid.line + grid.zone_of(2)
    assert edges[-1] - edges[0] <= grid.reach
    for older in range(2, depth + 1):
        assert (granularity == older).sum() >= ZONES


def test_nothing_lies_before_all_instants():
    grid = Grid.of(64_000, 4, 6)
    edges, granularity = grid.divide(BEGINNING // grid.line * grid.line + 10 * grid.line)
    assert edges[0] <= BEGINNING
    assert len(edges) == len(granularity) + 1
