"""What brings a batch's new elements to the shards of a join: files of the store, or a shuffle?

A batch of elements (a key, a timestamp, an arrival number) is arranged in shards by its key, and
every shard ends as a sorted run in a task. *Store*: each shard's task maps the batch's segment,
mixes all keys, and takes those of its range, which is what Millpond does. *Shuffle*: tasks map the
segment, a share each, give the rows to Spark, Spark's shuffle brings them to their shards, and the
tasks there get them as Arrow batches. Both find the same runs, which is checked.

    python benchmarks/bringing_probes.py [--rows 1000000] [--repeats 5]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from _harness import median_seconds, picture, show
from millpond.engine.joins.arrangement import SortedRun, build
from millpond.engine.joins.keys import mix_numbers
from millpond.service.open_pond import open_pond
from millpond.state.arrow_file import open_arrow, write_arrow

KEYS = 20_000
COLUMNS = "k long, __ts long, __seq long"


def arranged(table: pa.Table, shard: tuple[int, int]) -> SortedRun:
    """The run of a shard."""
    keys = mix_numbers(table["k"].to_numpy())
    return build(keys, np.ascontiguousarray(table["__ts"].to_numpy()), None, shard)


def facts(run: SortedRun) -> tuple[int, int]:
    """What the runs of both ways are compared by."""
    return len(run.keys), int(np.bitwise_xor.reduce(run.keys)) if len(run.keys) else 0


def by_store(spark: SparkSession, path: Path, checksum: str, shards: int) -> list[tuple[int, int]]:
    """Every shard's task reads the segment."""

    def task(number: int) -> tuple[int, int]:
        return facts(arranged(open_arrow(path, checksum), (number, shards)))

    return spark.sparkContext.parallelize(range(shards), shards).map(task).collect()


def by_shuffle(
    spark: SparkSession, path: Path, checksum: str, shards: int, rows: int, tasks: int
) -> list[tuple[int, int]]:
    """The segment's rows are shuffled to the shards."""

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        share = -(-rows // tasks)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from open_arrow(path, checksum).slice(number * share, share).to_batches(65536)

    def arrange(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        run = arranged(pa.Table.from_batches(found), (0, 1)) if found else None
        count, check = facts(run) if run is not None else (0, 0)
        yield pa.record_batch({"n": [count], "check": pa.array([check], pa.uint64()).view("int64")})

    frame = spark.range(tasks, numPartitions=tasks).mapInArrow(read, COLUMNS)
    runs = frame.repartition(shards, "k").mapInArrow(arrange, "n long, check long")
    return [(row.n, row.check % 2**64) for row in runs.collect()]


def same(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> bool:
    """Whether both brought every element once; Spark's shards are other ranges of keys."""

    def whole(runs: list[tuple[int, int]]) -> tuple[int, int]:
        checks = [check for _, check in runs]
        return sum(n for n, _ in runs), int(np.bitwise_xor.reduce(np.array(checks, np.uint64)))

    return whole(one) == whole(other)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    chance = np.random.default_rng(3)
    table = pa.table(
        {
            "k": chance.integers(0, KEYS, options.rows),
            "__ts": np.arange(options.rows, dtype=np.int64),
            "__seq": np.arange(options.rows, dtype=np.int64),
        }
    )
    base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    rows = []
    with open_pond(base / "store", bounded=True):
        spark = SparkSession.getActiveSession()
        assert spark is not None
        tasks = spark.sparkContext.defaultParallelism
        file = write_arrow(base / "segment.arrow", table)
        for shards in (1, 2, 4, 8, 16):
            given = spark, base / "segment.arrow", file.checksum, shards
            ways: list[Callable[[], object]] = [
                partial(by_store, *given),
                partial(by_shuffle, *given, options.rows, tasks),
            ]
            assert same(by_store(*given), by_shuffle(*given, options.rows, tasks))
            rows.append([shards, *(median_seconds(way, options.repeats) * 1e3 for way in ways)])
    show(
        f"Bringing {options.rows:,} new elements to their shards, on {tasks} cores",
        ["shards", "from the store, ms", "by Spark's shuffle, ms"],
        rows,
    )
    counts = [row[0] for row in rows]
    lines = {
        name: (counts, [row[i] for row in rows])
        for i, name in enumerate(("from the store", "by Spark's shuffle"), 1)
    }
    picture("bringing_probes", "Bringing new elements to their shards", "shards", "ms", lines)


if __name__ == "__main__":
    main()
