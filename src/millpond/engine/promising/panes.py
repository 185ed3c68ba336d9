"""Panes: stretches of time that no edge of a window cuts at the end of a step.

At the end of every step the window of a followed aggregate is a whole number of panes. So what the
aggregate keeps of the elements that were looked at is a few partial values a pane, and an estimate
merges panes: its cost does not grow with the elements that the window holds (section 4.3).
"""

from __future__ import annotations

import numpy as np

from millpond.engine.joins.keys import Numbers
from millpond.model.time import BEGINNING
from millpond.model.windows import Bound, Now, Period, Range, Window

#: Longer windows than any stream has; their sums with instants fit 64 bits.
_LONGEST = 1 << 61


def find_panes(window: Window, line: int, ts: Numbers) -> Numbers:
    """Find the pane of each instant: its first instant, or BEGINNING where no edge comes before.

    Steps end at `k * line - 1`, for whole k. Two elements of one pane are both in the window, or
    both not, at the end of every step that is not before them.

    Args:
        window: A window of time, not of rows.
        line: The length of a step, in microseconds.
        ts: Instants, int64.
    """
    panes = np.full(len(ts), BEGINNING, np.int64)
    match window:
        case Range() | Now():
            size, slide = (window.size, window.slide) if isinstance(window, Range) else (1, None)
            for back in (min(size, _LONGEST), 0):
                panes = np.maximum(panes, _find_edge(ts, line, slide or 1, back))
        case Period(begin, end):
            last = end if end.offset is None or end.offset < 0 else Bound(offset=0)
            panes = np.maximum(panes, _find_bound(begin, line, ts, 0))
            panes = np.maximum(panes, _find_bound(last, line, ts, 1))
            panes = np.maximum(panes, ts // line * line)
    return panes


def _find_edge(ts: Numbers, line: int, slide: int, back: int) -> Numbers:
    """The last instant `e(k) - back + 1` that is not after `ts`; e(k) is the k-th step's edge.

    e(k) = ⌊(k · line − 1) / slide⌋ · slide.
    """
    step = ((ts + back - 1) // slide + 1) * slide // line
    return np.asarray((step * line - 1) // slide * slide - back + 1)


def _find_bound(bound: Bound, line: int, ts: Numbers, behind: int) -> Numbers:
    """The last instant that is not after `ts` at which a window can begin (or has ended before)."""
    if bound.instant is not None:
        at = bound.instant + behind
        return np.where(ts >= at, at, BEGINNING)
    first = (bound.offset or 0) - 1 + behind
    return np.asarray((ts - first) // line * line + first)
