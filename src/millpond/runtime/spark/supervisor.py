"""The supervisor: notices that a streaming query ended, reports why, and starts it again.

A stream whose query failed has stopped, and its status gives the reason. The stream resumes when
its query has completed a batch again (or has found that there is nothing to read). Waits between
attempts grow, so that a source that stays away costs little.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

from millpond.catalog.objects import StreamDef
from millpond.runtime.protocol import Pipeline

log = logging.getLogger("millpond.spark")

_RETRY_SECONDS = (1, 2, 5, 15, 60)
_LOOK_SECONDS = 0.25


class SupervisedQuery:
    """A source's streaming query and what is needed to start it again.

    Attributes:
        stream: The stream whose source the query reads; None for the inbox.
        start: Starts the query, from the end of the last committed batch.
        explain: Turns an exception of the query, or of `start`, into an error for people.
        absent: Says why the source is not there; None if it is there. Spark itself does not notice
            that a directory has gone.
        worn: Whether to replace a running query by a new one.
    """

    def __init__(
        self,
        stream: StreamDef | None,
        start: Callable[[], StreamingQuery],
        explain: Callable[[Exception], Exception] = lambda error: error,
        absent: Callable[[], Exception | None] = lambda: None,
        worn: Callable[[], bool] = lambda: False,
    ) -> None:
        self.stream = stream
        self.start = start
        self.explain = explain
        self.absent = absent
        self.worn = worn
        self.query: StreamingQuery | None = None
        self.failures = 0
        self.retry_at: float | None = None
        self.away = False

    def stop(self) -> None:
        """End the query; a batch on its way is finished or fails."""
        if self.query is None:
            return
        try:
            self.query.stop()
        except Exception as error:  # the JVM may be gone already
            log.debug("stopping a streaming query: %s", error)


def is_alive(query: StreamingQuery) -> bool:
    """Whether the thread of a query that Spark calls active exists.

    An error while Spark handles another error ends the thread, and Spark still calls it active.
    """
    return bool(query._jsq.streamingQuery().queryExecutionThread().isAlive())


class Supervisor:
    """The streaming queries of a runtime and the thread that looks after them."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._queries: dict[int | None, SupervisedQuery] = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="spark-keeper", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._queries)

    def get(self, stream_id: int | None) -> SupervisedQuery | None:
        """Return the query of a stream, or (None) of the inbox; never wait."""
        return self._queries.get(stream_id)

    def keep(self, supervised: SupervisedQuery, patient: bool = True) -> None:
        """Start a query and keep it running; it replaces its stream's earlier query.

        Args:
            supervised: The query.
            patient: Whether to try again later if the query cannot be started now.

        Raises:
            Exception: what `supervised.start` raised, unless `patient`.
        """
        key = supervised.stream.id if supervised.stream is not None else None
        with self._lock:
            if self._stopping.is_set():
                return
            before = self._queries.pop(key, None)
            if before is not None:
                before.stop()
            try:
                supervised.query = supervised.start()
            except Exception as error:
                if not patient:
                    raise
                self._handle_failure(supervised, error)
            self._queries[key] = supervised

    def drop(self, stream_id: int) -> None:
        """Stop a stream's query for good."""
        with self._lock:
            supervised = self._queries.pop(stream_id, None)
            if supervised is not None:
                supervised.stop()
        self._pipeline.report_resumed(stream_id)

    def stop(self) -> None:
        """Stop all queries."""
        self._stopping.set()
        self._thread.join(timeout=10)
        with self._lock:
            for supervised in self._queries.values():
                supervised.stop()
            self._queries.clear()

    def _watch(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            with self._lock:
                keys = list(self._queries)
            for key in keys:
                with self._lock:
                    supervised = self._queries.get(key)
                    if supervised is None or self._stopping.is_set():
                        continue
                    try:
                        self._check(supervised)
                    except Exception as error:
                        log.debug("looking after a streaming query: %s", error)

    def _check(self, supervised: SupervisedQuery) -> None:
        query = supervised.query
        if query is not None and query.isActive:
            if not is_alive(query):
                supervised.stop()
                self._handle_failure(
                    supervised, RuntimeError("the thread of the streaming query died")
                )
                return
            if supervised.worn():
                supervised.stop()
                supervised.query = supervised.start()
            self._check_source(supervised)
            # Spark reports progress after a batch, and after ten seconds without one.
            if supervised.failures and not supervised.away and query.lastProgress is not None:
                supervised.failures = 0
                self._report_resumed(supervised)
            return
        if supervised.retry_at is None:
            error = query.exception() if query is not None else None
            self._handle_failure(supervised, error or RuntimeError("the streaming query ended"))
        elif time.monotonic() >= supervised.retry_at:
            supervised.retry_at = None
            try:
                supervised.query = supervised.start()
            except Exception as error:
                self._handle_failure(supervised, error)

    def _check_source(self, supervised: SupervisedQuery) -> None:
        """Notice a source that went away, or came back, under a query that still runs."""
        absence = supervised.absent()
        if absence is not None and not supervised.away:
            self._report_stopped(supervised, absence)
        elif absence is None and supervised.away and not supervised.failures:
            self._report_resumed(supervised)
        supervised.away = absence is not None

    def _handle_failure(self, supervised: SupervisedQuery, error: Exception) -> None:
        wait = _RETRY_SECONDS[min(supervised.failures, len(_RETRY_SECONDS) - 1)]
        supervised.failures += 1
        supervised.retry_at = time.monotonic() + wait
        reason = supervised.absent() or supervised.explain(error)
        self._report_stopped(supervised, reason)
        name = (
            f'stream "{supervised.stream.name}"' if supervised.stream is not None else "the inbox"
        )
        log.warning("%s stopped and is started again in %s s: %s", name, wait, reason)

    def _report_stopped(self, supervised: SupervisedQuery, reason: Exception) -> None:
        if supervised.stream is not None:
            self._pipeline.report_stopped(supervised.stream.id, reason)

    def _report_resumed(self, supervised: SupervisedQuery) -> None:
        if supervised.stream is not None:
            self._pipeline.report_resumed(supervised.stream.id)
