"""Leaves steps of the ladder of work when it is quiet: a thread looks while anything gives way.

Pushes and commits look, too, but after a flood the last of them may find that somebody else is
deciding, or that a step cannot be recorded. Nothing that was deferred may wait for the next push.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from millpond.errors import MillpondError
from millpond.service.background import Background
from millpond.service.ingest.pressure import Pressure

log = logging.getLogger("millpond.relaxing")

#: How often it is looked while anything gives way.
_SECONDS = 0.5


class Relaxing(Background):
    """The thread; it sleeps until a step is recorded."""

    def __init__(self, pressure: Pressure, go_on: Callable[[], None]) -> None:
        """Have `go_on` called when work that was deferred, or reduced, may be done again."""
        super().__init__("relaxing")
        self._pressure, self._go_on = pressure, go_on
        #: How many rungs were climbed at the last look.
        self._step = 0

    def wait_seconds(self) -> float | None:
        # Who takes a step wakes this thread before it has taken it.
        return _SECONDS if self._step or self._pressure.gives_way else None

    def work(self) -> None:
        try:
            self._pressure.look()
        except MillpondError as error:
            log.warning("a step of giving way cannot be recorded: %s", error)
        before, self._step = self._step, self._pressure.step
        if self._step < before:
            self._go_on()
