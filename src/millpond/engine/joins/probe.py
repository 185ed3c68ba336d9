"""Probing: a sorted batch against a run of a SteM, as one merge.

PSoup (VLDB 2002, section 5.4) first joins hybrid structs with a Data SteM one by one, where they
repeat each other's work; then it batches them as *composite tuples*, applied by one sort-merge
join. Here every probe is such a merge, in both directions. The batch that probes is a run too (new
elements, or the kept elements a new query left over, or the composites of a longer join). Each of
its rows finds one stretch of the other run: the rows with its key and an order value within its
bounds. Stretches are counted before they are expanded to pairs, so that a join that explodes is
stopped before it takes memory.

Cost: two galloping searches a probing row and run, some 20–60 ns, and about 2 ns a pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import int64, njit, types

from millpond.engine.joins.arrangement import SortedRun
from millpond.engine.joins.keys import Numbers
from millpond.model.compiled import I64, READ_I64, READ_U32, READ_U64, compiled

LEAST = -(2**63)
GREATEST = 2**63 - 1


@dataclass(frozen=True, eq=False)
class Stretches:
    """For every probing row, in the order of its run, the rows [start, stop) it joins with."""

    start: Numbers
    stop: Numbers
    pairs: int


def probe(batch: SortedRun, low: Numbers | None, high: Numbers | None, run: SortedRun) -> Stretches:
    """Find the stretch of `run` that each row of `batch` joins with.

    Args:
        batch: The rows that probe. Its own `order` plays no part, but searching is quickest when
            bounds ascend among equal keys.
        low: The least order value each row joins with, in the order of the batch; None: any.
        high: The greatest order value, likewise.
        run: The run that is probed.
    """
    count = len(batch)
    start, stop = np.zeros(count, np.int64), np.zeros(count, np.int64)
    if not count or not len(run):
        return Stretches(start, stop, 0)
    nothing = np.zeros(0, np.int64)
    pairs = _find(
        batch.keys,
        nothing if low is None else np.ascontiguousarray(low),
        nothing if high is None else np.ascontiguousarray(high),
        run.keys,
        run.order,
        start,
        stop,
    )
    return Stretches(start, stop, int(pairs))


def expand(
    batch: SortedRun, found: Stretches, run: SortedRun
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Expand stretches to pairs: places of the batch, and beside them places of the run."""
    left, right = np.empty(found.pairs, np.int64), np.empty(found.pairs, np.int64)
    _expand(batch.place, found.start, found.stop, run.place, left, right)
    return left, right


@njit(inline="always")
def _first(values: Any, wanted: Any, low: Any, end: Any, after: Any) -> Any:
    """Find the first place in [low, end) with a value ≥ `wanted` (> with `after`), galloping."""
    step = int64(1)
    high = low
    while high < end and (values[high] < wanted or (after and values[high] == wanted)):
        low = high + 1
        high += step
        step += step
    high = min(high, end)
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted or (after and values[middle] == wanted):
            low = middle + 1
        else:
            high = middle
    return low


@compiled(int64(READ_U64, READ_I64, READ_I64, READ_U64, READ_I64, I64, I64))
def _find(
    wanted: Any, low: Any, high: Any, keys: Any, order: Any, start: Any, stop: Any
) -> Any:  # pragma: no cover - compiled
    pairs = int64(0)
    begin = int64(0)
    end = int64(0)
    at = int64(0)
    reached = int64(0)
    for i in range(len(wanted)):
        key = wanted[i]
        if i == 0 or key != wanted[i - 1]:
            begin = _first(keys, key, end, len(keys), False)
            end = begin
            if begin < len(keys) and keys[begin] == key:
                end = _first(keys, key, begin, len(keys), True)
            at = begin
            reached = begin
        if begin == end:
            continue
        if len(low):
            if at > begin and order[at - 1] >= low[i]:
                at = begin
            at = _first(order, low[i], at, end, False)
        else:
            at = begin
        if len(high):
            if reached < at or (reached > begin and order[reached - 1] > high[i]):
                reached = at
            reached = _first(order, high[i], reached, end, True)
        else:
            reached = end
        if reached > at:
            start[i] = at
            stop[i] = reached
            pairs += reached - at
    return pairs


@compiled(types.void(READ_U32, READ_I64, READ_I64, READ_U32, I64, I64))
def _expand(
    batch: Any, start: Any, stop: Any, place: Any, left: Any, right: Any
) -> None:  # pragma: no cover - compiled
    at = int64(0)
    for i in range(len(start)):
        own = int64(batch[i])
        for j in range(start[i], stop[i]):
            left[at] = own
            right[at] = int64(place[j])
            at += 1
