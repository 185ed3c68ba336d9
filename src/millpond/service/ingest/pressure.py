"""The ladder of work: what gives way before any data is shed (STREAM, sections 2.4 and 5.2).

When much waits at the door, or the oldest push waits for long, work waits first: matching,
followers and kept answers of the lightest queries are **deferred**. That loses nothing: where
matches are missing an invocation applies the predicate itself, and what was deferred is made up for
later. Then queries that tolerate it are **reduced**, the lightest first. Only then do streams shed,
or hold back (`door.py`).

A step is climbed at once, and left when half as much waits. It names the weight up to which queries
give way, so who gives way does not change while the step lasts. It is recorded before it acts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from millpond.catalog.objects import QueryDef
from millpond.catalog.options import OPTIONS
from millpond.model.durations import parse_duration
from millpond.service.ingest.door import Door, Recorder
from millpond.service.queries.weights import weight_of
from millpond.state.epoch_log import EpochLog

DEFER, REDUCE = "defer", "reduce"
#: Seconds; an epoch takes about as long.
_LEAST_FRESHNESS = 0.1
#: A step is left when only that part waits of what it was climbed for: bursts make no steps.
_LEFT_AT = 0.5


@dataclass(frozen=True)
class Rung:
    """A step of the ladder.

    Attributes:
        fill: From which part of `queue_memory` on it is climbed; see also `_measure_lateness`.
        action: What gives way.
        half: Whether only queries of the lighter half of the weights do.
    """

    fill: float
    action: str
    half: bool


#: Work gives way before data: the door sheds from half of `queue_memory` on.
RUNGS = (
    Rung(0.2, DEFER, True),
    Rung(0.3, DEFER, False),
    Rung(0.4, REDUCE, True),
    Rung(0.45, REDUCE, False),
)
assert all(one.fill < other.fill for one, other in pairwise(RUNGS))


def choose_rung(step: int, fill: float) -> int:
    """Choose how many rungs are climbed.

    Args:
        step: How many are now.
        fill: How much of `queue_memory` waits.

    >>> choose_rung(0, 0.19), choose_rung(0, 0.42), choose_rung(3, 0.21), choose_rung(3, 0.2)
    (0, 3, 3, 2)
    """
    wanted = sum(fill >= rung.fill for rung in RUNGS)
    while step > wanted and fill <= RUNGS[step - 1].fill * _LEFT_AT:
        step -= 1
    return max(step, wanted)


def choose_weight(weights: list[float], rung: Rung) -> float:
    """Choose the weight up to which queries give way, from the distinct weights, ascending.

    The weightiest queries do not wait, unless all have one weight; 0 means nobody.

    >>> half, all = RUNGS[0], RUNGS[1]
    >>> [choose_weight([1, 2, 4], rung) for rung in (half, all)]
    [1, 2]
    >>> choose_weight([1], half), choose_weight([1], all), choose_weight([1, 2], RUNGS[3])
    (0.0, 1, 2)
    """
    if not weights:
        return 0.0
    if rung.half:
        return weights[len(weights) // 2 - 1] if len(weights) > 1 else 0.0
    if rung.action == REDUCE or len(weights) == 1:
        return weights[-1]
    return weights[-2]


class Pressure:
    """Decides what gives way; safe to use from any thread."""

    def __init__(
        self,
        door: Door,
        log: EpochLog,
        recorder: Recorder,
        find_wait: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Begin at the bottom; `find_wait` gives for how many seconds the oldest push waits."""
        self._find_wait = find_wait
        self._door = door
        self._log = log
        self._recorder = recorder
        self._lock = threading.Lock()
        #: How many rungs are climbed.
        self.step = 0
        #: By action, the weight up to which queries give way; 0: nobody does.
        self._weights = {DEFER: 0.0, REDUCE: 0.0}
        #: By stream that sheds, how full its source is; 1 is as much as may wait in it.
        self._sources: dict[int, float] = {}

    @property
    def deferred_weight(self) -> float:
        """The weight up to which the work of queries waits; 0: nobody's does."""
        return self._weights[DEFER]

    @property
    def reduced_weight(self) -> float:
        """The weight up to which queries are reduced as far as they tolerate; 0: none is."""
        return self._weights[REDUCE]

    def defers(self, query: QueryDef) -> bool:
        """Whether work that can be made up for later is not done for a query now."""
        return weight_of(query) <= self._weights[DEFER]

    def reduces(self, weight: float) -> bool:
        """Whether a query of a weight is reduced now as far as it tolerates."""
        return weight <= self._weights[REDUCE]

    @property
    def gives_way(self) -> bool:
        """Whether any step is taken, or somebody is deciding on one now."""
        return bool(self.step) or self._lock.locked() or self._door.gives_way

    def note_source(self, stream_id: int, fill: float) -> None:
        """Note how much waits in the source of a stream that sheds, until the next `look`."""
        with self._lock:
            self._sources[stream_id] = fill

    def look(self) -> None:
        """Climb or leave rungs, by what waits now; leave the door's steps.

        Raises:
            MillpondError: STORE-603, a step cannot be recorded; then it is not taken.
        """
        if not self._lock.acquire(blocking=False):
            return  # somebody else decides
        try:
            self._door.relax(self._log.version.streams)
            waiting, limit = self._door.waiting_bytes, self._door.limit
            fill = waiting / limit
            why = f"{waiting} of {limit} bytes of pushes wait for their epoch"
            late, said = self._measure_lateness()
            if late > fill:
                fill, why = late, said
            streams = self._log.version.streams
            for stream_id, full in list(self._sources.items()):
                if stream_id not in streams or not streams[stream_id].sheds:
                    del self._sources[stream_id]
                elif full > fill:
                    fill = full
                    name = streams[stream_id].name
                    why = f'{fill:.0%} of what may wait in the source of stream "{name}" does'
            step = choose_rung(self.step, fill)
            if step == self.step:
                return
            self._move(step, fill, why)
        finally:
            self._lock.release()

    def _measure_lateness(self) -> tuple[float, str]:
        """How long the oldest push waits, as a part of `queue_memory` that asks for as much, and
        in words.

        The first rung is climbed when it waits for as long as `freshness`, the last at 2¼ times of
        it. Data does not give way for that.
        """
        given = self._log.version.settings.get("freshness", OPTIONS["freshness"].default)
        if given == "never":
            return 0.0, ""
        wait, most = self._find_wait(), max(parse_duration(given) / 1e6, _LEAST_FRESHNESS)
        why = f"the oldest push has waited for its epoch for {wait:.1f} s, and freshness is {given}"
        return RUNGS[0].fill * wait / most, why

    def _move(self, step: int, fill: float, why: str) -> None:
        """Take a step: upwards from the left of the ladder, downwards from the right."""
        weights = {weight_of(query) for query in self._log.version.queries.values()} - {0.0}
        for action in (DEFER, REDUCE) if step > self.step else (REDUCE, DEFER):
            climbed = [rung for rung in RUNGS[:step] if rung.action == action]
            before = self._weights[action]
            after = float(choose_weight(sorted(weights), climbed[-1])) if climbed else 0.0
            if before != after:
                self._recorder.record(action, "", before, after, fill, why)
            self._weights[action] = after
        self.step = step
