"""Records the steps of the ladders as elements of the stream `system$actions`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import pyarrow.compute as pc

from millpond.catalog.objects import SYSTEM_ACTIONS
from millpond.service.ingest.system_streams import Appended, SystemStreams
from millpond.state.version import Version

#: Action, name, before, after, measured, why.
Step = tuple[str, str, float, float, float, str]


class Actions:
    """Writes `system$actions`; safe to use from any thread."""

    def __init__(self, streams: SystemStreams) -> None:
        self._streams = streams

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
        self._streams.append(SYSTEM_ACTIONS, [(action, name, before, after, measured, why)])

    def find_last(self, version: Version, action: str, name: str) -> float:
        """How far something gives way by the last of its steps that is kept; 0: there is none.

        Raises:
            MillpondError: STORE-602, a segment is corrupt.
        """
        for table in self._streams.read_backwards(version, SYSTEM_ACTIONS):
            chosen = pc.and_(pc.equal(table["action"], action), pc.equal(table["name"], name))
            found = table["after"].filter(chosen)
            if len(found):
                return float(found[-1].as_py())
        return 0.0

    def prepare(self, steps: Sequence[Step]) -> AbstractContextManager[Appended]:
        """Write steps that are to be elements of an epoch of somebody else's.

        Args:
            steps: The arguments of `record` for each.

        Raises:
            MillpondError: STORE-603, they cannot be written.
        """
        return self._streams.prepare(SYSTEM_ACTIONS, steps)
