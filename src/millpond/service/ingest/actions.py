"""Records the steps of the ladders as elements of the stream `system$actions`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from millpond.catalog.objects import SYSTEM_ACTIONS
from millpond.service.ingest.system_streams import Appended, SystemStreams

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

    def prepare(self, steps: Sequence[Step]) -> AbstractContextManager[Appended]:
        """Write steps that are to be elements of an epoch of somebody else's.

        Args:
            steps: The arguments of `record` for each.

        Raises:
            MillpondError: STORE-603, they cannot be written.
        """
        return self._streams.prepare(SYSTEM_ACTIONS, steps)
