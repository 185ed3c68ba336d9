"""Retention never drops what is needed, and says from when on all is kept."""

from hypothesis import given
from hypothesis import strategies as st

from millpond.model.time import BEGINNING, END
from millpond.state.retention import kept_since, plan_eviction


def segments(a, *spans):
    return [
        a.segment(1, f"s{id}", id=id, rows=rows, min_ts=low, max_ts=high)
        for id, (low, high, rows) in enumerate(spans, 1)
    ]


def test_by_default_everything_is_kept(a):
    result = plan_eviction(segments(a, (0, 9, 5), (10, 19, 5)))
    assert (result.segment_ids, result.kept_from) == ((), BEGINNING)


def test_by_time_what_lies_wholly_before_goes(a):
    kept = segments(a, (0, 9, 5), (5, 12, 5), (10, 19, 5))
    assert plan_eviction(kept, keep_from=9).segment_ids == ()
    result = plan_eviction(kept, keep_from=10)
    assert (result.segment_ids, result.kept_from) == ((1,), 10)
    assert plan_eviction(kept, keep_from=END).kept_from == 20


def test_by_count_the_last_rows_stay(a):
    kept = segments(a, (0, 9, 5), (10, 19, 5), (15, 29, 5), (30, 39, 5))
    assert plan_eviction(kept, keep_from=END, keep_rows=10).segment_ids == (1,)
    assert plan_eviction(kept, keep_from=END, keep_rows=5).segment_ids == (1, 2, 3)
    assert plan_eviction(kept, keep_from=END, keep_rows=16).segment_ids == ()


def test_what_either_needs_stays(a):
    kept = segments(a, (0, 9, 5), (10, 19, 5), (20, 29, 5))
    assert plan_eviction(kept, keep_from=10, keep_rows=1).segment_ids == (1,)
    assert plan_eviction(kept, keep_from=END, keep_rows=6).segment_ids == (1,)


def test_kept_from_never_goes_back(a):
    assert kept_since([], 50) == 50
    assert kept_since(segments(a, (0, 9, 5)), 50) == 50
    assert kept_since(segments(a, (0, 99, 5)), 50) == 100


@given(
    contents=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), max_size=8),
    keep_from=st.integers(0, 31),
    keep_rows=st.none() | st.integers(0, 20),
)
def test_no_needed_element_is_dropped_and_kept_from_is_true(a, contents, keep_from, keep_rows):
    spans = [(min(times), max(times), len(times)) for times in contents]
    result = plan_eviction(segments(a, *spans), keep_from=keep_from, keep_rows=keep_rows)
    elements = sorted((ts, id) for id, times in enumerate(contents, 1) for ts in times)
    needed = [e for e in elements if e[0] >= keep_from]
    needed += elements[max(0, len(elements) - (keep_rows or 0)) :]
    dropped = [e for e in elements if e[1] in result.segment_ids]
    # Which of several elements with one timestamp are the last is for their sequence to say, so
    # none of them may be dropped.
    assert not {ts for ts, _ in dropped} & {ts for ts, _ in needed}
    assert all(ts < result.kept_from for ts, _ in dropped)
    if not dropped:
        assert result.kept_from == BEGINNING
