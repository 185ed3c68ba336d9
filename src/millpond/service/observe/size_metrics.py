"""Metrics of sizes: the store's files by kind, and the memory of the processes by kind."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from prometheus_client.core import GaugeMetricFamily, Metric

from millpond.runtime.process_memory import measure_memory
from millpond.service.components import Components

#: How long sizes of files hold, in seconds: a store may have very many files.
_FILES_SECONDS = 30.0


class SizeMetrics:
    """The gauges of sizes; safe to use from any thread."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._lock = threading.Lock()
        self._files: dict[str, int] = {}
        self._looked_at = -_FILES_SECONDS

    def collect(self) -> Iterator[Metric]:
        """The gauges, as of now; of files, as of the last half minute."""
        disk = GaugeMetricFamily(
            "millpond_disk_bytes",
            "Bytes of the store's files, by its directories; `database` is the rest",
            labels=["kind"],
        )
        for kind, size in sorted(self._measure_files().items()):
            disk.add_metric([kind], size)
        memory = GaugeMetricFamily(
            "millpond_memory_bytes",
            "Resident memory of `process`, `jvm` (the driver's) and `workers` (Spark's, of this"
            " machine); and of the process, what `operators`, `kept_answers` and `arrow` take",
            labels=["kind"],
        )
        runtime = self._components.runtime.measure_memory()
        for kind, size in {**self._measure_process(), **runtime.resident}.items():
            memory.add_metric([kind], size)
        used, most = (
            GaugeMetricFamily(
                "millpond_jvm_heap_bytes", "Used heap of the driver's JVM, some seconds ago"
            ),
            GaugeMetricFamily(
                "millpond_jvm_heap_limit_bytes", "The most heap that the driver's JVM may have"
            ),
        )
        if runtime.heap is not None:
            used.add_metric([], runtime.heap[0])
            most.add_metric([], runtime.heap[1])
        yield from (disk, memory, used, most)

    def _measure_files(self) -> dict[str, int]:
        with self._lock:
            if time.monotonic() - self._looked_at >= _FILES_SECONDS:
                self._files = measure_files(self._components.store_directory)
                self._looked_at = time.monotonic()
            return self._files

    def _measure_process(self) -> dict[str, int]:
        components = self._components
        operators = components.advancer.accounts.list_operators(components.log.version)
        kept = components.invoker.kept_answers
        tables = [kept.of(id).table for id in kept.ids()]
        return {
            "process": measure_memory(),
            "operators": sum(operator.state.memory for operator in operators),
            "kept_answers": sum(table.nbytes for table in tables if table is not None),
            "arrow": pa.total_allocated_bytes(),
        }


def measure_files(directory: Path) -> dict[str, int]:
    """The bytes of a store's files, by the directory they are in; `database` is what is in none."""
    sizes: defaultdict[str, int] = defaultdict(int)
    waiting = [("database", str(directory))]
    while waiting:
        kind, path = waiting.pop()
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    is_top = path == str(directory)
                    waiting.append((entry.name if is_top else kind, entry.path))
                else:
                    with suppress(OSError):  # it has gone meanwhile
                        sizes[kind] += entry.stat(follow_symlinks=False).st_size
    return dict(sizes)
