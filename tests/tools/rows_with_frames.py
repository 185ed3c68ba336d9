"""What window functions in the order of time say of rows that only come, by their definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from tests.oracle.rows import normalize
from tests.tools.check_operator import Life, comes_first

from millpond.operators.aggregation.frames import RowFrame

#: Frames of rows and of time, with a beginning and without, up to the row and before it.
FRAMES = (
    RowFrame(None),
    RowFrame(2),
    RowFrame(3, 1),
    RowFrame(None, 2),
    RowFrame(0),
    RowFrame(None, of_time=True),
    RowFrame(4, of_time=True),
    RowFrame(0, of_time=True),
)


def order_as_cut(feed: Sequence[Life]) -> list[Life]:
    """Order rows of one instant as the checks cut them: in two parts, each in its order."""

    def comes_later(life: Life) -> bool:
        return not comes_first((life.at, life.until, 1, life.row))

    instants = groupby(feed, lambda life: life.at)
    return [life for _, lives in instants for life in sorted(lives, key=comes_later)]


def rows_with_frames(
    there: Sequence[Life],
    frames: Sequence[RowFrame],
    by: Sequence[int],
    other: Sequence[int],
    lag: int,
) -> list[tuple[Any, ...]]:
    """Each row with the values of the calls that the check of `RunningFrames` makes.

    Args:
        there: The rows that have come, in their order.
        frames: Of each, how many rows it holds and the greatest value of the second column.
        by: The columns by which frames and earlier values are partitioned.
        other: Those by which rows are numbered.
        lag: How many rows before the earlier values are.
    """
    return [
        (*life.row, *_values_of(there, number, frames, by, other, lag))
        for number, life in enumerate(there)
    ]


def _partition(there: Sequence[Life], number: int, by: Sequence[int]) -> tuple[list[Life], int]:
    """The rows of a row's partition, and its place among them."""
    keys = [tuple(normalize(life.row[p]) for p in by) for life in there]
    places = [n for n, key in enumerate(keys) if key == keys[number]]
    return [there[n] for n in places], places.index(number)


def _values_of(
    there: Sequence[Life],
    number: int,
    frames: Sequence[RowFrame],
    by: Sequence[int],
    other: Sequence[int],
    lag: int,
) -> Iterator[Any]:
    at = there[number].at
    own, place = _partition(there, number, by)
    held = []
    for f in frames:
        if f.of_time:
            held.append(
                [e for e in own if e.at <= at and (f.start is None or e.at >= at - f.start)]
            )
        else:
            first = 0 if f.start is None else max(0, place - f.start)
            held.append(own[first : max(0, place - f.end + 1)])
    yield from (len(some) for some in held)
    for some in held:
        values = [e.row[1] for e in some if e.row[1] is not None]
        yield max(values, key=lambda v: (v != v, v), default=None)
    others, mine = _partition(there, number, other)
    before = [e.at for e in others if e.at < at]
    yield from (mine + 1, len(before) + 1, len(set(before)) + 1)
    earlier = own[place - lag] if place >= lag else None
    yield None if earlier is None else earlier.row[0]
    yield there[number].row[1] if earlier is None else earlier.row[1]
    yield others[0].row[0]
