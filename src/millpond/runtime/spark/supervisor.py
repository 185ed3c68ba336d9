"""The supervisor: notices that a streaming query ended, reports why, and starts it again.

A stream whose query failed has stopped, and its status gives the reason. The stream resumes when
its query has completed a batch again (or has found that there is nothing to read). Waits between
attempts grow, so that a source that stays away costs little.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql.streaming.query import StreamingQuery

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.runtime.protocol import Pipeline
from millpond.runtime.spark.jvm.worker_errors import find_own_error

log = logging.getLogger("millpond.spark")

_RETRY_SECONDS = (1, 2, 5, 15, 60)
_LOOK_SECONDS = 0.25
#: What Spark says of a query that has looked for new data and found none, and how its word begins
#: for one that looks.
_NOTHING_NEW, _LOOKS = "Waiting for data to arrive", "Getting offsets"
#: Whoever waits again so many seconds later has looked meanwhile. Spark does after a tenth of a
#: second, or later on a machine that has much to do.
_SURELY_LOOKED = 0.5
#: How long a source waits that was being read when Spark ended, by how often in a row that was. So
#: a file that takes all memory does not end Spark so often that it is given up.
_SUSPECT_SECONDS = (0, 0, 150, 300, 600)
#: How many sources begin at a time. One in Python is a process of its own, and Spark gives that ten
#: seconds to be there: if twenty begin at once, they take each other's time, and fail.
_MOST_BEGIN = max(2, os.cpu_count() or 1)
#: How Spark's word for a query begins that has not looked at its source yet, and after how many
#: seconds of that the others do not wait for it any more.
_BEGINS, _BEGIN_SECONDS = "Initializing", 15.0
_TURN_SECONDS = 0.05


class SupervisedQuery:
    """A source's streaming query and what is needed to start it again.

    Attributes:
        stream: The stream whose source the query reads; None for the inbox.
        start: Starts the query, from the end of the last committed batch.
        explain: Turns an exception of the query, or of `start`, into an error for people.
        absent: Says why the source is not there; None if it is there. Spark itself does not notice
            that a directory has gone.
        worn: Whether to replace a running query by a new one.
        is_done: Whether the source was read to its end, so that the query is not needed any more.
        error: Why the query is stopped; None while it runs.
        reading: Whether a batch is being read, or was when the query failed.
        ends: How often in a row Spark ended while a batch was being read.
        started_at: When the query was started last, by `time.monotonic`.
        waits: When the query was seen to have nothing new to read, by `time.monotonic`, since it
            was seen to read.
    """

    def __init__(
        self,
        stream: StreamDef | None,
        start: Callable[[], StreamingQuery],
        explain: Callable[[Exception], Exception] = lambda error: error,
        absent: Callable[[], Exception | None] = lambda: None,
        worn: Callable[[], bool] = lambda: False,
        is_done: Callable[[], bool] = lambda: False,
    ) -> None:
        self.is_done = is_done
        self.stream = stream
        self.start = start
        self.explain = explain
        self.absent = absent
        self.worn = worn
        self.query: StreamingQuery | None = None
        self.failures = 0
        self.retry_at: float | None = None
        self.away = False
        self.error: Exception | None = None
        self.reading = False
        self.ends = 0
        self.started_at = 0.0
        self.waits: deque[float] = deque()

    def begin(self) -> None:
        """Start the query."""
        self.started_at = time.monotonic()
        self.waits.clear()
        self.query = self.start()

    @property
    def begins(self) -> bool:
        """Whether a source's query was started just now, and Spark still opens the source."""
        query = self.query
        if (
            query is None
            or self.stream is None
            or time.monotonic() > self.started_at + _BEGIN_SECONDS
        ):
            return False
        try:
            return str(query._jsq.status().message()).startswith(_BEGINS)
        except Exception:  # the JVM is gone
            return False

    def stop(self) -> None:
        """End the query; a batch on its way is finished or fails."""
        if self.query is None:
            return
        try:
            self.query.stop()
        except Exception as error:  # the JVM is gone, or a batch does not end (`stopTimeout`)
            log.debug("stopping a streaming query: %s", error)


def is_alive(query: StreamingQuery) -> bool:
    """Whether the thread of a query that Spark calls active exists.

    An error while Spark handles another error ends the thread, and Spark still calls it active.
    """
    return bool(query._jsq.streamingQuery().queryExecutionThread().isAlive())


