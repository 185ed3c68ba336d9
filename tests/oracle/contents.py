"""The contents of a window, by counting: SEMANTICS section 2, a line of Python for each table line.

Nothing here is fast or clever, on purpose: every function looks at every element of the stream, so
a reader can check the code against the table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.oracle.rows import normalize

from millpond.model.time import Instant
from millpond.model.windows import Now, Period, Range, Rows, Unbounded, Window


@dataclass(frozen=True)
class Element:
    """A stream's element ⟨row, at⟩; `seq` orders the elements of one timestamp by arrival."""

    row: dict[str, Any]
    at: Instant
    seq: int


def contents(window: Window, elements: Iterable[Element], at: int) -> list[Element]:
    """Compute the bag that a window holds at an instant, in (timestamp, arrival) order.

    >>> feed = [Element({"v": t}, Instant(t), t) for t in (1, 2, 3)]
    >>> [e.at for e in contents(Range(2), feed, 3)]
    [2, 3]
    """
    so_far = sorted((e for e in elements if e.at <= at), key=lambda e: (e.at, e.seq))
    match window:
        case Unbounded():
            return so_far
        case Now():
            return [e for e in so_far if e.at == at]
        case Range(size, None):
            return [e for e in so_far if e.at > at - size]
        case Range(size, slide):
            assert slide is not None
            return contents(Range(size), so_far, at // slide * slide)
        case Rows(count, by):
            return _last(so_far, count, by)
        case Period(begin, end):
            return [e for e in so_far if begin.at(at) <= e.at <= end.at(at)]


def _last(ordered: list[Element], count: int, by: tuple[str, ...]) -> list[Element]:
    """Find the elements with fewer than `count` successors of equal `by` (none: one partition)."""
    successors: Counter[tuple[Any, ...]] = Counter()
    kept = []
    for element in reversed(ordered):
        key = tuple(_equal_as_sql_groups(element.row[column]) for column in by)
        if successors[key] < count:
            kept.append(element)
        successors[key] += 1
    return kept[::-1]


def _equal_as_sql_groups(value: Any) -> Any:
    """Make a value that Python compares as SQL groups: NULLs are equal, NaNs are equal.

    The type is part of the result because True equals 1 in Python; a column has one type only.
    """
    if isinstance(value, float) and math.isnan(value):
        return (float, "nan")
    return (type(value), normalize(value))
