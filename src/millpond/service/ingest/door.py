"""The door: what becomes of a push when more comes than can be done (STREAM, sections 2.4, 5.2.2).

Acknowledged pushes wait in the inbox for their epoch; that backlog may have `queue_memory` bytes.
Before a push would make it larger, something gives way:

- a stream that blocks **holds back**: the push is refused (POND-417, over HTTP 429 with
  Retry-After), nothing of it is kept, and the client sends it again;
- a stream that sheds takes the push and **sheds**: first a part of the elements, then nearly all,
  then all. What is acknowledged is never shed. Where not even the counts and the rejects that are
  left of a push have room, it holds back, too.

How much gives way is a step of a ladder, which follows the backlog up at once and down only when it
has become clearly smaller. Every step is recorded in `system$actions`.

INV-DOOR-1: the bytes that wait, and those of a push being written, are at most `queue_memory`, or
one push; what is left of pushes that are shed whole takes at most `LEFT_BYTES` more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError

#: From which part of `queue_memory` on which share is shed; the last one sheds everything.
SHARES = ((0.0, 0.0), (0.5, 0.5), (0.7, 0.9), (0.9, 1.0))
#: By how much the backlog must be smaller than where a step began, before the step is left.
_SLACK = 0.2


#: What is left of pushes that are shed whole, their rejects and counts, has so much room beyond
#: `queue_memory`: a stream that sheds is not held back as soon as other rows fill that.
LEFT_BYTES = 16 << 20


@dataclass(frozen=True)
class Passage:
    """How a push may pass the door.

    Attributes:
        step: The stream's step, from 0 (everything passes) to the last of `SHARES`.
    """

    step: int

    @property
    def share(self) -> float:
        """The share of elements, or of pushes, that is shed."""
        return SHARES[self.step][1]

    @property
    def is_closed(self) -> bool:
        """Whether all elements are shed. Then bytes count from `keep` on, and not from `enter`."""
        return self.step == len(SHARES) - 1


class Recorder(Protocol):
    """Who keeps what was decided."""

    def record(
        self, action: str, name: str, before: float, after: float, measured: float, why: str
    ) -> None:
        """Make a step an element of `system$actions`."""
        ...


def choose_step(step: int, fill: float) -> int:
    """Choose the step of a stream that sheds.

    Args:
        step: The step it is on.
        fill: How much of `queue_memory` waits.

    >>> choose_step(0, 0.4), choose_step(0, 0.75), choose_step(2, 0.55), choose_step(2, 0.45)
    (0, 2, 2, 0)
    """
    wanted = max(n for n, (least, _) in enumerate(SHARES) if fill >= least)
    if wanted >= step or fill > SHARES[step][0] - _SLACK:
        return max(step, wanted)
    return wanted


class Door:
    """Keeps the backlog of pushes within its limit; safe to use from any thread."""

    def __init__(
        self,
        limit: Callable[[], int],
        recorder: Recorder,
        find_shortage: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Open the door.

        Args:
            limit: Gives the bytes that may wait, now.
            recorder: Keeps what was decided.
            find_shortage: Says what else there is too little of; None: nothing.
        """
        self._limit = limit
        self._find_shortage = find_shortage
        self._recorder = recorder
        self._lock = threading.Lock()
        self._bytes = 0
        self._steps: dict[int, int] = {}
        self._holding: dict[int, str] = {}
        #: By stream, the rows that were refused since the pond was opened.
        self.refused: dict[int, int] = {}

    @property
    def waiting_bytes(self) -> int:
        """The bytes of the pushes that wait for their epoch."""
        return self._bytes

    @property
    def limit(self) -> int:
        """How many bytes may wait."""
        return self._limit()

    @property
    def gives_way(self) -> bool:
        """Whether any stream sheds or holds back."""
        return bool(self._holding) or any(list(self._steps.values()))

    def step_of(self, stream: StreamDef) -> int:
        """The step a stream is on."""
        return self._steps.get(stream.id, 0)

    def set_step(self, stream: StreamDef, step: int) -> None:
        """Note the step of a stream that somebody else decides on."""
        with self._lock:
            self._steps[stream.id] = step

    def is_holding_back(self, stream: StreamDef) -> bool:
        """Whether the last push of a stream was refused."""
        return stream.id in self._holding

    def enter(self, stream: StreamDef, bytes: int, rows: int) -> Passage:
        """Let a push in, and count its bytes as waiting until `leave`, unless all of it is shed.

        Raises:
            MillpondError: POND-417, there is no room, and the stream does not shed.
        """
        limit, shortage = self._limit(), self._find_shortage()
        step = 0
        with self._lock:
            waiting = self._bytes
            fill = waiting / limit
            is_full = waiting > 0 and waiting + bytes > limit
            if shortage is not None:
                # Who sheds is not held back: a part of its elements is shed.
                fill = max(fill, SHARES[1][0])
                is_full |= not stream.sheds
            if not stream.sheds:
                held = stream.id in self._holding
                if is_full:
                    self.refused[stream.id] = self.refused.get(stream.id, 0) + rows
                    self._holding[stream.id] = stream.name
                else:
                    self._holding.pop(stream.id, None)
                    self._bytes += bytes
                before, after = float(held), float(is_full)
            else:
                before_step = self._steps.get(stream.id, 0)
                step = len(SHARES) - 1 if is_full else choose_step(before_step, fill)
                self._steps[stream.id] = step
                bytes = 0 if Passage(step).is_closed else bytes
                self._bytes += bytes
                before, after = SHARES[before_step][1], SHARES[step][1]
        if before != after:
            action = "shed" if stream.sheds else "hold back"
            why = shortage or f"{waiting} of {limit} bytes of pushes wait for their epoch"
            try:
                self._recorder.record(action, stream.name, before, after, fill, why)
            except BaseException:
                if stream.sheds or not is_full:
                    self.leave(bytes)
                self._forget_step(stream)
                raise
        if not stream.sheds and is_full:
            raise _refuse(stream, waiting, limit, shortage)
        return Passage(step)

    def keep(self, stream: StreamDef, passage: Passage, size: int, kept: int, rows: int) -> None:
        """Count what is left of a push, or of a part of one, when its elements have been shed.

        Args:
            stream: The stream that sheds.
            passage: What `enter` gave.
            size: The bytes it came with.
            kept: Those of them that wait.
            rows: The rows of the whole push.

        Raises:
            MillpondError: POND-417, there is no room even for that.
        """
        if not passage.is_closed:
            self.leave(size - kept)
            return
        limit = self._limit() + LEFT_BYTES
        with self._lock:
            waiting = self._bytes
            if not waiting or waiting + kept <= limit:
                self._bytes += kept
                return
            self.refused[stream.id] = self.refused.get(stream.id, 0) + rows
            held = stream.id in self._holding
            self._holding[stream.id] = stream.name
        if not held:
            why = f"{waiting} of {limit} bytes of pushes wait for their epoch"
            try:
                self._recorder.record("hold back", stream.name, 0.0, 1.0, waiting / limit, why)
            except BaseException:
                self._forget_step(stream)
                raise
        raise _refuse(stream, waiting, limit, None)

    def relax(self, streams: Mapping[int, StreamDef]) -> None:
        """Leave the steps that what waits no longer asks for, though nobody pushes to a stream.

        Args:
            streams: All there are. A step of a source's stream is left with its batch.

        Raises:
            MillpondError: STORE-603, a step cannot be recorded; then it is not left.
        """
        if not self._steps and not self._holding:
            return
        limit, shortage = self._limit(), self._find_shortage()
        with self._lock:
            waiting, steps, holding = self._bytes, dict(self._steps), list(self._holding)
        fill = waiting / limit if shortage is None else max(waiting / limit, SHARES[1][0])
        why = shortage or f"{waiting} of {limit} bytes of pushes wait for their epoch"
        for id, step in steps.items():
            stream = streams.get(id)
            after = choose_step(step, fill) if stream is not None and stream.sheds else 0
            if after >= step or (stream is not None and stream.source is not None):
                continue
            # Left before it is recorded: else a push that comes meanwhile leaves it, too, and the
            # step is recorded twice.
            with self._lock:
                if self._steps.get(id) != step:
                    continue
                self._steps[id] = after
            if stream is not None:
                shares = SHARES[step][1], SHARES[after][1]
                try:
                    self._recorder.record("shed", stream.name, *shares, fill, why)
                except BaseException:
                    with self._lock:
                        if self._steps.get(id) == after:
                            self._steps[id] = step
                    raise
        for id in holding if shortage is None and fill <= SHARES[1][0] else ():
            with self._lock:
                name = self._holding.pop(id, None)
            if name is not None and id in streams:
                try:
                    self._recorder.record("hold back", streams[id].name, 1.0, 0.0, fill, why)
                except BaseException:
                    with self._lock:
                        self._holding.setdefault(id, name)
                    raise

    def _forget_step(self, stream: StreamDef) -> None:
        """Have the next push decide, and record, again."""
        with self._lock:
            self._steps.pop(stream.id, None)
            self._holding.pop(stream.id, None)

    def add(self, bytes: int) -> None:
        """Count bytes of a push that was acknowledged before the pond was opened."""
        with self._lock:
            self._bytes += bytes

    def leave(self, bytes: int) -> None:
        """Stop counting bytes: their push is part of an epoch, or was given up, or shed."""
        with self._lock:
            self._bytes -= bytes


def _refuse(stream: StreamDef, waiting: int, limit: int, shortage: str | None) -> MillpondError:
    """What a client is told whose push is held back."""
    return MillpondError(
        "POND-417",
        f'stream "{stream.name}" takes no more rows for now',
        detail=f"{shortage}."
        if shortage is not None
        else f"{waiting:,} of {limit:,} bytes of pushed rows wait for their epoch.",
        hint="Send the same rows again after a second; nothing of them was kept.",
    )
