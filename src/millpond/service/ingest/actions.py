"""Records the steps of the ladders as elements of the stream `system$actions`.

A step is durable with the epoch it is committed in, through the journal as every epoch, and is read
as any stream: `SELECT * FROM system$actions [RANGE 1 HOUR]`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from millpond.catalog.objects import SYSTEM_ACTIONS
from millpond.runtime.batch_tasks import in_time_order, write_segment
from millpond.service.events import Events
from millpond.service.ingest.floors import FloorsInFlight
from millpond.service.ingest.sequencer import segment_ref
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.epoch_log import EpochLog
from millpond.state.version import Version


class Actions:
    """Writes `system$actions`; safe to use from any thread."""

    def __init__(self, store: Path, log: EpochLog, floors: FloorsInFlight, events: Events) -> None:
        self._store = store
        self._log = log
        self._floors = floors
        self._events = events

    def record(
        self, action: str, name: str, before: float, after: float, measured: float, why: str
    ) -> None:
        """Make a step an element, in an epoch of its own.

        Args:
            action: What gives way: 'shed', 'hold back'.
            name: Of which stream.
            before: How far it gave way before the step, from 0 to 1.
            after: How far it does from now on.
            measured: What was measured, where 1 is as much as is allowed.
            why: The same in words.

        Raises:
            MillpondError: STORE-603, it cannot be written.
        """
        stream_id = SYSTEM_ACTIONS.id
        # Until it is committed no reader takes its instant for final.
        token, now, _ = self._floors.hold(lambda now: {stream_id: now})
        try:
            schema = SYSTEM_ACTIONS.schema.to_arrow()
            values = [now, action, name, before, after, measured, why]
            row = pa.table(
                [pa.array([value]).cast(f.type) for value, f in zip(values, schema, strict=True)],
                schema=schema,
            ).append_column("__ts", pa.array([now], pa.int64()))
            built = write_segment(str(self._store), stream_id, in_time_order(row), None, 0)

            def change(version: Version) -> EpochChange:
                clock = version.clock(stream_id)
                segment = segment_ref(built, ((0, clock.next_seq),))
                after = replace(clock, next_seq=clock.next_seq + 1, high=now, arrived_at=now)
                return EpochChange(kind="action", segments=[segment], clocks={stream_id: after})

            try:
                self._log.commit(change)
            except BaseException:
                built.discard()
                raise
        finally:
            self._floors.release(token)
        self._events.action_recorded()
