"""Panes: no window's edge cuts one at the end of a step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.promising.panes import find_panes
from millpond.model.windows import Bound, Now, Period, Range, Unbounded, Window, interval

OFFSETS = st.integers(-60, 5).map(lambda n: Bound(offset=n))
INSTANTS = st.integers(-20, 200).map(lambda n: Bound(instant=n))
WINDOWS = st.one_of(
    st.just(Unbounded()),
    st.just(Now()),
    st.builds(Range, st.integers(1, 70)),
    st.builds(Range, st.integers(1, 70), st.integers(1, 40)),
    st.builds(Period, OFFSETS | INSTANTS, OFFSETS | INSTANTS),
)


@given(WINDOWS, st.integers(1, 30))
def test_elements_of_a_pane_are_together_inside_or_outside_of_every_later_window(
    window: Window, line: int
) -> None:
    ts = np.arange(-50, 300)
    panes = find_panes(window, line, ts)
    assert (panes <= ts).all()
    assert (np.diff(panes) >= 0).all()
    for step in range(-50 // line, 300 // line + 1):
        at = step * line - 1
        low, high = interval(window, at)
        inside = (ts <= high) & (ts >= (low if low is not None else -1_000))
        before = panes <= high
        if low is not None:
            before &= panes >= low
        there = ts <= at  # what comes later is not there yet
        assert (inside == before)[there].all()


@pytest.mark.parametrize(
    ("window", "most"),
    [(Range(1_000), 102), (Range(1_003), 203), (Range(100, 25), 9), (Unbounded(), 1)],
)
def test_there_are_at_most_two_panes_a_step(window: Window, most: int) -> None:
    ts = np.arange(0, 1_003 if window != Range(100, 25) else 100)
    assert len(set(find_panes(window, 10, ts).tolist())) <= most
