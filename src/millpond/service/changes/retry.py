"""Retries of derived streams whose changes could not be computed.

The cause of a failure may pass: somebody corrects a relation, defines a function anew, or memory is
free again. So each stopped derived stream is retried separately, with exponential backoff, and at
once when a client says `ALTER STREAM … SET (active = true)`. The failures are kept in memory only:
a store that is opened again tries all its derived streams.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from dataclasses import dataclass

from millpond.errors import MillpondError

#: How long until a stream is first tried again, and the longest; each time it is twice as long.
FIRST_SECONDS = 15.0
MOST_SECONDS = 900.0


@dataclass(frozen=True)
class _RetryState:
    error: MillpondError
    wait: float
    again_at: float


class Retries:
    """For each stopped stream its error and its next attempt; safe to use from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._states: dict[int, _RetryState] = {}

    def note(self, stream_id: int, error: MillpondError) -> None:
        """Note that a stream has failed, for the first time or again."""
        known = self._states.get(stream_id)
        wait = FIRST_SECONDS if known is None else min(2 * known.wait, MOST_SECONDS)
        self._states[stream_id] = _RetryState(error, wait, self._clock() + wait)

    def clear(self, stream_id: int) -> None:
        """Forget a stream's failure: it goes on, or was dropped."""
        self._states.pop(stream_id, None)

    def retry(self, stream_id: int) -> None:
        """Make a stream due for an attempt now; its error stays until it goes on."""
        known = self._states.get(stream_id)
        if known is not None:
            self._states[stream_id] = _RetryState(known.error, FIRST_SECONDS / 2, self._clock())

    def list_errors(self) -> dict[int, MillpondError]:
        """Why streams have stopped, by their ids."""
        return {id: known.error for id, known in list(self._states.items())}

    @property
    def has_any(self) -> bool:
        """Whether any stream has stopped."""
        return bool(self._states)

    def get(self, stream_id: int) -> MillpondError | None:
        """Why a stream has stopped; None if it has not."""
        known = self._states.get(stream_id)
        return None if known is None else known.error

    def is_backing_off(self, stream_id: int) -> bool:
        """Whether a stream has stopped and its next attempt is not due yet."""
        known = self._states.get(stream_id)
        return known is not None and self._clock() < known.again_at

    def seconds_until_retry(self, there: Container[int]) -> float | None:
        """Seconds until the next attempt at an existing stream; None if none has stopped."""
        for gone in [id for id in list(self._states) if id not in there]:
            self.clear(gone)
        due = [known.again_at for known in list(self._states.values())]
        return max(0.0, min(due) - self._clock()) if due else None
