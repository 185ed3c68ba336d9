"""Writes pairs straight from the stretches a probe found, without making each pair first.

With two streams, a run in the order of time and no further factor, a probing element and its
stretch say everything about their pairs. So the largest arrays of a join (the places of the pairs,
their timestamps and arrival numbers) are never made: one pass counts the pairs of each zone, a
second writes arrival numbers where they belong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import int64, njit, types, uint32

from millpond.engine.joins.arrangement import Places, SortedRun
from millpond.engine.joins.keys import Numbers
from millpond.engine.joins.pairs import ZONES, lay_table, zone_shift
from millpond.engine.joins.probe import Stretches
from millpond.model.compiled import I64, READ_I64, READ_U32, U32, compiled


@dataclass(frozen=True, eq=False)
class StretchedPairs:
    """The pairs of some probing elements with one run.

    Attributes:
        arrivals: The probing elements' arrival numbers.
        stamps: Their timestamps.
        start: Where in the run each element's stretch begins.
        stop: Where the stretch ends; it is never empty.
        order: The run's timestamps.
        place: The run's rows.
        numbers: The arrival number of each row of the arranged table; empty if they ascend by one:
            then a row's arrival number is its place + `base`.
        base: See `numbers`.
    """

    arrivals: Numbers
    stamps: Numbers
    start: Numbers
    stop: Numbers
    order: Numbers
    place: Places
    numbers: Places
    base: int

    @staticmethod
    def of(
        found: Stretches,
        arrivals: Numbers,
        stamps: Numbers,
        run: SortedRun,
        numbers: tuple[Places, int],
    ) -> StretchedPairs:
        """Take the pairs of a probe; `arrivals` and `stamps` are in the order of the batch."""
        some = np.flatnonzero(found.stop > found.start)
        return StretchedPairs(
            arrivals[some],
            stamps[some],
            found.start[some],
            found.stop[some],
            run.order,
            run.place,
            *numbers,
        )

    def span(self) -> tuple[int, int]:
        """Return the least and the greatest timestamp of a pair's older element."""
        first = np.minimum(self.stamps, self.order[self.start])
        last = np.minimum(self.stamps, self.order[self.stop - 1])
        return int(first.min()), int(last.max())


def number_arrivals(arrivals: Numbers) -> tuple[Places, int]:
    """Encode rows' arrival numbers as `StretchedPairs` takes them: (numbers, base)."""
    if len(arrivals) and _ascend_by_one(np.ascontiguousarray(arrivals)):
        return np.zeros(0, np.uint32), int(arrivals[0])
    return arrivals.astype(np.uint32), 0


@compiled(types.boolean(READ_I64))
def _ascend_by_one(numbers: Any) -> Any:  # pragma: no cover - compiled
    i = 1
    while i < len(numbers) and numbers[i] == numbers[i - 1] + 1:
        i += 1
    return i >= len(numbers)


def lay_stretched(groups: Sequence[StretchedPairs], probing: int) -> tuple[pa.Table, int, int]:
    """Lay pairs out as `pairs.to_table` does; return them with their least and greatest timestamp.

    These are the timestamps of the pairs' older elements.

    Args:
        groups: Pairs, at least one; arrival numbers below 2**32.
        probing: The number, 0 or 1, of the stream the probing elements are of.
    """
    spans = [group.span() for group in groups]
    low, high = min(s[0] for s in spans), max(s[1] for s in spans)
    shift = zone_shift(low, high)
    starts = np.zeros(ZONES + 1, np.int64)
    for g in groups:
        _count(g.stamps, g.start, g.stop, g.order, low, shift, starts[1:])
    np.cumsum(starts, out=starts)
    pairs = int(starts[-1])
    own, other = _room(pairs), _room(pairs)
    cursor = starts[:-1].copy()
    for g in groups:
        _write(
            g.arrivals,
            g.stamps,
            g.start,
            g.stop,
            g.order,
            g.place,
            g.numbers,
            g.base,
            low,
            shift,
            cursor,
            own,
            other,
        )
    columns = [pa.array(own), pa.array(other)]
    table = lay_table(columns if probing == 0 else columns[::-1], [0, 0], starts, low, shift)
    return table, low, high


def _room(pairs: int) -> npt.NDArray[np.uint32]:
    # Arrow's pool gives memory back warm; fresh pages would cost as much as the writing.
    return np.frombuffer(pa.allocate_buffer(4 * pairs), np.uint32)


@njit(inline="always")
def _zone(stamp: Any, other: Any, low: Any, shift: Any) -> Any:
    return int64((min(stamp, other) - low) >> shift)


@compiled(types.void(READ_I64, READ_I64, READ_I64, READ_I64, int64, int64, I64))
def _count(
    stamps: Any, start: Any, stop: Any, order: Any, low: Any, shift: Any, counts: Any
) -> None:  # pragma: no cover - compiled
    for i in range(len(stamps)):
        stamp = stamps[i]
        for j in range(start[i], stop[i]):
            counts[_zone(stamp, order[j], low, shift)] += 1


@compiled(types.void(*[READ_I64] * 5, READ_U32, READ_U32, int64, int64, int64, I64, U32, U32))
def _write(
    arrivals: Any,
    stamps: Any,
    start: Any,
    stop: Any,
    order: Any,
    place: Any,
    numbers: Any,
    base: Any,
    low: Any,
    shift: Any,
    cursor: Any,
    own: Any,
    other: Any,
) -> None:  # pragma: no cover - compiled
    in_order = len(numbers) == 0
    for i in range(len(stamps)):
        stamp = stamps[i]
        arrival = uint32(arrivals[i])
        for j in range(start[i], stop[i]):
            zone = _zone(stamp, order[j], low, shift)
            at = cursor[zone]
            cursor[zone] = at + 1
            own[at] = arrival
            if in_order:
                other[at] = uint32(int64(place[j]) + base)
            else:
                other[at] = numbers[place[j]]
