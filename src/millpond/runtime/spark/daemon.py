"""The process from which Spark forks its Python workers, with the code of all tasks loaded.

A worker of Spark's own daemon takes most of a second to load this code, and a worker's first batch
(at the start, or after a minute without batches) waits for that. Loading it here also saves time
after every task: Spark then collects the worker's garbage, and the collector does not look through
objects that were loaded here.

INV-DAEMON-1: modules are loaded and no function is called: an open database, or threads that work
    is handed to, would not survive the fork.
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
