"""The JVM of a pond's Spark session: notices that it ended, and starts another one.

When the JVM ends (it ran out of memory, or somebody killed it), Spark's sessions, streaming
queries, tasks and Python workers end with it. What Millpond has acknowledged is in the store; so a
new JVM in the same process takes over where the epoch log ends. Requests that need no Spark are
answered meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millpond.errors import MillpondError
from millpond.runtime.process_memory import RuntimeMemory, measure_descendants
from millpond.runtime.spark.jvm.given_settings import start_error
from millpond.runtime.spark.jvm.reasons import find_reason
from millpond.runtime.spark.jvm.shared_session import (
    forget_session,
    join_session,
    leave_session,
    start_session_of,
)
from millpond.work import check_work

log = logging.getLogger("millpond.spark")

_LOOK_SECONDS = 0.25
#: Seconds to wait before each attempt to start a JVM in place of one that ended.
_WAITS = (0, 1, 2, 5, 10)
#: Seconds after which an attempt counts as failed for good.
_START_SECONDS = 180.0
#: A JVM that ends more often than so many times within so many seconds is not started again.
_MOST_ENDS, _WITHIN_SECONDS = 5, 600.0
#: How many looks in a row (a minute) a JVM may leave unanswered before it is ended. Looks are
#: counted, not seconds, because this process may have been stopped together with the JVM.
_SILENT_LOOKS = 240
#: How long a process that has closed its connections may take to be gone.
_DYING_SECONDS = 1.0
#: The exit code of a JVM that was told to exit when memory runs out.
OUT_OF_MEMORY = 3


class Machine:
    """The JVM behind a runtime's Spark session.

    Args:
        start: Starts a session; None for a session that was given and is not Millpond's to start.
        given: That session.
        revives: Whether a JVM that ended is replaced.
        on_end: Called with the reason when the JVM has ended, from the watching thread.
        on_start: Called when another JVM runs, or the first that was started behind, from the
            same thread.
        end_start: Ends a start that is under way.
    """

    def __init__(
        self,
        start: Callable[[], SparkSession] | None,
        given: SparkSession | None = None,
        *,
        revives: bool = False,
        on_end: Callable[[MillpondError], None] = lambda error: None,
        on_start: Callable[[], None] = lambda: None,
        end_start: Callable[[], None] = lambda: None,
    ) -> None:
        self._start = start
        self._given = given
        self._revives = revives
        self._on_end = on_end
        self._on_start = on_start
        self._end_start = end_start
        self._ends: deque[float] = deque(maxlen=_MOST_ENDS + 1)
        self._stopping = threading.Event()
        self._asks = self._answers = self._silent = 0
        #: Why this process ended the JVM; empty if it did not.
        self._ended_because = ""
        self._session: SparkSession | None = None
        self._gateway: Any = None
        self._process: Any = None
        self._heap: tuple[int, int] | None = None
        #: Set once it is decided whether Spark runs.
        self._decided = threading.Event()
        #: For the status page, which asks no JVM: the version of Spark.
        self.version = pyspark.__version__
        #: The URL of the master; None before Spark runs.
        self.master: str | None = None
        #: How many tasks run at a time; None before Spark runs.
        self.parallelism: int | None = None
        #: Why Spark cannot be used now; None while it can.
        self.trouble: MillpondError | None = None
        #: Why Spark will not be there again; None unless it is given up.
        self.failure: MillpondError | None = None

    def start(self, behind: bool = False) -> None:
        """Start the session, or take the given one, and begin to watch its JVM.

        Args:
            behind: Whether to return at once. Until Spark runs, `trouble` says so, and who wants
                to use it waits; if it cannot be started, `failure` says why.

        Raises:
            MillpondError: POND-415, its JVM has ended at once; not if it is started behind.
        """
        quiet_logs()
        target = self._watch
        if behind:
            target = self._start_and_watch
            self.trouble = starting_error()
        else:
            self._begin()
            self._decided.set()
        self._thread = threading.Thread(target=target, name="spark-watch", daemon=True)
        self._thread.start()

    def _begin(self) -> None:
        """Start the session, or take the given one."""
        began = time.monotonic()
        self._gateway = SparkContext._gateway
        if self._start is not None:
            log.info("starting Spark")
        try:
            self._adopt()
        except MillpondError:
            raise
        except Exception:
            gateway = SparkContext._gateway
            process = getattr(gateway, "proc", None)
            if not self._has_ended(process, _DYING_SECONDS):
                raise
            _forget(gateway)
            raise self._explain_end(process) from None
        log.info("Spark %s runs after %.1f s", self.version, time.monotonic() - began)

    def _start_and_watch(self) -> None:
        """Start the session while others work already, tell them, and watch its JVM."""
        try:
            self._begin()
            self.trouble = None
            self._on_start()
        except MillpondError as error:
            if not self._stopping.is_set():
                self._give_up(error)
            return
        except Exception as error:
            if not self._stopping.is_set():
                self._give_up(start_error(find_reason(error)))
            return
        finally:
            self._decided.set()
        self._watch()

    def _adopt(self) -> None:
        if self._start is None:
            assert self._given is not None
            session = self._given
            join_session(session)
        else:
            session = start_session_of(self._start)
        self._session = session
        self._gateway = SparkContext._gateway
        self._process = getattr(self._gateway, "proc", None)
        if self._process is not None:
            _latest[:] = [self._process]
        self.version = session.version
        self.master = session.sparkContext.master
        self.parallelism = int(session.sparkContext.defaultParallelism)

    @property
    def session(self) -> SparkSession:
        """The session.

        Raises:
            MillpondError: POND-415, its JVM has ended; POND-419, Spark is starting.
        """
        self.check()
        assert self._session is not None
        return self._session

    def check(self) -> None:
        """Raise POND-415 if the JVM has ended, POND-419 while Spark is starting."""
        if self.trouble is not None:
            raise self.trouble
        if self._has_ended():
            raise self._explain_end(self._process)

    def wait_until_started(self) -> None:
        """Wait until it is decided whether Spark runs, as long as the request's time lasts."""
        while not self._decided.wait(_LOOK_SECONDS):
            check_work()

    @contextmanager
    def using(self) -> Iterator[None]:
        """Let calls of Spark in the block fail with POND-415 if the JVM ended meanwhile.

        A Spark that is being started behind is waited for.
        """
        self.wait_until_started()
        self.check()
        process = self._process
        try:
            yield
        except MillpondError:
            if self._has_ended(process):
                raise self._explain_end(process) from None
            raise
        except (Py4JJavaError, PySparkException):
            raise  # the JVM answered
        except Exception:
            if self._has_ended(process, _DYING_SECONDS):
                raise self._explain_end(process) from None
            raise

    def stop(self) -> None:
        """Stop the session if it is Millpond's own, or what is left of it; and stop watching."""
        self._stopping.set()
        if not self._decided.is_set():
            self._end_start()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)
        self._decided.set()  # for whoever still waits
        if self._session is None:
            if SparkContext._gateway is not self._gateway:  # what it was before the start
                _forget(SparkContext._gateway)
        elif self._has_ended():
            forget_session(self._session)
            _forget(self._gateway)
        else:
            try:
                leave_session(self._session)
            except Exception as error:  # a signal to the whole group ends the JVM first
                log.debug("stopping Spark: %s", error)
                if self._has_ended(seconds=_DYING_SECONDS):
                    _forget(self._gateway)

    # -- watching ------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            if not self._has_ended():
                self._check_answers()
                continue
            self.trouble = self._explain_end(self._process)
            log.warning("%s", self.trouble.render())
            self._on_end(self.trouble)
            if not self._revives:
                return
            reason = self._replace()
            if reason is not None:
                self._give_up(start_error(reason, again=True))
                return

    def _replace(self) -> str | None:
        """Start another JVM; return why that did not succeed, None if it did."""
        now = time.monotonic()
        self._ends.append(now)
        if len(self._ends) > _MOST_ENDS and now - self._ends[0] < _WITHIN_SECONDS:
            return f"It ended {len(self._ends)} times within {now - self._ends[0]:.0f} seconds."
        reason = ""
        for wait in _WAITS:
            if self._stopping.wait(wait):
                return None
            tried: list[Exception] = []
            attempt = threading.Thread(
                target=self._attempt, args=(tried,), name="spark-start", daemon=True
            )
            attempt.start()
            attempt.join(_START_SECONDS)
            if attempt.is_alive():
                return f"A new JVM did not start within {_START_SECONDS:.0f} seconds."
            if not tried:
                log.warning("Spark runs again")
                return None
            reason = find_reason(tried[0])
            log.warning("Spark could not be started again: %s", reason)
        return f"{len(_WAITS)} attempts failed, the last with: {reason}"

    def _attempt(self, tried: list[Exception]) -> None:
        assert self._start is not None
        try:
            _forget(self._gateway)
            self._adopt()
            self._silent, self._ended_because = 0, ""
            self._answers = self._asks
            self.trouble = None
            self._on_start()
        except Exception as error:
            tried.append(error)

    def _give_up(self, why: MillpondError) -> None:
        self.failure = self.trouble = why
        log.error("%s", self.failure.render())
        self._on_end(self.failure)

    def _check_answers(self) -> None:
        """Ask the JVM something now and then; end it if it does not answer for long.

        It is ended, too, where it goes on with a session that has stopped by itself: a standalone
        master removes an application whose executors all failed, and nothing else would tell.
        """
        if self._start is None:
            return
        if self._asks == self._answers:
            self._silent = 0
            self._asks += 1
            assert self._session is not None
            asked = (self._session, self._process, self._asks)
            threading.Thread(target=self._ask, args=asked, name="spark-ask", daemon=True).start()
        else:
            self._silent += 1
            if self._silent > _SILENT_LOOKS:
                self._end_process(self._process, "did not answer for a minute and was ended")

    def _ask(self, session: SparkSession, process: Any, number: int) -> None:
        with suppress(Exception):
            if session.sparkContext._jsc.sc().isStopped() and not self._stopping.is_set():
                self._end_process(process, "was ended: its application was removed or has stopped")
                return
            heap = session.sparkContext._jvm.java.lang.Runtime.getRuntime()
            self._heap = (heap.totalMemory() - heap.freeMemory(), heap.maxMemory())
            self._stopping.wait(_LOOK_SECONDS * 20)
            self._answers = number

    def _end_process(self, process: Any, because: str) -> None:
        if process is not None:
            self._ended_because = because
            process.kill()

    def measure_memory(self) -> RuntimeMemory:
        """What the JVM and the workers it has started take; its heap as of some seconds ago."""
        process = self._process
        if process is None or process.poll() is not None:
            return RuntimeMemory({})
        return RuntimeMemory(measure_descendants(process.pid), self._heap)

    # -- the end of a JVM ----------------------------------------------------------------------

    def _has_ended(self, process: Any = None, seconds: float = 0.0) -> bool:
        process = process or self._process
        if process is None:
            return False  # a session whose JVM started this process
        until = time.monotonic() + seconds
        while process.poll() is None:
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)
        return True

    def _explain_end(self, process: Any) -> MillpondError:
        code = process.poll()
        if self._ended_because:
            how = self._ended_because
        elif code == OUT_OF_MEMORY:
            how = "ran out of memory (MILLPOND_DRIVER_MEMORY gives it more)"
        else:
            how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if self._revives:
            hint = "Millpond is starting it again; try again in some seconds."
        elif self._start is None:
            hint = "Close the pond, and open the store again with a new Spark session."
        else:
            hint = "Close the pond, and open the store again."
        return MillpondError(
            "POND-415",
            "Spark has ended",
            detail=f"Its JVM, process {process.pid}, {how}. Everything acknowledged is kept.",
            hint=hint,
        )


