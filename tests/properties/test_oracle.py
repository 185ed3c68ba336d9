"""Properties of the oracle itself: what holds of windows by any definition of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.oracle.contents import Element, contents

from millpond.model.time import Instant
from millpond.model.windows import Now, Range, Rows, Unbounded, interval

TIMES = st.lists(st.integers(-20, 20), max_size=20)
SMALL = st.integers(1, 12)


def feed(times: list[int]) -> list[Element]:
    return [Element({"k": t % 3, "n": n}, Instant(t), n) for n, t in enumerate(times)]


def places(elements: list[Element]) -> list[int]:
    return [e.seq for e in elements]


@given(TIMES, SMALL, st.integers(-30, 30))
def test_a_slide_of_one_microsecond_is_no_slide(times: list[int], size: int, at: int) -> None:
    elements = feed(times)
    assert contents(Range(size, slide=1), elements, at) == contents(Range(size), elements, at)


@given(TIMES, SMALL)
def test_windows_that_slide_by_their_size_partition_the_stream(times: list[int], size: int) -> None:
    elements = feed(times)
    edges = range(-30 // size * size, 31 + size, size)
    seen = [place for at in edges for place in places(contents(Range(size, size), elements, at))]
    assert sorted(seen) == sorted(places(elements))


@given(TIMES, st.integers(-30, 30))
def test_now_is_a_range_of_one_microsecond(times: list[int], at: int) -> None:
    elements = feed(times)
    assert contents(Now(), elements, at) == contents(Range(1), elements, at)


@given(TIMES, SMALL, st.integers(-30, 30))
def test_rows_are_a_suffix_of_the_past(times: list[int], count: int, at: int) -> None:
    elements = feed(times)
    past = contents(Unbounded(), elements, at)
    assert contents(Rows(count), elements, at) == past[-count:]


@given(TIMES, SMALL, st.integers(-30, 30))
def test_partitioned_rows_are_the_rows_of_each_part(times: list[int], count: int, at: int) -> None:
    elements = feed(times)
    whole = places(contents(Rows(count, ("k",)), elements, at))
    parts = [[e for e in elements if e.row["k"] == k] for k in range(3)]
    assert sorted(whole) == sorted(
        place for part in parts for place in places(contents(Rows(count), part, at))
    )


@given(TIMES, st.permutations(range(20)), SMALL, st.integers(-30, 30))
def test_the_order_of_arrival_does_not_show_in_a_range(
    times: list[int], order: list[int], size: int, at: int
) -> None:
    shuffled = [times[place] for place in order if place < len(times)]
    one = [e.at for e in contents(Range(size), feed(times), at)]
    assert one == [e.at for e in contents(Range(size), feed(shuffled), at)]


@given(TIMES, SMALL, SMALL, st.integers(-30, 30))
def test_a_window_stays_within_its_interval(
    times: list[int], size: int, slide: int, at: int
) -> None:
    for window in (Unbounded(), Now(), Range(size), Range(size, slide)):
        low, high = interval(window, at)
        held = contents(window, feed(times), at)
        assert all((low is None or low <= e.at) and e.at <= high for e in held)
        missed = [e for e in feed(times) if (low is None or low <= e.at) and e.at <= high]
        assert len(missed) == len(held)
