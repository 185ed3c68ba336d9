"""Deadlines: an evaluation that takes longer than it may is interrupted.

One thread watches all evaluations of a process. A thread for each would cost more than most
evaluations do, and a thread that wakes up while the interpreter ends takes the process down.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from millpond.work import Work

Interrupt = Callable[[], None]

#: Seconds between two interrupts of the same block.
_AGAIN = 0.1


class Deadlines:
    """Interrupts blocks that are not over in time; safe to use from many threads."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._numbers = itertools.count()
        self._running: dict[int, Interrupt] = {}
        self._due: list[tuple[float, int]] = []
        self._thread: threading.Thread | None = None

    @contextmanager
    def within(
        self, seconds: float, interrupt: Interrupt, work: Work | None = None
    ) -> Iterator[None]:
        """Call `interrupt` if the block takes longer than `seconds`, and never after it.

        `interrupt` is called repeatedly until the block has ended: an evaluation that has not
        begun yet does not notice an interrupt. With `work` the block may not take longer than the
        request, and is interrupted when the request ends.
        """
        if work is not None:
            seconds = min(seconds, work.seconds_left)
        at = time.monotonic() + min(seconds, threading.TIMEOUT_MAX / 2)
        with self._wake:
            number = next(self._numbers)
            self._running[number] = interrupt
            if len(self._due) > 64 + 2 * len(self._running):
                self._due = [entry for entry in self._due if entry[1] in self._running]
                heapq.heapify(self._due)
            heapq.heappush(self._due, (at, number))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)
                self._thread.start()
            elif self._due[0][1] == number:
                self._wake.notify()
        try:
            if work is None:
                yield
            else:
                with work.waking(lambda: self._hurry(number)):
                    yield
        finally:
            with self._wake:
                del self._running[number]

    def _hurry(self, number: int) -> None:
        """Interrupt a block now, as if its time were over."""
        with self._wake:
            heapq.heappush(self._due, (time.monotonic(), number))
            self._wake.notify()

    def _watch(self) -> None:
        with self._wake:
            while True:
                now = time.monotonic()
                while self._due and (
                    self._due[0][0] <= now or self._due[0][1] not in self._running
                ):
                    _, number = heapq.heappop(self._due)
                    interrupt = self._running.get(number)
                    if interrupt is not None:
                        with suppress(Exception):  # its connection may be closed; go on with others
                            interrupt()
                        heapq.heappush(self._due, (now + _AGAIN, number))
                self._wake.wait(self._due[0][0] - now if self._due else None)


deadlines = Deadlines()
