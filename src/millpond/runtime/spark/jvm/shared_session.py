"""The Spark session that the ponds of one process share: who leaves last ends it.

PySpark has one Spark context a process, so a pond that is opened beside another one gets its
session. That one has files in the scratch directory of whoever started it, and workers by a script
in that of whoever came last. So scratch directories stay until nobody uses the session any more.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

_lock = threading.Lock()
#: The context that runs, once for each pond that uses it.
_used: list[SparkContext] = []
#: Directories to be removed then: of sockets, and of ponds that were closed while others went on.
_left: list[Path] = []


def join_session(session: SparkSession) -> None:
    """Note that a pond has begun to use a session of Millpond's own."""
    context = session.sparkContext
    with _lock:
        # Of another context nothing runs any more.
        _used[:] = [*(one for one in _used if one is context), context]


def leave_session(session: SparkSession) -> None:
    """Note that a pond does not use the session any more, and end it if no other does."""
    with _lock:
        if _used and _used[0] is session.sparkContext:
            _used.pop()
            if _used:
                return
    session.stop()


def forget_session(session: SparkSession) -> None:
    """Note that the JVM of a session has ended, so that nobody uses that any more."""
    with _lock:
        if _used and _used[0] is session.sparkContext:
            _used.clear()


def remove_later(directory: Path) -> None:
    """Note a directory that is to be removed when nobody uses the session any more."""
    with _lock:
        if directory not in _left:
            _left.append(directory)


def remove_scratch(directory: Path) -> None:
    """Remove a scratch directory, and what is to be removed, unless somebody uses the session."""
    remove_later(directory)
    with _lock:
        if _used:
            return
        for left in _left:
            shutil.rmtree(left, ignore_errors=True)
        _left.clear()


def is_left(directory: Path) -> bool:
    """Whether a directory is to be removed when nobody uses the session any more."""
    with _lock:
        return directory in _left
