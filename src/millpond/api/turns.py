"""Large answers and large pushes are encoded and decoded one at a time.

As values of Python, rows take several times the memory of their bytes, and one thread alone can
make them at a time. So in parallel, large ones would need more memory and not come sooner.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread

from millpond.errors import MillpondError

#: From how many bytes on an answer or a push waits for its turn.
LARGE = 1 << 20
#: How many requests may wait with an answer; each holds one of the threads that serve all.
_MOST_WAITING = 8

P = ParamSpec("P")
T = TypeVar("T")


class Turns:
    """Lets one large piece of work run at a time, and refuses it when many wait."""

    def __init__(self, most_waiting: int = _MOST_WAITING) -> None:
        self._places = threading.BoundedSemaphore(most_waiting + 1)
        self._turn = threading.Lock()

    def run(self, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do a piece of work on so many bytes, when it is its turn.

        Raises:
            MillpondError: SERVE-715, too many wait.
        """
        if size < LARGE:
            return work(*args, **kwargs)
        if not self._places.acquire(blocking=False):
            raise MillpondError(
                "SERVE-715",
                "too many large answers wait to be encoded",
                hint="Ask again in a second, or for fewer rows.",
            )
        try:
            with self._turn:
                return work(*args, **kwargs)
        finally:
            self._places.release()


#: The turns of all answers of this process.
ANSWERS = Turns()


class PushTurns:
    """Lets one large push at a time use a thread; within one event loop."""

    def __init__(self) -> None:
        self._limiter: CapacityLimiter | None = None

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """Do the work of a push of so many bytes in a thread, when it is its turn."""
        if size < LARGE:
            return await to_thread.run_sync(work)
        if self._limiter is None:
            self._limiter = CapacityLimiter(1)
        return await to_thread.run_sync(work, limiter=self._limiter)
