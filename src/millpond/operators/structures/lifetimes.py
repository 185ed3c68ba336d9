"""Lifetimes: when an element enters a window over time, and when it leaves."""

from __future__ import annotations

import numpy as np

from millpond.model.time import END
from millpond.model.windows import Now, Period, Range, Unbounded, Window
from millpond.operators.protocol.delta import Bools, Ints


def lifetimes(window: Window, ts: Ints) -> tuple[Ints, Ints]:
    """Compute when elements with these timestamps enter a window, and when they leave it."""
    never = np.full(len(ts), END, np.int64)
    match window:
        case Range(size, None):
            return ts, np.minimum(ts + min(size, END), END)
        case Range(size, slide):
            assert slide is not None
            at = -(-ts // slide) * slide
            return at, np.minimum(-(-(ts + min(size, END)) // slide) * slide, END)
        case Now():
            return ts, ts + 1
        case Period(begin, end):
            at = ts if end.offset is None else np.maximum(ts, ts - end.offset)
            return at, never if begin.offset is None else np.minimum(ts - begin.offset + 1, END)
    return ts, never


def find_lives(window: Window, ts: Ints) -> tuple[Ints, Ints, Bools]:
    """Compute `lifetimes`, and which of the elements are in the window at some instant."""
    at, until = lifetimes(window, ts)
    is_in = at < until
    if isinstance(window, Period):
        if window.begin.instant is not None:
            is_in &= ts >= window.begin.instant
        if window.end.instant is not None:
            is_in &= ts <= window.end.instant
    return at, until, is_in


def find_length(window: Window) -> int | None:
    """How long an element is in a window that it enters as it comes; None: it is another window.

    >>> find_length(Range(10)), find_length(Now()), find_length(Range(10, slide=60))
    (10, 1, None)
    """
    match window:
        case Range(size, None):
            return min(size, END)
        case Now():
            return 1
        case Unbounded():
            return END
    return None
