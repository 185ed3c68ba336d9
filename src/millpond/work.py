"""The work on one request: it ends when its time is over, or when its client has gone.

A request's work is done by one thread, which finds its `Work` in a context variable; it is not
passed from call to call. Code that takes long asks whether to go on (`check_work`), waits so that
the end of the request wakes it (`wait_for`), or can be interrupted (`Deadlines.within`). Threads in
the background work for everybody: they have no request, and no request ends them. A statement of a
program in Python is a request too where the pond has a limit (`limit_work`).
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar, Token

from millpond.errors import MillpondError


class Work:
    """The work on one request; may be ended from any thread.

    Attributes:
        seconds: How long it may take; None: no limit but those of its parts.
        has_client: Whether the client that asked is still there.
        is_request: Whether a server's client asked, and not the program itself.
        held: How many bytes its answers have so far.
        most_body: How many bytes an answer may have as it is sent.
    """

    def __init__(
        self,
        seconds: float | None = None,
        check_memory: Callable[[int, int], None] = lambda held, more: None,
        *,
        is_request: bool = True,
        most_body: int = sys.maxsize,
    ) -> None:
        self._lock = threading.Lock()
        self._wakes: dict[object, Callable[[], None]] = {}
        self._until = math.inf
        self.seconds: float | None = None
        self.has_client = True
        self.is_request = is_request
        self.held = 0
        self.most_body = most_body
        self._check_memory = check_memory
        self._kept: list[Callable[[], None]] | None = None
        self.limit(seconds)

    def hold(self, size: int) -> None:
        """Count more bytes of an answer. Raises what `check_memory` raises of the sum and these."""
        self.held += size
        self._check_memory(self.held, size)

    @contextmanager
    def keeping_rows(self) -> Iterator[None]:
        """Keep the room of the rows that the block's evaluations give, until the block ends."""
        self._kept = []
        try:
            yield
        finally:
            self.let_go()
            self._kept = None

    def keep(self, leave: Callable[[], None]) -> None:
        """Keep room, which `leave` leaves, until what it holds is not needed any more."""
        if self._kept is None:
            leave()
        else:
            self._kept.append(leave)

    def let_go(self) -> None:
        """Leave the room that is kept."""
        while self._kept:
            self._kept.pop()()

    def limit(self, seconds: float | None) -> None:
        """Allow so many seconds from now on; None: no limit."""
        self.seconds = seconds
        self._until = math.inf if seconds is None else time.monotonic() + seconds

    def end(self) -> None:
        """Record that the client has gone: wake and interrupt the work done for it."""
        with self._lock:
            self.has_client = False
            wakes = list(self._wakes.values())
        for wake in wakes:
            wake()

    @property
    def seconds_left(self) -> float:
        """The seconds that are left of its time."""
        return max(self._until - time.monotonic(), 0.0) if self.has_client else 0.0

    @property
    def is_over(self) -> bool:
        """Whether the work is to end."""
        return self.seconds_left <= 0.0

    def check(self) -> None:
        """Raises POND-405 if the work is to end."""
        if self.is_over:
            raise self.error()

    def error(self) -> MillpondError:
        """Make the error that says why the work ends."""
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
        """Call `wake` if the client goes while the block runs."""
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


#: The id of the request this context works for, which the lines of the log about it have.
current_request: ContextVar[str | None] = ContextVar("request", default=None)

_current: ContextVar[Work | None] = ContextVar("work", default=None)


def current_work() -> Work | None:
    """Return the work of the request this thread works for; None if there is no request."""
    return _current.get()


def begin_work(work: Work) -> Token[Work | None]:
    """Let everything this context does from now on be work for a request."""
    return _current.set(work)


def finish_work(token: Token[Work | None]) -> None:
    """Undo `begin_work`."""
    _current.reset(token)


@contextmanager
def limit_work(seconds: float) -> Iterator[None]:
    """Let the block be work that may take so many seconds, unless it is work for a request."""
    if _current.get() is not None or seconds == math.inf:
        yield
        return
    token = _current.set(Work(seconds, is_request=False))
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def endless_work() -> Iterator[None]:
    """Let no request end what the block does."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def check_work() -> None:
    """Raises POND-405 if the request this thread works for is to end."""
    work = _current.get()
    if work is not None:
        work.check()


@contextmanager
def keeping_rows() -> Iterator[None]:
    """Keep the room of rows that are evaluated in the block until it ends, if it is a request's.

    So few large answers wait to be encoded: an evaluation that needs their room waits for them.
    """
    with nullcontext() if (work := _current.get()) is None else work.keeping_rows():
        yield


def hold_memory(size: int) -> None:
    """Count so many bytes of an answer for the request this thread works for, if there is one.

    Raises:
        MillpondError: SERVE-715, the answers of all requests are too large together.
    """
    work = _current.get()
    if work is not None:
        work.hold(size)


def wait_for(
    condition: threading.Condition, is_over: Callable[[], bool], timeout: float | None = None
) -> bool:
    """Wait as `condition.wait_for` does, but no longer than the request; the caller holds the lock.

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
