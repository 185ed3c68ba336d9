"""The interval of timestamps of a window, held to the definition of each window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millpond.model.windows import Bound, Now, Period, Range, Rows, Unbounded, interval

instants = st.integers(-200, 200)
sizes = st.integers(1, 100)


def held(window: object, at: int) -> set[int]:
    """The timestamps that the interval holds, of all that matter here."""
    low, high = interval(window, at)  # type: ignore[arg-type]
    return {t for t in range(-1_000, 1_000) if (low is None or low <= t) and t <= high}


@given(instants, sizes)
def test_a_range_is_half_open(at: int, size: int) -> None:
    assert held(Range(size), at) == {t for t in range(-1_000, 1_000) if at - size < t <= at}


@given(instants, sizes, sizes)
def test_a_slide_holds_still_between_its_steps(at: int, size: int, slide: int) -> None:
    edge = max(step for step in range(-300 * slide, 300 * slide, slide) if step <= at)
    assert held(Range(size, slide), at) == held(Range(size), edge)
    assert edge <= at < edge + slide


@given(instants)
def test_now_and_windows_without_a_lower_end(at: int) -> None:
    assert held(Now(), at) == {at}
    everything = {t for t in range(-1_000, 1_000) if t <= at}
    assert held(Unbounded(), at) == held(Rows(3), at) == everything


@given(instants, instants, st.integers(-50, 50))
def test_a_period_never_reaches_beyond_now(at: int, begin: int, offset: int) -> None:
    window = Period(Bound(instant=begin), Bound(offset=offset))
    expected = {t for t in range(-1_000, 1_000) if begin <= t <= min(at + offset, at)}
    assert held(window, at) == expected