def starting_error() -> MillpondError:
    """The error that says that Spark does not run yet."""
    return MillpondError(
        "POND-419",
        "Spark is starting",
        detail="Answers come from what is kept; pushed rows are taken, and visible once it runs.",
        hint="Try again in some seconds.",
    )


def _forget(gateway: Any) -> None:
    """Have PySpark forget the session of a JVM that ended, so that it can start another."""
    server = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    with suppress(Exception):
        gateway.shutdown()
    with SparkContext._lock:
        if SparkContext._gateway is not gateway:
            return
        SparkContext._active_spark_context = None
        SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = None
    if server is not None:
        with suppress(Exception):
            server.shutdown()
            server.server_close()


def quiet_logs() -> None:
    """Leave out what Py4J logs when a JVM has ended: a stack for every call under way."""
    for name in (None, "py4j.clientserver", "py4j.java_gateway"):
        logger = logging.getLogger(name)
        if _is_news not in logger.filters:
            logger.addFilter(_is_news)


#: The process of the JVM that was started last.
_latest: list[Any] = []


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a record is not Py4J's about a JVM that has ended."""
    if "py4j" not in record.pathname:
        return True
    # One that has just been launched is not known here before its session is.
    process = getattr(SparkContext._gateway, "proc", None) or next(iter(_latest), None)
    if process is None:
        return True
    deadline = time.monotonic() + _DYING_SECONDS / 4
    while process.poll() is None:
        if record.exc_info is None or time.monotonic() > deadline:
            return True
        time.sleep(0.02)
    return False
