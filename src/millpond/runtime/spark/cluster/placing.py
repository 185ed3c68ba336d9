"""Which machine of a cluster runs a task best: the one whose cache has the task's files.

Spark knows where its own blocks are, and not what lies in the caches of a shared store. But every
driver can say, without asking anybody, which machine *should* have a file: of all machines that run
tasks, the one whose hash with the file's name is the greatest (rendezvous hashing; Thaler and
Ravishankar 1998). Who reads a file is sent there, so after the first time it is there. When a
machine comes or goes, only its own share of the files moves; nothing is kept or written down.

A preference is a wish: Spark passes over a machine that is busy for as long as its locality wait.
"""

from __future__ import annotations

import pickle
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import CPickleSerializer

#: For so many seconds the list of machines is taken as it was.
_KNOWN_SECONDS = 2.0


class Machines:
    """The machines that run a session's tasks. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hosts: tuple[str, ...] = ()
        self._cores = 0
        self._known_at = -_KNOWN_SECONDS

    def prefer(self, context: SparkContext, key: str) -> str:
        """Return the machine that should have a file; "" if there is none yet."""
        return choose_machine(self._look(context)[0], key)

    def count_cores(self, context: SparkContext) -> int:
        """Return how many tasks run at a time now: executors come, and go."""
        return self._look(context)[1]

    def _look(self, context: SparkContext) -> tuple[tuple[str, ...], int]:
        with self._lock:
            now = time.monotonic()
            if now - self._known_at >= _KNOWN_SECONDS:
                self._hosts, self._cores = list_hosts(context), int(context.defaultParallelism)
                self._known_at = now
            return self._hosts, self._cores


def list_hosts(context: SparkContext) -> tuple[str, ...]:
    """List the machines that have executors, each once.

    Spark's environment knows which of them is the driver, but cannot be asked: Py4J looks at all
    methods of a class, and one of these wants a library that PySpark does not have.
    """
    executors = context._jsc.sc().statusStore().executorList(True)
    summaries = [executors.apply(number) for number in range(executors.size())]
    found = {e.hostPort().rpartition(":")[0] for e in summaries if e.id() != "driver"}
    return tuple(sorted(found))


def choose_machine(hosts: Sequence[str], key: str) -> str:
    """Return the machine whose hash with the key is the greatest; "" of none.

    >>> choose_machine((), "segments/a")
    ''
    >>> before = {key: choose_machine("abc", key) for key in map(str, range(90))}
    >>> {k for k, host in before.items() if host != "b" and choose_machine("ac", k) != host}
    set()
    """
    return max(hosts, key=lambda host: zlib.crc32(f"{host} {key}".encode()), default="")


def distribute(
    context: SparkContext, task: Callable[[Any], Any], jobs: Sequence[Any], near: Sequence[str]
) -> RDD[Any]:
    """Make the RDD of a task for every job, one a partition.

    Args:
        context: Where it runs.
        task: What workers run.
        jobs: What it is run for.
        near: The machine where each job runs best, or "" for any; empty: any for all.
    """
    if not any(near):
        return context.parallelize(list(jobs), len(jobs)).map(task)
    # `parallelize` of Python knows no preferences; this is `SparkContext.makeRDD` of Scala.
    jvm: Any = context._jvm
    seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    rows = []
    for job, host in zip(jobs, near, strict=True):
        data = bytearray(pickle.dumps(job, protocol=5))
        rows.append(jvm.scala.Tuple2(data, seq([host] if host else [])))
    tag = jvm.scala.reflect.ClassTag.AnyRef()
    made = context._jsc.sc().makeRDD(seq(rows), tag)
    return RDD(made.toJavaRDD(), context, CPickleSerializer()).map(task)
