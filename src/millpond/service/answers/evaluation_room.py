"""Room for large evaluations: those that run at once need at most so many bytes together.

Each evaluation copies the rows of its windows, and sorts, groups or joins the copies. The memory
that DuckDB may take is a limit for one evaluation; times the number of clients it is none.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from millpond.errors import MillpondError
from millpond.model.work import current_work, wait_for

#: From how many bytes of rows on an evaluation needs room.
LARGE = 1 << 20
#: How many bytes the large evaluations at once need.
_MEMORY = 256 << 20
#: How many times the bytes of its rows an evaluation needs: the rows, a sorted copy, an answer.
_COPIES = 3
#: How many requests may wait; each holds one of the threads that serve all.
_MOST_WAITING = 8


class EvaluationRoom:
    """Lets large evaluations run while there is room for them, in the order in which they came."""

    def __init__(self, memory: int = _MEMORY, most_waiting: int = _MOST_WAITING) -> None:
        self._memory = memory
        self._most_waiting = most_waiting
        self._held = 0
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Hold room for an evaluation over so many bytes of rows, when it is its turn.

        One that needs more than there is runs alone. A small one runs at once. A thread that works
        for no request waits as long as it takes.

        Raises:
            MillpondError: SERVE-715, it is for a request and many wait; POND-405, its request ends
                before it is its turn.
        """
        if size < LARGE:
            yield
            return
        needed = _COPIES * size
        with self._changed:
            self._wait(needed)
            self._held += needed
        try:
            yield
        finally:
            with self._changed:
                self._held -= needed
                self._changed.notify_all()

    def _wait(self, needed: int) -> None:
        if current_work() is not None and len(self._waiting) >= self._most_waiting:
            raise MillpondError(
                "SERVE-715",
                "too many queries of many rows wait to be evaluated",
                hint="Ask again in a second, or narrow the query's window.",
            )
        ticket = object()
        self._waiting.append(ticket)

        def has_room() -> bool:
            is_first = self._waiting[0] is ticket
            return is_first and (not self._held or self._held + needed <= self._memory)

        try:
            wait_for(self._changed, has_room)
        finally:
            self._waiting.remove(ticket)
            self._changed.notify_all()
