"""The segment tree's policy: few segments, few rewrites, whatever the batches are like."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.state.segment_tree import arrival_order, level, plan_merges


def batches(a, sizes, start=1):
    return [
        a.segment(1, f"s{n}", id=n, epoch=n, rows=rows, min_ts=n * 10, max_ts=n * 10 + 9)
        for n, rows in enumerate(sizes, start)
    ]


def as_one(group, id):
    return replace(
        group[-1],
        id=id,
        rows=sum(s.rows for s in group),
        min_ts=min(s.min_ts for s in group),
        max_ts=max(s.max_ts for s in group),
    )


def grown(a, sizes, **policy):
    """The segments left after batches of those sizes, and how many rows merging wrote."""
    segments, written = [], 0
    for fresh in batches(a, sizes):
        segments.append(fresh)
        while groups := plan_merges(segments, **policy):
            for group in groups:
                merged = as_one(group, 100_000 + fresh.id)
                written += merged.rows
                segments = [s for s in segments if s not in group] + [merged]
    return segments, written


def test_eight_neighbours_of_a_level_become_one(a):
    seven = batches(a, [1_000] * 7)
    assert plan_merges(seven) == []
    eight = batches(a, [1_000] * 8)
    assert plan_merges(reversed(eight)) == [tuple(eight)]


def test_a_smaller_segment_goes_with_its_neighbours(a):
    segments = batches(a, [1_000, 1_000, 5, 1_000, 1_000, 1_000, 1_000, 1_000, 3, 2])
    assert plan_merges(segments) == [tuple(segments[:8])]


def test_a_large_segment_is_not_rewritten_for_small_ones(a):
    segments = batches(a, [500_000, *[10] * 8])
    assert plan_merges(segments) == [tuple(segments[1:])]


def test_nothing_grows_beyond_the_greatest_size(a):
    segments = batches(a, [65_536 * 8] * 16)
    groups = plan_merges(segments)
    assert [len(group) for group in groups] == [7, 7]
    assert all(sum(s.rows for s in group) <= 4_000_000 for group in groups)
    assert plan_merges(batches(a, [3_000_000] * 16)) == []


def test_what_is_full_is_not_crossed(a):
    segments = batches(a, [*[10] * 4, 3_000_000, *[10] * 4])
    assert plan_merges(segments) == []


def test_what_expires_soon_is_left_alone(a):
    segments = batches(a, [10] * 16)
    (group,) = plan_merges(segments, expiring_before=segments[8].min_ts)
    assert group == tuple(segments[8:])


def test_a_merge_does_not_span_too_much_time(a):
    segments = batches(a, [10] * 8)
    assert plan_merges(segments, max_span=10) == []
    assert plan_merges(segments, max_span=49) == [tuple(segments[:5])]


def test_levels_are_powers_of_the_fanout():
    assert [level(65_536 * 8**k) for k in range(4)] == [0, 1, 2, 3]
    assert [level(65_536 * 8**k - 1) for k in range(4)] == [-1, 0, 1, 2]


def test_a_trickle_costs_a_logarithm(a):
    sizes = [1] * 3_000
    segments, written = grown(a, sizes)
    assert sum(s.rows for s in segments) == 3_000
    assert written <= 3_000 * 4  # log₈ 3,000 < 4
    assert len(segments) <= 7 * 4


@settings(max_examples=30)
@given(sizes=st.lists(st.integers(1, 20_000), min_size=50, max_size=150), fanout=st.integers(2, 8))
def test_any_batches_make_few_segments_at_a_logarithmic_cost(a, sizes, fanout):
    segments, written = grown(a, sizes, fanout=fanout, base_rows=1_000, max_rows=10**9)
    rows = sum(sizes)
    levels = level(rows, fanout, 1) + 2
    assert sum(s.rows for s in segments) == rows
    assert len(segments) <= fanout * levels
    assert written <= 2 * rows * levels
    spans = [(s.min_ts, s.max_ts) for s in arrival_order(segments)]
    assert all(high < low for (_, high), (low, _) in pairwise(spans))


@given(st.data())
def test_groups_are_disjoint_neighbours(a, data):
    sizes = data.draw(st.lists(st.sampled_from([1, 9, 80, 700, 9_000, 70_000]), max_size=60))
    segments = batches(a, sizes)
    shuffled = data.draw(st.permutations(segments))
    groups = plan_merges(shuffled, fanout=4, max_rows=100_000)
    seen = [s.id for group in groups for s in group]
    assert seen == sorted(set(seen))
    for group in groups:
        ids = [s.id for s in group]
        assert ids == list(range(ids[0], ids[-1] + 1))
        assert len(ids) >= 2
        assert sum(s.rows for s in group) <= 100_000
