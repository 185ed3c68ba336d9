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
import sys
from pathlib import Path

from millpond.runtime.spark.prepared_daemon import hand_over, take_over
from millpond.runtime.spark.worker_memory import worker_memory


def limit_memory(most: int) -> None:
    """Allow this process, and each that it forks, so many bytes of memory of its own.

    Files that are mapped do not count. Less stays allowed where less was allowed before.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def load_code() -> None:
    """Load the code of all tasks."""
    # In an archive, code is compiled anew by each process.
    sys.path[:] = [entry for entry in sys.path if not is_copy(entry)]

    import pyspark.worker  # noqa: F401

    import millpond.runtime.advance_task
    import millpond.runtime.join_tasks
    import millpond.runtime.spark.batches
    import millpond.state.shared.shared_store  # noqa: F401
    from millpond.model.compiled import load_kernels

    load_kernels()


def is_copy(entry: str) -> bool:
    """Whether an entry of Python's path is the archive that an installed PySpark has of itself.

    Spark puts it before everything else.
    """
    path = Path(entry)
    return path.name == "pyspark.zip" and (path.parents[2] / "__init__.py").is_file()


def work() -> None:
    """Fork workers as Spark asks for them, until it ends."""
    load_code()
    from pyspark.daemon import manager

    take_over()
    limit_memory(worker_memory())
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__" and not hand_over():
    work()
