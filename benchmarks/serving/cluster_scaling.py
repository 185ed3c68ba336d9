"""What a cluster of 1, 2 and 4 executors costs and gives, and what only the driver does.

A store in a shared directory (or, with `--s3`, in an object store on loopback), Spark's master, and
workers of one core each, all on this machine; beside it the same without a cluster. Range queries
are registered, Parquet files read to the end in epochs, single rows pushed, single queries
registered; all elements are looked at once by a query whose matches are not kept. Seconds of the
processor say who works; on a machine with fewer cores than executors the time does not. A few
answers are compared with DuckDB.

From the driver's seconds an epoch and the executors' seconds a million elements follows what more
machines could give: the elements a second at which the driver has no more time.

    python benchmarks/serving/cluster_scaling.py [--executors 0,1,2,4] [--rows 4000000] [--s3]
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from _harness import console, processor_seconds, show
from matching import check
from millpond.demo.cluster import Cluster
from millpond.service.open_pond import open_pond
from workloads.interests import STREAM, texts, write_elements

#: How many files make an epoch, pushes and registrations that are timed.
FILES = 8
SINGLE = 40
#: A query that every element matches, by a predicate that no index serves.
SCAN = "SELECT count(*) AS n, sum(a) AS total FROM s WHERE a + b >= 0 AND c % 7 < 7"


def run(executors: int, files: Path, directory: Path, options: argparse.Namespace) -> list[Any]:
    """A row of the table, of a cluster with so many executors; 0 for none."""
    if not executors:
        return measure(executors, files, directory / "store", options, {})
    cluster = Cluster(directory)
    try:
        if options.s3:
            cluster.start_object_store()
            assert cluster.is_object_store, "there is no moto_server; see `make cluster`"
        cluster.start_spark(executors)
        os.environ.update(cluster.environment)
        given = {"shared": cluster.place, "master": cluster.master}
        workers = [worker.pid for worker in cluster.workers]
        return measure(executors, files, directory / "store", options, given, workers)
    finally:
        cluster.close()


def measure(
    executors: int,
    files: Path,
    store: Path,
    options: argparse.Namespace,
    given: dict[str, Any],
    workers: list[int] | None = None,
) -> list[Any]:
    def used() -> tuple[float, float]:
        """Seconds of the processor of the driver with its JVM, and of the workers."""
        away = sum(map(processor_seconds, workers or []))
        return processor_seconds(os.getpid()) - away, away

    with open_pond(store, bounded=True, **given) as pond:
        # Warm: the workers of Python, compiled kernels.
        pond.execute(STREAM.format(name="warm", path=files, files=FILES))
        pond.register_many([(text, None, {}) for text in texts(options.queries, "warm")])
        pond._components.sources.read_to_end()
        pond.execute(STREAM.format(name="s", path=files, files=FILES))
        pond.register_many([(text, None, {}) for text in texts(options.queries, "s")])
        epochs, (driver, away), begun = pond.status()["epoch"], used(), time.perf_counter()
        pond._components.sources.read_to_end()
        took = time.perf_counter() - begun
        epochs = pond.status()["epoch"] - epochs
        driver, away = (now - before for now, before in zip(used(), (driver, away), strict=True))
        check(pond, files, options.queries)
        scans = [scan(pond, spread, options) for spread in (False, True)]
        pond.execute("CREATE STREAM p (n BIGINT)")
        pushes, registrations = [], []
        for number in range(SINGLE):
            begun = time.perf_counter()
            pond.ingest("p", [{"n": number}])
            pushes.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            pond.register(f"SELECT n FROM p WHERE n > {number}")
            registrations.append(time.perf_counter() - begun)
        pond.catch_up(timeout=600)
    million = options.rows / 1e6
    return [
        executors or "none",
        options.rows / took,
        epochs,
        driver / epochs * 1e3,
        driver / million,
        away / million if executors else None,
        sorted(pushes)[SINGLE // 2] * 1e3,
        sorted(registrations)[SINGLE // 2] * 1e3,
        *scans,
    ]


def scan(pond: Any, spread: bool, options: argparse.Namespace) -> float | None:
    """Milliseconds of a scan of all elements, in the driver or by executors, the second time."""
    scans = pond._components.invoker.scans
    if spread and not pond._components.runtime.spreads:
        return None
    scans.least_rows = 1 if spread else sys.maxsize
    for _ in range(2):
        begun, before = time.perf_counter(), scans.count
        [row] = pond.ask(SCAN).table.to_pylist()
        assert row["n"] == options.rows, row
        assert scans.count - before == spread
    return (time.perf_counter() - begun) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executors", default="0,1,2,4")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--s3", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as base:
        files = Path(base) / "elements"
        write_elements(files, options.rows, 5 * FILES)
        for executors in map(int, options.executors.split(",")):
            directory = Path(base) / f"of-{executors}"
            directory.mkdir()
            # A process of its own each: a JVM has one cluster.
            with mp.get_context("spawn").Pool(1) as pool:
                rows.append(pool.apply(run, (executors, files, directory, options)))
            console.print(rows[-1])
    place = "an object store" if options.s3 else "a directory"
    show(
        f"A cluster, shared in {place}, {options.queries:,} queries",
        (
            "executors",
            "elements/s",
            "epochs",
            "driver, processor ms an epoch",
            "driver, processor s a million",
            "executors, processor s a million",
            "push, ms",
            "registration, ms",
            "scan in the driver, ms",
            "scan by executors, ms",
        ),
        rows,
    )


if __name__ == "__main__":
    main()