def _suspect_error(ends: int, wait: float) -> MillpondError:
    return MillpondError(
        "DATA-502",
        f"Spark ended {ends} times in a row while the source was read",
        detail=f"It may have a file that takes more memory than there is. It is read again {wait:g}"
        " seconds after Spark was started.",
        hint="Take away the files that came last, or give Spark more memory "
        "(MILLPOND_DRIVER_MEMORY).",
    )


class Supervisor:
    """The streaming queries of a runtime and the thread that looks after them."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._queries: dict[int | None, SupervisedQuery] = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._paused: MillpondError | None = None
        self._thread = threading.Thread(target=self._watch, name="spark-keeper", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._queries)

    def get(self, stream_id: int | None) -> SupervisedQuery | None:
        """Return the query of a stream, or (None) of the inbox; never wait."""
        return self._queries.get(stream_id)

    def keep(self, kept: SupervisedQuery, patient: bool = True) -> None:
        """Start a query and keep it running; it replaces its stream's earlier query.

        Args:
            kept: The query.
            patient: Whether to try again later if the query cannot be started now.

        Raises:
            Exception: what `kept.start` raised, unless `patient`.
        """
        key = kept.stream.id if kept.stream is not None else None
        if kept.stream is not None:
            self._await_turn()
        with self._lock:
            if self._stopping.is_set():
                return
            before = self._queries.pop(key, None)
            if before is not None:
                before.stop()
            try:
                if self._paused is None:
                    kept.begin()
                elif patient:
                    self._report_stopped(kept, self._paused)
                else:
                    raise self._paused
            except Exception as error:
                if not patient:
                    raise
                self._handle_failure(kept, error)
            self._queries[key] = kept

    def drop(self, stream_id: int) -> None:
        """Stop a stream's query for good."""
        with self._lock:
            kept = self._queries.pop(stream_id, None)
            if kept is not None:
                kept.stop()
        self._pipeline.report_resumed(stream_id)

    @contextmanager
    def reading(self, stream_id: int) -> Iterator[None]:
        """A batch of a stream is read in the block."""
        kept = self._queries.get(stream_id)
        if kept is not None:
            kept.reading = True
        yield
        if kept is not None:  # if it failed, `pause` or the look at its query finds that
            kept.reading, kept.ends = False, 0

    def pause(self, reason: MillpondError) -> None:
        """Spark has ended, and all its queries with it, or starts; `resume` starts them again."""
        self._paused = reason
        with self._lock:
            for kept in self._queries.values():
                kept.query, kept.retry_at = None, None
                kept.ends += kept.reading
                kept.reading = False
                self._report_stopped(kept, reason)

    def resume(self) -> None:
        """Start all queries again, on the Spark that runs now; many by and by, suspects later."""
        with self._lock:
            for kept in self._queries.values():
                kept.failures = 0
                if wait := _SUSPECT_SECONDS[min(kept.ends, len(_SUSPECT_SECONDS) - 1)]:
                    kept.failures, kept.retry_at = 1, time.monotonic() + wait
                    self._report_stopped(kept, _suspect_error(kept.ends, wait))
                    continue
                if kept.stream is None or self._has_turn():
                    self._begin(kept)
                else:
                    kept.retry_at = time.monotonic()
            self._paused = None

    def _begin(self, kept: SupervisedQuery) -> None:
        """Start a query; if it cannot be started, it is tried again later."""
        try:
            kept.begin()
        except Exception as error:
            self._handle_failure(kept, error)
        else:
            if not kept.failures:
                self._report_resumed(kept)

    def _has_turn(self) -> bool:
        """Whether another query may begin."""
        return sum(kept.begins for kept in list(self._queries.values())) < _MOST_BEGIN

    def _await_turn(self) -> None:
        """Wait until another query may begin."""
        end = time.monotonic() + _BEGIN_SECONDS
        while not self._has_turn() and time.monotonic() < end:
            if self._stopping.wait(_TURN_SECONDS):
                return

    def await_begin(self, kept: SupervisedQuery) -> None:
        """Wait until a query was started, unless it has failed or Spark is away."""
        while kept.query is None and not (kept.failures or self._paused):
            is_dropped = kept not in list(self._queries.values())
            if is_dropped or self._stopping.wait(_TURN_SECONDS):
                return

    def inbox_trouble(self) -> MillpondError | None:
        """Why pushed rows do not become visible; None while they do."""
        kept, paused = self._queries.get(None), self._paused
        if kept is None or paused is not None or kept.error is None:
            return paused
        return MillpondError(
            "POND-406",
            "pushed rows do not become visible",
            detail=str(kept.error).split("\n", 1)[0][:400],
            hint="What was acknowledged is kept and comes once the cause is gone.",
        )

    def stop(self) -> None:
        """Stop all queries."""
        self._stopping.set()
        self._thread.join(timeout=10)
        with self._lock:
            for kept in self._queries.values():
                kept.stop()
            self._queries.clear()

    def _watch(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            with self._lock:
                keys = list(self._queries)
            for key in keys:
                with self._lock:
                    kept = self._queries.get(key)
                    if kept is None or self._paused is not None or self._stopping.is_set():
                        continue
                    try:
                        self._check(kept)
                    except Exception as error:
                        log.debug("looking after a streaming query: %s", error)

    def _check(self, kept: SupervisedQuery) -> None:
        query = kept.query
        if kept.is_done() and kept.stream is not None:
            self.drop(kept.stream.id)
            return
        if query is not None and query.isActive:
            if not is_alive(query):
                kept.stop()
                self._handle_failure(kept, RuntimeError("the thread of the streaming query died"))
                return
            if kept.worn():
                kept.stop()
                kept.begin()
            self._check_source(kept)
            self._report_read(kept)
            # Spark reports progress after a batch, and after ten seconds without one.
            if kept.failures and not kept.away and query.lastProgress is not None:
                kept.failures = 0
                self._report_resumed(kept)
            return
        if kept.retry_at is None:
            error = query.exception() if query is not None else None
            self._handle_failure(kept, error or RuntimeError("the streaming query ended"))
        elif time.monotonic() >= kept.retry_at and self._has_turn():
            kept.retry_at = None
            self._begin(kept)

    def _report_read(self, kept: SupervisedQuery) -> None:
        """Note up to when a source was read, for a stream whose clock goes on meanwhile.

        A query that waits, and waits again long enough after, has looked in between. All that was
        there when it waited first was found then, and read.
        """
        if kept.query is None or kept.stream is None or kept.away:
            kept.waits.clear()
            return
        if not self._pipeline.counts_idle(kept.stream.id):
            return
        at = time.monotonic()
        message = str(kept.query._jsq.status().message())
        if message.startswith(_LOOKS):
            return
        if message != _NOTHING_NEW:
            kept.waits.clear()
            return
        kept.waits.append(at)
        read = None
        while kept.waits[0] <= at - _SURELY_LOOKED:
            read = kept.waits.popleft()
        if read is not None:
            self._pipeline.report_read(kept.stream.id, at - read)

    def _check_source(self, kept: SupervisedQuery) -> None:
        """Notice a source that went away, or came back, under a query that still runs."""
        absence = kept.absent()
        if absence is not None and not kept.away:
            self._report_stopped(kept, absence)
        elif absence is None and kept.away and not kept.failures:
            self._report_resumed(kept)
        kept.away = absence is not None

    def _handle_failure(self, kept: SupervisedQuery, error: Exception) -> None:
        kept.reading = False
        wait = _RETRY_SECONDS[min(kept.failures, len(_RETRY_SECONDS) - 1)]
        kept.failures += 1
        kept.retry_at = time.monotonic() + wait
        reason = kept.absent() or kept.explain(find_own_error(error) or error)
        self._report_stopped(kept, reason)
        stream = None if kept.stream is None else kept.stream.name
        log.warning(
            "%s stopped and is started again in %s s: %s",
            "the inbox" if stream is None else "its source",
            wait,
            reason,
            extra={"stream": stream},
        )

    def _report_stopped(self, kept: SupervisedQuery, reason: Exception) -> None:
        kept.error = reason
        if kept.stream is not None:
            self._pipeline.report_stopped(kept.stream.id, reason)

    def _report_resumed(self, kept: SupervisedQuery) -> None:
        kept.error = None
        if kept.stream is not None:
            self._pipeline.report_resumed(kept.stream.id)
