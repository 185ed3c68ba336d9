"""The door of sources: what becomes of a batch of a source that has more than can be read.

A source keeps what is not read, so most sources are held back: they are read as fast as they can
be, and nothing gives way. A stream that sheds is to be fresh instead. Of its source may wait as
much as of pushes (`door.py`), by the same steps; everything is never shed, because what waits in a
source takes no memory.

What a batch sheds follows from what waited when its end was fixed, which the checkpoint has, and
from the step that the batch before it left. So a batch that is planned again, after a restart too,
sheds the same elements. The steps are elements of `system$actions`, in the epoch of their batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from millpond.catalog.objects import StreamDef
from millpond.engine.admission.shed import Shedding
from millpond.runtime.protocol import Waiting
from millpond.service.ingest.actions import Actions, Step
from millpond.service.ingest.door import SHARES, Door, choose_step
from millpond.service.ingest.pressure import Pressure
from millpond.service.queries.wanted import Wanted
from millpond.state.version import Version

SHED = "shed"
#: The last step of a source: nine tenths.
_LAST = 2


@dataclass(frozen=True)
class _Batch:
    """What was decided of the batch of a stream that is being made.

    Attributes:
        steps: The stream's step before the batch, in it, and behind it.
        fills: How full the source was, and is behind the batch; 1 is as much as may wait.
        why: The same in words.
    """

    stream: StreamDef
    steps: tuple[int, int, int]
    fills: tuple[float, float] = (0.0, 0.0)
    why: tuple[str, str] = ("", "")

    def list_steps(self) -> list[Step]:
        shares = [SHARES[step][1] for step in self.steps]
        turns = zip(shares, shares[1:], self.fills, self.why, strict=False)
        return [
            (SHED, self.stream.name, before, after, fill, why)
            for before, after, fill, why in turns
            if before != after
        ]


class SourceDoor:
    """Decides what batches of sources shed; for one stream, calls come one at a time."""

    def __init__(
        self,
        door: Door,
        wanted: Wanted,
        pressure: Pressure,
        actions: Actions,
    ) -> None:
        self._door = door
        self._wanted = wanted
        self._pressure = pressure
        self._actions = actions
        self._batches: dict[int, _Batch] = {}
        self._known: set[int] = set()

    def decide(
        self, version: Version, stream_id: int, find_waiting: Callable[[], Waiting | None]
    ) -> Shedding | None:
        """Decide what the next batch of a stream sheds; None: nothing.

        Raises:
            MillpondError: STORE-603, a step of the ladder of work cannot be recorded.
        """
        stream = version.streams.get(stream_id)
        if stream is None or stream.reads_history:
            return None
        if not stream.sheds and not self._door.step_of(stream):
            return None
        waiting = find_waiting() if stream.sheds else None
        batch = self._judge(stream, self._step_before(version, stream), waiting)
        self._batches[stream_id] = batch
        # Work waits before anything is shed.
        self._pressure.note_source(stream_id, batch.fills[0])
        self._pressure.look()
        share = SHARES[batch.steps[1]][1]
        return self._wanted.choose_shedding(version, stream, share) if share else None

    def _judge(self, stream: StreamDef, before: int, waiting: Waiting | None) -> _Batch:
        if waiting is None:
            return _Batch(stream, (before, 0, 0))
        limit = waiting.most or self._door.limit
        fills = waiting.amount / limit, waiting.left / limit
        during = min(choose_step(before, fills[0]), _LAST)
        after = min(choose_step(during, fills[1]), _LAST)
        amounts = waiting.amount, waiting.left
        why = [f"{n} of {limit} {waiting.unit} that may wait in its source do" for n in amounts]
        return _Batch(stream, (before, during, after), fills, (why[0], why[1]))

    def _step_before(self, version: Version, stream: StreamDef) -> int:
        if stream.id not in self._known:
            self._known.add(stream.id)
            if version.clock(stream.id).arrived_at is not None:
                share = self._actions.find_last(version, SHED, stream.name)
                self._door.set_step(stream, [part for _, part in SHARES].index(share))
        return self._door.step_of(stream)

    def list_steps(self, stream_ids: Iterable[int]) -> list[Step]:
        """The elements of `system$actions` that belong to the epoch of a batch."""
        batches = (self._batches.get(stream_id) for stream_id in stream_ids)
        return [step for batch in batches if batch is not None for step in batch.list_steps()]

    def settle(self, stream_ids: Iterable[int]) -> None:
        """The batch is an epoch: what was decided holds, and less waits."""
        for stream_id in stream_ids:
            batch = self._batches.pop(stream_id, None)
            if batch is not None:
                self._door.set_step(batch.stream, batch.steps[2])
                self._pressure.note_source(stream_id, batch.fills[1])

    def pause(self, stream_id: int) -> None:
        """Nothing is read of a stream's source for now, so what waits there makes no work."""
        self._pressure.note_source(stream_id, 0.0)
        self._pressure.look()

    def forget(self, stream_ids: Iterable[int]) -> None:
        """The batch was given up, unless it is an epoch: a decision without an epoch was none."""
        for stream_id in stream_ids:
            if self._batches.pop(stream_id, None) is not None:
                self._pressure.note_source(stream_id, 0.0)
