"""Pushed rows on their way to becoming visible, and waiting for them."""

from __future__ import annotations

import time

from millpond.errors import MillpondError
from millpond.runtime.protocol import Runtime
from millpond.service.ingest.intake import Intake

#: How long an answer waits for rows that a statement inserted, in seconds.
STATED_SECONDS = 60.0
#: How often who waits for pushes looks whether the runtime is still there, in seconds.
_LOOK_SECONDS = 0.5


class Pushes:
    """Knows the last push that a statement made, and waits for pushes; safe from any thread."""

    def __init__(self, intake: Intake, runtime: Runtime) -> None:
        self._intake = intake
        self._runtime = runtime
        self._last_stated = 0

    def note(self, number: int) -> None:
        """A statement pushed rows: answers to later statements and asks wait for them."""
        self._last_stated = max(self._last_stated, number)
        self._runtime.wake_inbox()

    def wait_for_stated(self) -> None:
        """Wait until the rows that statements pushed are visible.

        Raises:
            MillpondError: POND-405 when they have not become an epoch for a minute since Spark
                runs; POND-415.
        """
        if self._last_stated and not self._intake.wait(self._last_stated, 0.0):
            self._runtime.wait_until_started()
        if not self.wait(self._last_stated, STATED_SECONDS):
            raise MillpondError(
                "POND-405",
                "rows inserted before are not visible yet",
                detail="They are durable and will be.",
                hint="Ask again; SHOW STREAMS says if the pipeline has stopped.",
            )

    def wait(self, upto: int, timeout: float | None) -> bool:
        """Wait until the pushes up to a number are visible; False when the time ran out.

        Args:
            upto: The number of a push.
            timeout: Seconds; None for as long as it takes.

        Raises:
            MillpondError: POND-415, the runtime that makes them visible has ended.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _LOOK_SECONDS if until is None else until - time.monotonic()
            if self._intake.wait(upto, max(0.0, min(left, _LOOK_SECONDS))):
                return True
            trouble = self._runtime.trouble
            if trouble is not None and trouble.code == "POND-415":
                raise trouble
            if left <= 0:
                return False
