"""Background work: a thread that others wake, and can wait for until it is idle."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

log = logging.getLogger("millpond.background")

#: How long after a defect the thread looks for work again.
_AFTER_DEFECT_SECONDS = 1.0
#: How long who stops it waits for the thread, at most.
MOST_SECONDS = 30.0


class Stopped(Exception):
    """The pond closes; what was being done is not finished."""


class WokenThread(ABC):
    """A thread that others wake and stop; its methods may be called from any thread.

    Attributes:
        stopping: Whether the thread is to end, or has.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._wake = threading.Event()
        #: Notified when something that was asked for has been done, and when the thread is stopped.
        self._progress = threading.Condition()
        #: How often somebody asked, and the last ask after which all was done.
        self._asked = self._done = 0
        self.stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Have the thread look for work soon: something changed."""
        with self._progress:
            self._asked += 1
        self._wake.set()

    def end(self) -> None:
        """Tell the thread to end, and return at once."""
        self.stopping = True
        self._wake.set()

    def has_ended(self, seconds: float) -> bool:
        """Wait until the thread has ended, no longer than so many seconds; whether it has."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def stop(self, seconds: float = MOST_SECONDS) -> None:
        """End the thread; wait for that no longer than so many seconds."""
        self.end()
        self.has_ended(seconds)
        self._notify()

    @property
    def has_died(self) -> bool:
        """Whether the thread ended though nobody stopped it."""
        return self._thread is not None and not self._thread.is_alive() and not self.stopping

    def _notify(self) -> None:
        with self._progress:
            self._progress.notify_all()

    @abstractmethod
    def _loop(self) -> None:
        """Work until the thread is to end."""


class Background(WokenThread):
    """The work of one thread, which others can wait for until it is idle."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._has_defect = False

    def wait_until_idle(self, timeout: float | None = None) -> bool:
        """Wait until the thread has done all work for the calls of `wake` so far."""
        self.wake()
        with self._progress:
            asked = self._asked
            return self._progress.wait_for(lambda: self._done >= asked or self.stopping, timeout)

    def check_going(self) -> None:
        """Raise Stopped if the thread is to end; for work of many pieces, before each of them."""
        if self.stopping:
            raise Stopped

    def wait_seconds(self) -> float | None:
        """Seconds after which the thread looks for work even if nobody wakes it; None: never."""
        return None

    @abstractmethod
    def work(self) -> None:
        """Do all work there is, or as much as can be done before the thread is stopped."""

    def _loop(self) -> None:
        while not self.stopping:
            self._wake.wait(self._seconds_to_wait())
            self._wake.clear()
            with self._progress:
                asked = self._asked
            if self.stopping:
                return
            try:
                self.work()
                self._has_defect = False
            except Stopped:
                return
            except Exception:
                self._note_defect()
            with self._progress:
                self._done = max(self._done, asked)
                self._progress.notify_all()

    def _seconds_to_wait(self) -> float | None:
        try:
            seconds = self.wait_seconds()
        except Exception:
            self._note_defect()
            return _AFTER_DEFECT_SECONDS
        return _AFTER_DEFECT_SECONDS if self._has_defect else seconds

    def _note_defect(self) -> None:
        """Log what failed and go on: nobody would start the thread again."""
        self._has_defect = True
        log.exception("%s failed and goes on", self._name)
