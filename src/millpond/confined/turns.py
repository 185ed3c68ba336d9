"""Turns of evaluations: many that are short and small at once, the others few at a time.

Neither a query's text nor the number of its rows says what its evaluation takes: an equality of two
columns of few values finds a thousand partners for every row. So each evaluation begins as a quick
one, with little memory. It may go on for long if few others do; otherwise it waits for its turn and
begins anew, as it does with more memory where it had too little.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from millpond.confined.deadline import Interrupt, deadlines
from millpond.confined.room import Room
from millpond.work import current_work

#: What a quick evaluation may keep; a large one has so many times more at each new beginning.
QUICK_BYTES = 16 << 20
_TIMES = 8
#: How many evaluations are quick at once, and how many go on for long.
_QUICK_AT_ONCE = 16
_LONG_AT_ONCE = 8
#: Of requests, how many may wait to go on for long; each holds one of the threads that serve all.
_MOST_WAITING = 16
#: After so many seconds of the processor's time, or so many by the clock, it is not quick any more.
_QUICK_SECONDS = 0.05
_QUICK_PATIENCE = 2.0

T = TypeVar("T")


class NeedsMoreError(Exception):
    """An evaluation needs more memory or time than its turn gives it."""


class Turn:
    """What one evaluation may take before it has to begin anew.

    Attributes:
        memory: How many bytes it may keep.
        has_most: Whether it will not get more memory.
        spent: The seconds of its earlier beginnings.
        used: Bytes of `memory` that are rows, made for it already.
    """

    def __init__(self, memory: int, has_most: bool, spent: float, room: Room, size: int) -> None:
        self.memory = memory
        self.has_most = has_most
        self.spent = spent
        self.used = 0
        self._room = room
        self._size = size
        self._is_left = False
        self._is_long = True
        self._lock = threading.Lock()

    def use(self, size: int) -> bool:
        """Count bytes of rows that are about to be made; False: they are too many, for good.

        Raises:
            NeedsMoreError: they are too many, and it will get more.
        """
        if self.used + size <= self.memory // 2:
            self.used += size
            return True
        if self.has_most:
            return False
        raise NeedsMoreError

    @contextmanager
    def watch(self, interrupt: Interrupt) -> Iterator[None]:
        """Interrupt the block if it takes longer than the turn."""
        yield

    @property
    def is_over(self) -> bool:
        """Whether it was interrupted because it took longer than the turn."""
        return False

    def finish(self, rows: int) -> None:
        """Keep of a long turn's room what its rows have, until the request needs them no more."""
        work = current_work()
        if work is None or not self._is_long:
            return self.leave()
        with self._lock:
            if self._is_left:
                return None
            if rows < self._size:
                self._room.leave(self._size - rows)
                self._size = rows
        return work.keep(self.leave)

    def leave(self) -> None:
        """Let others have the turn; what is still to be done is limited in another way."""
        with self._lock:
            if not self._is_left:
                self._is_left = True
                self._room.leave(self._size)


class _QuickTurn(Turn):
    """A short turn, which becomes a long one if there is room for that when it is over."""

    def __init__(self, memory: int, has_most: bool, turns: Turns) -> None:
        super().__init__(memory, has_most, 0.0, turns.quick, 1)
        self._turns = turns
        self._is_long = False
        self._is_over = False
        self._begun = time.monotonic()
        self._clock = _clock_of_this_thread()
        self._begun_working = self._clock()

    @contextmanager
    def watch(self, interrupt: Interrupt) -> Iterator[None]:
        with deadlines.within(_QUICK_SECONDS, partial(self._look, interrupt)):
            yield

    @property
    def is_over(self) -> bool:
        return self._is_over

    def _look(self, interrupt: Interrupt) -> None:
        """Called again and again, from another thread, while the evaluation goes on."""
        if self._is_long:
            return
        worked = self._clock() - self._begun_working
        if worked < _QUICK_SECONDS and time.monotonic() - self._begun < _QUICK_PATIENCE:
            return
        with self._lock:
            if self._is_left:
                return
            if self._turns.long.enter_at_once(self._turns.least):
                self._room.leave(self._size)
                self._room, self._size = self._turns.long, self._turns.least
                self._is_long = True
                return
        self._is_over = True
        interrupt()


class Turns:
    """Gives evaluations their turns; safe to use from many threads.

    Args:
        memory: How many bytes the long and large ones may keep together; one may keep them all.
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.quick = Room(_QUICK_AT_ONCE, "", "", smallest=1, most_waiting=sys.maxsize)
        self.least = max(memory // _LONG_AT_ONCE, 1)
        self.long = Room(
            memory,
            "too many queries that take long wait to be evaluated",
            "Ask again in a second, or narrow the query's window.",
            smallest=1,
            most_waiting=_MOST_WAITING,
        )

    def run(self, compute: Callable[[Turn], T], most: int | None = None) -> T:
        """Evaluate, from the beginning for each turn that turns out to be too short or too small.

        Args:
            compute: Evaluates, and raises `NeedsMoreError` where its turn gives too little.
            most: How many bytes it may keep, if not as many as there are.

        Raises:
            MillpondError: SERVE-715, many wait; POND-405, the request ends before its turn.
        """
        most = self.memory if most is None else min(most, self.memory)
        memory = min(QUICK_BYTES, most)
        work = current_work()
        held = 0 if work is None else work.held
        begun = spent = 0.0
        self.quick.enter(1)
        turn: Turn = _QuickTurn(memory, memory == most, self)
        while True:
            try:
                begun = time.monotonic()
                answer = compute(turn)
                turn.finish(getattr(answer, "nbytes", 0))
                return answer
            except NeedsMoreError:
                if work is not None:
                    work.hold(held - work.held)
                turn.leave()
            except BaseException:
                turn.leave()
                raise
            finally:
                spent += time.monotonic() - begun
            memory = min(memory * _TIMES, most)
            size = max(memory, self.least)
            self.long.enter(size)
            turn = Turn(memory, memory == most, spent, self.long, size)


def _clock_of_this_thread() -> Callable[[], float]:
    """A clock of the processor's time this thread takes, which other threads can read."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    return partial(time.clock_gettime, time.pthread_getcpuclockid(threading.get_ident()))
