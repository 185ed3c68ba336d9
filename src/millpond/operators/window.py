"""Windows over time: an element's timestamp says when it enters and when it leaves.

    window                     enters at            leaves at
    [RANGE T]                  t                    t + T
    [RANGE T SLIDE L]          ⌈t/L⌉·L              ⌈(t+T)/L⌉·L
    [NOW]                      t                    t + 1µs
    [RANGE UNBOUNDED]          t                    never
    BEGIN NOW+b END NOW+e      max(t, t−e)          t − b + 1µs

(Update patterns, 2.2: exp = ts + size.) The window itself keeps nothing but elements that have not
entered yet; whoever has to know when a row leaves reads it on the row.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from millpond.model.patterns import Edge, window_edge
from millpond.model.time import END
from millpond.model.windows import Now, Period, Range, Rows, Unbounded, Window, interval
from millpond.operators.delta import Delta, Ints
from millpond.operators.flow import WINDOWED, Flow, Known
from millpond.operators.node import Operator, Scalars, Unary


@dataclass(frozen=True, eq=False)
class TimeWindow(Unary):
    """A window other than ROWS over a stream's elements.

    Attributes:
        input: The elements.
        window: Which window.
        text: It as CQL, for EXPLAIN.
    """

    window: Window
    text: str = ""

    name = "window"
    remembers = False
    is_window = True

    def __post_init__(self) -> None:
        assert not isinstance(self.window, Rows)

    @property
    def edge(self) -> Edge:
        return window_edge(self.window)

    @property
    def carries_expirations(self) -> bool:
        return not isinstance(self.window, Unbounded)

    @property
    def identity(self) -> tuple[Any, ...]:
        return (repr(self.window),)

    def reach(self, at: int) -> int | None:
        return interval(self.window, at)[0]

    def estimated(self, inputs: Sequence[Flow], known: Known) -> Flow:
        (given,) = inputs
        at, until = lifetimes(self.window, np.zeros(1, np.int64))
        life = math.inf if until[0] >= END else float(until[0] - at[0]) / 1e6
        return replace(given, life=min(given.life, life))

    def work(self, inputs: Sequence[Flow], own: Flow, known: Known) -> float:
        return WINDOWED * own.changes

    def operator(self) -> Operator:
        return TimeWindowing(self.window)


class TimeWindowing:
    """`TimeWindow` at work: elements on their way in."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._coming: deque[Delta] = deque()

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        entering = self._stamped(delta)
        parts = []
        while self._coming and self._coming[0].at[0] <= upto:
            first = self._coming.popleft()
            count = int(np.searchsorted(first.at, upto, side="right"))
            parts.append(first.slice(0, count))
            if count < len(first):
                self._coming.appendleft(first.slice(count, len(first)))
                break
        count = int(np.searchsorted(entering.at, upto, side="right"))
        if count < len(entering):
            self._coming.append(entering.slice(count, len(entering)))
            entering = entering.slice(0, count)
        # Those that waited came first.
        return Delta.together([*parts, entering]) if parts else entering

    def _stamped(self, delta: Delta) -> Delta:
        """The elements that will ever be in the window, with the interval in which they are."""
        at, until = lifetimes(self._window, delta.at)
        alive = at < until
        if isinstance(self._window, Period):
            alive &= _within(self._window, delta.at)
        return Delta(delta.rows, at, until, delta.weight).where(alive)

    def size(self) -> int:
        return sum(len(d) for d in self._coming)


def lifetimes(window: Window, ts: Ints) -> tuple[Ints, Ints]:
    """From when, and until before when elements with these timestamps are in a window."""
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


def _within(period: Period, ts: Ints) -> np.ndarray:
    """Which elements a period's constant ends let in."""
    inside = np.ones(len(ts), bool)
    if period.begin.instant is not None:
        inside &= ts >= period.begin.instant
    if period.end.instant is not None:
        inside &= ts <= period.end.instant
    return inside
