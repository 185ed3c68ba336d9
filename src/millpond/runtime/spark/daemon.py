"""The process from which Spark forks its Python workers, with the code of all tasks loaded.

A worker of Spark's own daemon takes most of a second to load this code, and a worker's first batch
(at the start, or after a minute without batches) waits for that. Loading it here also saves time
after every task: Spark then collects the worker's garbage, and the collector does not look through
objects that were loaded here.

The workers' memory is limited here too: a file may unpack to any size, and a machine whose memory
is used up ends whatever it likes.

INV-DAEMON-1: modules are loaded and nothing is opened: an open database, or threads that work is
    handed to, would not survive the fork.
"""

from __future__ import annotations

import gc
import resource

from pyspark.daemon import manager

import millpond.runtime.advance_task
import millpond.runtime.join_tasks
import millpond.runtime.spark.batches
import millpond.state.shared.shared_store  # noqa: F401
from millpond.runtime.spark.worker_memory import worker_memory


def limit_memory(most: int) -> None:
    """Allow this process, and each that it forks, so many bytes of memory of its own.

    Files that are mapped do not count. Less stays allowed where less was allowed before.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


if __name__ == "__main__":
    limit_memory(worker_memory())
    gc.collect()
    gc.freeze()
    manager()
