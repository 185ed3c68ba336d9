"""The process Spark forks its Python workers from, with all that a task needs already loaded.

Loading it takes a worker of Spark's own daemon most of a second, and the batch that is a worker's
first, at the start or after a minute without any, waits for that. It also counts after every task,
whose garbage Spark collects before the worker takes the next: what was loaded here is not looked
through again.

INV-DAEMON-1: modules are loaded and nothing is called: a database that is open, or threads that
    work is handed to, would not survive the fork.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

import millpond.runtime.advance_task
import millpond.runtime.join_tasks
import millpond.runtime.spark.batches  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
