"""The Spark session that the ponds of one process share: who leaves last ends it.

PySpark has one Spark context a process, so a pond that is opened beside another one uses its
session. That one has files in the scratch directory of whoever started it, and workers by a script
in it. So scratch directories stay until nobody uses the session any more. A session that somebody
else has started is used, too, and never ended.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from millpond.errors import MillpondError

#: Held while a session starts or ends: who comes meanwhile waits for what becomes of it.
_changing = threading.Lock()
#: Of the lists below.
_lock = threading.RLock()
#: The context that Millpond has started, once for each pond that uses it.
_used: list[SparkContext] = []
#: Directories to be removed with it: of sockets, and of ponds that closed while others went on.
_left: list[Path] = []


def find_running(master: str | None, conf: Mapping[str, str]) -> SparkSession | None:
    """Find the session that runs in this process; None if there is none.

    Args:
        master: The master that is wanted, if any is.
        conf: The settings that are wanted.

    Raises:
        MillpondError: CQL-214, it has another master or other settings.
    """
    with _changing:
        context = SparkContext._active_spark_context
        process = getattr(SparkContext._gateway, "proc", None)
        if context is None or (process is not None and process.poll() is not None):
            return None  # a JVM that has ended is told of where another one is started
        has = context.getConf()
        for name, value in {**({"spark.master": master} if master else {}), **conf}.items():
            if has.get(name) != value:  # which may be secret
                raise MillpondError(
                    "CQL-214",
                    f"Spark runs in this process already, with another {name}",
                    hint="A process has one Spark. Leave this setting out to use it; or close the "
                    "ponds that use it first, or stop it if it is your own session.",
                )
        return SparkSession.builder.getOrCreate()


def start_session_of(start: Callable[[], SparkSession]) -> SparkSession:
    """Start a session of Millpond's own for a pond, which then uses it."""
    with _changing:
        session = start()
        context = session.sparkContext
        with _lock:
            # Of another context nothing runs any more.
            _used[:] = [*(one for one in _used if one is context), context]
        return session


def join_session(session: SparkSession) -> None:
    """Note that a pond uses a session that ran already."""
    with _lock:
        if session.sparkContext in _used:
            _used.append(session.sparkContext)


def is_own(session: SparkSession) -> bool:
    """Whether Millpond has started a session, and ponds use it."""
    with _lock:
        return session.sparkContext in _used


def leave_session(session: SparkSession) -> None:
    """Note that a pond does not use a session any more, and end it if it was the last one.

    A session that Millpond has not started goes on.
    """
    with _changing:
        with _lock:
            if session.sparkContext not in _used:
                return
            _used.remove(session.sparkContext)
            if _used:
                return
        try:
            session.stop()
        finally:
            _remove_left()


def forget_session(session: SparkSession) -> None:
    """Note that the JVM of a session has ended, so that nobody uses that any more."""
    with _lock:
        if session.sparkContext in _used:
            _used.clear()
            _remove_left()


def remove_later(directory: Path) -> None:
    """Note a directory that goes with Millpond's own session."""
    with _lock:
        if directory not in _left:
            _left.append(directory)


def remove_scratch(directory: Path) -> None:
    """Remove a pond's scratch directory: now, or with Millpond's own session if that goes on."""
    with _lock:
        if _used:
            remove_later(directory)
        else:
            shutil.rmtree(directory, ignore_errors=True)


def is_left(directory: Path) -> bool:
    """Whether a directory is to be removed when nobody uses the session any more."""
    with _lock:
        return directory in _left


def _remove_left() -> None:
    with _lock:
        for directory in _left:
            shutil.rmtree(directory, ignore_errors=True)
        _left.clear()
