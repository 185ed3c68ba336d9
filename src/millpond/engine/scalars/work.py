"""The work on one request: it ends when its time is over, or when whoever asked has gone.

A request's work is done by one thread, which finds it in a context variable; nothing is handed
from call to call. What takes long there asks whether it is to go on (`check_work`), waits so that
it is woken (`wait_for`), or can be interrupted (`Deadlines.within`). What works for everybody, as
the threads in the background do, has no request and is not ended by any.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token

from millpond.errors import MillpondError


class Work:
    """The work on one request; may be ended from any thread.

    Attributes:
        seconds: How long it may take; None: as long as its parts may.
        has_client: Whether whoever asked is still there.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._lock = threading.Lock()
        self._wakes: dict[object, Callable[[], None]] = {}
        self._until = math.inf
        self.seconds: float | None = None
        self.has_client = True
        self.limit(seconds)

    def limit(self, seconds: float | None) -> None:
        """Give it so much time from now on; None: all the time there is."""
        self.seconds = seconds
        self._until = math.inf if seconds is None else time.monotonic() + seconds

    def end(self) -> None:
        """Whoever asked has gone: wake and interrupt what is done for them."""
        with self._lock:
            self.has_client = False
            wakes = list(self._wakes.values())
        for wake in wakes:
            wake()

    @property
    def seconds_left(self) -> float:
        """How long it may go on."""
        return max(self._until - time.monotonic(), 0.0) if self.has_client else 0.0

    @property
    def is_over(self) -> bool:
        """Whether it is to end."""
        return self.seconds_left <= 0.0

    def check(self) -> None:
        """Raises POND-405 if it is to end."""
        if self.is_over:
            raise self.error()

    def error(self) -> MillpondError:
        """Why it ends."""
        if not self.has_client:
            return MillpondError("POND-405", "whoever sent the request has gone")
        return MillpondError(
            "POND-405",
            f"the request took longer than {self.seconds or 0:g} seconds",
            detail="Its work was stopped; statements that were done before stay done.",
            hint="Narrow what it asks for, or raise max_seconds.",
        )

    @contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` if the request ends for want of its client while the block runs."""
        key = object()
        with self._lock:
            self._wakes[key] = wake
            has_gone = not self.has_client
        try:
            if has_gone:
                wake()
            yield
        finally:
            with self._lock:
                del self._wakes[key]


_current: ContextVar[Work | None] = ContextVar("work", default=None)


def current_work() -> Work | None:
    """The request this thread works for; None: for none."""
    return _current.get()


def begin_work(work: Work) -> Token[Work | None]:
    """What this context does from now on is work for a request."""
    return _current.set(work)


def finish_work(token: Token[Work | None]) -> None:
    """The end of what `begin_work` began."""
    _current.reset(token)


def check_work() -> None:
    """Raises POND-405 if the request this thread works for is to end."""
    work = _current.get()
    if work is not None:
        work.check()


def wait_for(
    condition: threading.Condition, is_over: Callable[[], bool], timeout: float | None = None
) -> bool:
    """As `condition.wait_for`, which is to be held; ends with the request as well.

    Raises:
        MillpondError: POND-405, the request this thread works for is to end.
    """
    work = _current.get()
    if work is None:
        return condition.wait_for(is_over, timeout)

    def wake() -> None:
        with condition:
            condition.notify_all()

    left = min(math.inf if timeout is None else timeout, work.seconds_left)
    with work.waking(wake):
        done = condition.wait_for(
            lambda: is_over() or work.is_over, None if left == math.inf else left
        )
    if is_over():
        return True
    work.check()
    return done
