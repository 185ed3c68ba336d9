"""Room for large pieces of work: those that run at once need at most so many bytes together.

An evaluation copies the rows of its windows, and sorts, groups or joins the copies; an encoder
makes values of Python from an answer, which take several times the memory of its bytes. Limits on
each piece alone would not limit what all clients' pieces take together.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from millpond.errors import MillpondError
from millpond.work import current_work, wait_for

#: From how many bytes on a piece of work needs room.
LARGE = 1 << 20
_MOST_WAITING = 8


class Room:
    """Lets large pieces of work run while there is room for them, in the order in which they came.

    Args:
        memory: How many bytes those that run at once may have; one that has more runs alone. With
            0, every large one runs alone.
        refusal: What the error says when too many wait.
        hint: What it says to do.
        smallest: Work on fewer bytes needs no room.
        most_waiting: How many requests may wait; each holds one of the threads that serve all.
        with_rows: Whether a request that waits keeps the room of its rows (`Work.keep`). Where
            that is not so, two requests cannot wait for each other's.
    """

    def __init__(
        self,
        memory: int,
        refusal: str,
        hint: str,
        *,
        smallest: int = LARGE,
        most_waiting: int = _MOST_WAITING,
        with_rows: bool = False,
    ) -> None:
        self._memory = memory
        self._refusal = refusal
        self._hint = hint
        self._smallest = smallest
        self._most_waiting = most_waiting
        self._with_rows = with_rows
        self._held = 0
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Hold room for work on so many bytes, when it is its turn; errors as of `enter`."""
        self.enter(size)
        try:
            yield
        finally:
            self.leave(size)

    def enter(self, size: int) -> None:
        """Begin to hold room, when it is the turn of this piece of work.

        Small work runs at once. A thread that works for no request waits as long as it takes.

        Raises:
            MillpondError: SERVE-715, it is for a request and many wait; POND-405, its request ends
                before it is its turn.
        """
        if size < self._smallest or self.enter_at_once(size):
            return
        work = current_work()
        if work is not None and not self._with_rows:
            work.let_go()
        with self._changed:
            self._wait(size)
            self._held += size

    def enter_at_once(self, size: int) -> bool:
        """Begin to hold room if there is room now and nobody waits for it; whether it does."""
        if size < self._smallest:
            return True
        with self._changed:
            if self._waiting or not self._fits(size):
                return False
            self._held += size
        return True

    def leave(self, size: int) -> None:
        """Let go of room that is held."""
        if size >= self._smallest:
            with self._changed:
                self._held -= size
                self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return not self._held or self._held + size <= self._memory

    def _wait(self, size: int) -> None:
        if not self._waiting and self._fits(size):
            return
        work = current_work()
        is_request = work is not None and work.is_request
        if is_request and len(self._waiting) >= self._most_waiting:
            raise MillpondError("SERVE-715", self._refusal, hint=self._hint)
        ticket = object()
        self._waiting.append(ticket)
        try:
            wait_for(self._changed, lambda: self._waiting[0] is ticket and self._fits(size))
        finally:
            self._waiting.remove(ticket)
            self._changed.notify_all()
