"""Summaries are functions of the bag of elements: whatever the order, the cut and the restarts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.synopses.summaries.protocol import SummaryKind
from millpond.synopses.summaries.stream_summary import StreamSummary, make_kind
from millpond.synopses.summaries.zones import LONGEST, Grid

GRID = Grid.of(640, 3, 4)
KINDS = ("count sketch", "histogram", "sample")


def kind_of(name: str, memory: int = 1 << 18) -> SummaryKind:
    return make_kind(name, memory, GRID, False)


elements = st.lists(
    st.tuples(st.integers(0, 40_000), st.integers(-50, 50)), min_size=0, max_size=200
)


@pytest.mark.parametrize("name", KINDS)
@given(elements, st.randoms(use_true_random=False), st.lists(st.integers(0, 4_100), max_size=6))
def test_cells_are_those_computed_naively(name, rows, random, stops):
    """Any order of arrival, any cut, any positions in between (INV-SUMMARY-1)."""
    kind = kind_of(name)
    ts = np.array([t for t, _ in rows], np.int64)
    codes = np.array([v for _, v in rows], np.int64)
    arrivals = np.arange(len(rows))
    end = 41_000
    naive = StreamSummary.begin(kind, GRID, end).with_elements(ts, codes, arrivals)
    summary = StreamSummary.begin(kind, GRID, 0)
    since = 0
    for position in [*sorted(stop * 10 for stop in stops), end]:
        summary = summary.move_to(position)
        own = [i for i in range(len(rows)) if since <= ts[i] < position]
        random.shuffle(own)
        for part in (own[: len(own) // 2], own[len(own) // 2 :]):
            summary = summary.with_elements(ts[part], codes[part], arrivals[part])
        since = position
    assert (summary.edges == naive.edges).all()
    assert (summary.cells == naive.cells).all()
    assert (summary.zones.edges == naive.zones.edges).all()


@pytest.mark.parametrize("name", ["count sketch", "histogram"])
@given(elements, elements)
def test_what_was_added_can_be_taken_away(name, one, other):
    kind = kind_of(name)
    cells = []
    for rows in (one, other, one + other):
        made = kind.empty(1)
        codes = np.array([v for _, v in rows], np.int64)
        kind.summarize(made, np.zeros(len(rows), np.int64), codes, np.arange(len(rows)))
        cells.append(made)
    both = kind.collapse(np.concatenate(cells[:2]), np.zeros(2, np.int64), 1)
    assert (both == cells[2]).all()
    assert (kind.subtract(both, cells[1]) == cells[0]).all()


def test_what_was_added_to_a_sample_stays():
    with pytest.raises(NotImplementedError, match="taken away"):
        kind_of("sample").subtract(np.zeros((1, 3), np.int64), np.zeros((1, 3), np.int64))


@pytest.mark.parametrize("name", KINDS)
def test_the_cells_fit_the_memory(name):
    for memory in (1 << 17, 1 << 20, 1 << 23):
        for rate, depth in ((1, 1), (4, 6), (64, 3), (2, 16)):
            grid = Grid.of(60_000_000, rate, depth)
            kind = make_kind(name, memory, grid, False)
            for position in range(0, 10 * grid.reach, grid.reach // 7):
                line = position // grid.line * grid.line
                assert len(grid.divide(line)[1]) <= grid.most_cells
            least = StreamSummary.begin(kind, grid, 0).kind.width
            smallest = {"count sketch": 81, "histogram": 194, "sample": 3}[name]
            assert least == smallest or grid.most_cells * least * 8 <= memory


def test_zones_follow_the_papers_rule():
    """They end at the first line where confidence is too low, and at the longest length."""
    kind = kind_of("count sketch")
    summary = StreamSummary.begin(kind, GRID, 12_800)
    quiet = summary.with_elements(np.arange(12_160, 12_800), np.arange(640) * 7, np.arange(640))
    newest = quiet.zones.edges[:-1][quiet.zones.granularity == 1]
    lines = (np.diff(np.append(newest, 12_800)) // GRID.line).tolist()
    assert max(lines) == LONGEST
    # One value alone from the 3rd line of an eighth on: that line is the last of its zone.
    burst = quiet.with_elements(np.full(5_000, 12_745), np.zeros(5_000, np.int64), np.arange(5_000))
    ends = burst.zones.edges.tolist()
    assert 12_750 in ends
    assert 12_740 not in ends


def test_older_granularities_are_rate_times_as_long():
    edges, granularity = GRID.divide(1_000_000 // GRID.line * GRID.line)
    lengths = np.diff(edges)
    assert set(lengths[granularity == 1].tolist()) == {GRID.line}
    for older in range(2, GRID.depth + 1):
        assert set(lengths[granularity == older].tolist()) == {GRID.zone_of(older)}
        assert (granularity == older).sum() >= 8
    assert GRID.zone_of(3) == 3 * GRID.zone_of(2)
    assert lengths[granularity == 1].sum() >= 640


@given(st.integers(0, 10**9), st.integers(0, 10**7))
def test_each_cell_lies_in_one_cell_of_any_later_moment(first, more):
    """INV-ZONES-1."""
    early, _ = GRID.divide(first // GRID.line * GRID.line)
    late, _ = GRID.divide((first + more) // GRID.line * GRID.line)
    inner = late[(late > early[0]) & (late < early[-1])]
    assert set(inner.tolist()) <= set(early.tolist())


@pytest.mark.parametrize("name", KINDS)
def test_the_pyramid_adds_up_and_prunes_only_what_is_expected_nowhere(name):
    kind = kind_of(name, 1 << 22)
    random = np.random.default_rng(3)
    ts, codes = random.integers(0, 12_800, 3_000), random.integers(0, 40, 3_000)
    summary = StreamSummary.begin(kind, GRID, 12_800).with_elements(ts, codes, np.arange(3_000))
    total = summary.zones.cells[:, 0].sum()
    assert all(level[:, 0].sum() == total for level in summary.pyramid)
    values = np.arange(45)
    found = summary.count_by_zone(values)
    plain = kind.count(summary.zones.cells, values)
    assert ((found == plain) | (found == 0)).all()
    kept = ts >= summary.edges[0]
    counts = np.bincount(codes[kept], minlength=45)
    error = kind.error(summary.top, values)[0]
    assert (np.abs(kind.count(summary.top, values)[0] - counts) <= error + 1e-9).mean() > 0.9
