"""Windows: which elements of a stream a query sees at an instant (SEMANTICS, section 2).

Every window is applied to a stream's elements with timestamp t at the instant τ; elements with
t > τ are never in it. Sizes and slides are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unbounded:
    """`[RANGE UNBOUNDED]`, the default: every element with t ≤ τ."""


@dataclass(frozen=True)
class Range:
    """`[RANGE size]`: t > τ − size. With `slide` l the contents at ⌊τ/l⌋·l instead of τ."""

    size: int
    slide: int | None = None


@dataclass(frozen=True)
class Now:
    """`[NOW]`: t = τ."""


@dataclass(frozen=True)
class Rows:
    """`[ROWS n]`, `[PARTITION BY by ROWS n]`: fewer than `count` successors (of equal `by`)."""

    count: int
    by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bound:
    """An end of a `BEGIN … END` window: a constant instant, or NOW plus `offset`."""

    instant: int | None = None
    offset: int | None = None

    def at(self, now: int) -> int:
        """Return the bound's instant when NOW is `now`."""
        if self.instant is not None:
            return self.instant
        assert self.offset is not None
        return now + self.offset


@dataclass(frozen=True)
class Period:
    """PSoup's `BEGIN b END e`: b ≤ t ≤ e."""

    begin: Bound
    end: Bound


Window = Unbounded | Range | Now | Rows | Period


def interval(window: Window, at: int) -> tuple[int | None, int]:
    """Return the closed interval [low, high] of timestamps the window can hold at `at`.

    For ROWS windows it covers every element up to `at`; the caller counts the last of these.
    `low` None stands for no lower bound; an empty interval has low > high.

    >>> interval(Range(10), 100)
    (91, 100)
    >>> interval(Range(10, slide=60), 100)
    (51, 60)
    """
    match window:
        case Unbounded() | Rows():
            return None, at
        case Now():
            return at, at
        case Range(size, None):
            return at - size + 1, at
        case Range(size, slide):
            assert slide is not None
            edge = at // slide * slide
            return edge - size + 1, edge
        case Period(begin, end):
            return begin.at(at), min(end.at(at), at)


def list_delays(window: Window) -> tuple[int, ...]:
    """How long after its timestamp an element may come into a window, and leave it."""
    match window:
        case Range(size, None):
            return (size,)
        case Range(size, slide):
            return (0, size) if slide else (size,)
        case Now():
            return (1,)
        case Period(begin, end):
            delays = []
            if end.offset is not None and end.offset < 0:
                delays.append(-end.offset)
            if begin.offset is not None:
                delays.append(1 - begin.offset)
            return tuple(delays)
    return ()


def slide_of(window: Window) -> int:
    """How far apart the instants are at which a window's contents may change."""
    return window.slide or 1 if isinstance(window, Range) else 1
