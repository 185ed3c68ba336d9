"""How many elements a second join with another stream's, 20 matches each, end to end, pairs kept?

Two streams of elements with a key and a timestamp a millisecond apart; an element joins those of
the other stream with its key that are at most 100 seconds away, so that each finds 20 partners
among those before it. Read from Parquet files through Spark, answered from what is stored. Beside
it, in the same run: Spark's stream-stream join over the same files, a file of each a batch (with
all in one batch it takes half as long again) and warmed up like Millpond; DuckDB's join of the
whole files (both only count); and Flink's interval join, whose elements are generated in it and
whose results are thrown away. Then the same join by 100 queries that select differently, beside one
statement set of Flink's and DuckDB query by query (Spark would run a hundred jobs). Then: what
joining one batch costs as more and more elements are kept.

    python benchmarks/window_join.py [--rows 1000000] [--repeats 5]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from _harness import console, picture, seconds, show
from millpond.engine.joins.join_stem import StemPart
from millpond.engine.joins.plan import JoinPlan, Link, Operand, Value
from millpond.runtime import join_tasks
from millpond.runtime.join_segments import SegmentPart, write_run
from millpond.runtime.join_tasks import ProbeJob
from millpond.service.open_pond import open_pond
from millpond.service.pond import Pond
from millpond.state.arrow_file import write_arrow
from millpond.state.store import new_path
from peers import flink

#: Distinct keys, and how far apart elements may be: 20 partners among those before.
KEYS = 5_000
SECONDS = 20 * KEYS // 1_000
START = 1_700_000_000_000_000

STREAM = (
    "CREATE STREAM {name} (id BIGINT, ts TIMESTAMP, k INTEGER) TIMESTAMP BY ts"
    " USING parquet OPTIONS (path '{path}', maxFilesPerTrigger '1000')"
)
NEAR = f"r.ts BETWEEN l.ts - INTERVAL {SECONDS} SECONDS AND l.ts + INTERVAL {SECONDS} SECONDS"
ON = f"l.k = r.k AND {NEAR}"
#: Bounded, so that every invocation is of a window and the pairs of all of them are stored.
QUERY = f"SELECT l.id AS a, r.id AS b FROM l, r WHERE {ON}"


#: Of 100 queries each selects a twentieth of one stream's keys.
SELECTED = KEYS // 20


def selecting(number: int) -> str:
    """The n-th query's own factor."""
    low = number * 997 % (KEYS - SELECTED)
    return f" AND l.k BETWEEN {low} AND {low + SELECTED - 1}"


def elements(first: int, count: int, chance: np.random.Generator) -> pa.Table:
    """Elements a millisecond apart."""
    ids = np.arange(first, first + count)
    return pa.table(
        {
            "id": ids,
            "ts": pa.array(START + 1_000 * ids, pa.timestamp("us")),
            "k": chance.integers(0, KEYS, count).astype(np.int32),
        }
    )


def write_elements(directory: Path, rows: int, files: int, seed: int) -> None:
    """Parquet files of consecutive times."""
    chance = np.random.default_rng(seed)
    directory.mkdir(parents=True)
    for number in range(files):
        own = elements(number * rows // files, rows // files, chance)
        pq.write_table(own, directory / f"part-{number:04d}.parquet")


def through_millpond(base: Path, rows: int) -> tuple[float, float, int]:
    """(elements a second, pairs an element, bytes kept) with a pond of its own."""
    from pyspark.sql import SparkSession

    store = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    try:
        with open_pond(store, bounded=True, spark=SparkSession.getActiveSession()) as pond:
            for name in "lr":
                pond.execute(STREAM.format(name=name, path=base / name))
            pond.register(QUERY, "q")

            def work() -> None:
                pond._components.sources.read_to_end()
                pond.wait_until_matched()

            took = seconds(work)
            pairs = stored(pond)
            check(pond, base, pairs)
            kept = sum(f.stat().st_size for f in (store / "pairs").iterdir())
            return 2 * rows / took, pairs / (2 * rows), kept
    finally:
        shutil.rmtree(store, ignore_errors=True)


def through_millpond_selecting(base: Path, rows: int, queries: int) -> float:
    """Elements a second through one join that many queries share, each with its selection."""
    from pyspark.sql import SparkSession

    store = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    try:
        with open_pond(store, bounded=True, spark=SparkSession.getActiveSession()) as pond:
            for name in "lr":
                pond.execute(STREAM.format(name=name, path=base / name))
            pond.register_many([(QUERY + selecting(n), f"q{n}", {}) for n in range(queries)])

            def work() -> None:
                pond._components.sources.read_to_end()
                pond.wait_until_matched()

            took = seconds(work)
            tables = f"'{base}/l/*.parquet' l, '{base}/r/*.parquet' r"
            for number in (0, queries - 1):
                sql = f"SELECT count(*) FROM {tables} WHERE {ON}{selecting(number)}"
                counting = QUERY.replace("l.id AS a, r.id AS b", "count(*)")
                answer = pond.ask(counting + selecting(number)).rows()
                assert answer == duckdb.sql(sql).fetchall()
            return 2 * rows / took
    finally:
        shutil.rmtree(store, ignore_errors=True)


def stored(pond: Pond) -> int:
    joins = pond._components.log.version.joins
    (core,) = joins.cores.values()
    return sum(file.pairs for file in joins.pairs(core.id))


def check(pond: Pond, base: Path, pairs: int) -> None:
    """All pairs by their number, and those of a stretch by their values, against DuckDB."""
    tables = f"'{base}/l/*.parquet' l, '{base}/r/*.parquet' r"
    assert duckdb.sql(f"SELECT count(*) FROM {tables} WHERE {ON}").fetchall() == [(pairs,)]
    some = " AND l.id BETWEEN 5000 AND 5200"
    answer = sorted(pond.ask(QUERY + some).rows())
    sql = f"SELECT l.id, r.id FROM {tables} WHERE {ON}{some} ORDER BY ALL"
    assert answer == duckdb.sql(sql).fetchall()


def through_duckdb(base: Path, rows: int, factor: str = "") -> float:
    """Elements a second through one join of the whole files."""
    sql = f"SELECT count(*) FROM '{base}/l/*.parquet' l, '{base}/r/*.parquet' r"
    sql += f" WHERE {ON}{factor}"
    return 2 * rows / seconds(lambda: duckdb.sql(sql).fetchall())


def through_spark(base: Path, rows: int) -> float:
    """Elements a second through Spark's stream-stream join with watermarks, results dropped."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    spark = SparkSession.getActiveSession()
    assert spark is not None
    sides = {}
    for name in "lr":
        files = spark.readStream.schema("id bigint, ts timestamp, k int")
        frame = files.option("maxFilesPerTrigger", 1).parquet(str(base / name))
        frame = frame.withWatermark("ts", "1 second")
        sides[name] = frame.select(*(F.col(c).alias(f"{name}_{c}") for c in ("id", "ts", "k")))
    near = f"interval {SECONDS} seconds"
    on = F.expr(f"l_k = r_k AND r_ts BETWEEN l_ts - {near} AND l_ts + {near}")
    joined = sides["l"].join(sides["r"], on)
    checkpoint = tempfile.mkdtemp(prefix="millpond-bench-")

    def work() -> None:
        writer = joined.writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    spark.conf.set("spark.sql.shuffle.partitions", "4")
    try:
        return 2 * rows / seconds(work)
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def through_flink(queries: int = 1) -> float | None:
    """Elements a second through Flink SQL's interval joins; None where it cannot run."""
    if not flink.is_installed():
        console.print(flink.MISSING)
        return None
    try:
        few, many = (200_000, 600_000) if queries == 1 else (2_000, 20_000)
        return 2 * flink.rate("flink_window_join.py", few, many, KEYS, SECONDS, queries)
    except RuntimeError as error:
        console.print(f"Flink could not run: {error}")
        return None


def plan() -> JoinPlan:
    """The benchmark's join, as the engine sees it."""
    key = Value('"k"', "k", "integer")
    stamp = Value('"ts"', "__ts", "timestamp")
    far = SECONDS * 1_000_000
    links = (
        Link(Operand(0, key), "=", Operand(1, key)),
        Link(Operand(1, stamp), ">=", Operand(0, stamp, -far)),
        Link(Operand(1, stamp), "<=", Operand(0, stamp, far)),
    )
    return JoinPlan(("l", "r"), ("ts", "ts"), links)


def one_batch(kept: int, batch: int, segment: int) -> tuple[float, int]:
    """(seconds, pairs) of probing one batch of each stream when so many elements are kept."""
    chance = np.random.default_rng(3)
    store = tempfile.mkdtemp(prefix="millpond-bench-")
    try:
        for folder in ("segments", "runs", "pairs"):
            (Path(store) / folder).mkdir()
        leaves = []
        for _ in range(2):
            sizes = [min(segment, kept - at) for at in range(0, kept, segment)] + [batch]
            starts = np.cumsum([0, *sizes])
            leaves.append(
                tuple(
                    stored_segment(store, int(at), size, at + size <= kept, chance)
                    for at, size in zip(starts[:-1], sizes, strict=True)
                )
            )
        job = ProbeJob(
            store,
            1,
            plan(),
            0,
            1,
            tuple(leaves),
            (kept, kept),
            (kept + batch, kept + batch),
            ((0, (None, None)),),
            (None, None),
            1_000_000_000,
        )
        found = []
        took = [seconds(lambda: found.append(join_tasks.probe(job))) for _ in range(3)]
        return statistics.median(took), sum(file.file.rows for file in found[0].pairs)
    finally:
        shutil.rmtree(store, ignore_errors=True)


def stored_segment(
    store: str, first: int, count: int, is_old: bool, chance: np.random.Generator
) -> SegmentPart:
    """A segment as the pond writes it, its run beside it if it is old."""
    table = elements(first, count, chance)
    table = table.append_column("__ts", table["ts"].cast(pa.int64()))
    table = table.append_column("__seq", table["id"]).combine_chunks()
    file = write_arrow(new_path(store, "segments"), table)
    step = plan().step(frozenset([0]), 1)
    assert step is not None
    runs = []
    if is_old:
        run = write_run(store, StemPart(table).build_run(step.key))
        runs.append((step.key.text, 0, 1, f"runs/{run.path.name}", run.checksum))
    low, high = (START + 1_000 * at for at in (first, first + count - 1))
    path = f"segments/{file.path.name}"
    return SegmentPart(first, path, file.checksum, ((0, 0),), low, high, is_old, tuple(runs), ())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each stream")
    parser.add_argument("--warm-rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--most-kept", type=int, default=10_000_000)
    parser.add_argument("--selections", type=int, default=100, help="queries, each its own")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    for seed, name in enumerate("lr"):
        write_elements(base / "all" / name, options.rows, 8, seed)
        write_elements(base / "some" / name, options.warm_rows, 4, seed)
    with open_pond(base / "session"):  # starts Spark; the ponds measured share its session
        through_millpond(base / "some", options.warm_rows)  # warm
        runs = [through_millpond(base / "all", options.rows) for _ in range(options.repeats)]
        rate = statistics.median(r[0] for r in runs)
        console.print(f"Millpond: {rate:,.0f} elements/s")
        spark = duck = stream = None
        if not options.no_peers:
            through_spark(base / "some", options.warm_rows)
            spark = through_spark(base / "all", options.rows)
            duck = through_duckdb(base / "all", options.rows)
            stream = through_flink()
        many = options.selections
        shared = apart = streams = None
        if many:
            shared = through_millpond_selecting(base / "all", options.rows, many)
        if many and not options.no_peers:
            apart = through_duckdb(base / "all", options.rows, selecting(0)) / many
            streams = through_flink(many)
    show(
        "Two-stream window join",
        [
            "elements",
            "pairs an element",
            "Millpond, elements/s",
            "Spark stream-stream join, elements/s",
            "times",
            "Flink interval join, elements/s",
            "times",
            "DuckDB, whole files, elements/s",
            "bytes kept an element",
        ],
        [
            [
                2 * options.rows,
                runs[0][1],
                rate,
                spark,
                rate / spark if spark else None,
                stream,
                rate / stream if stream else None,
                duck,
                runs[0][2] / (2 * options.rows),
            ]
        ],
    )
    if shared:
        times = shared / streams if streams else None
        show(
            f"Two-stream window join, {many} selections",
            ["elements", "Millpond, elements/s", "Flink", "times", "DuckDB"],
            [[2 * options.rows, shared, streams, times, apart]],
        )
    counts = [10**e for e in range(4, 8) if 10**e <= options.most_kept]
    batch = 10_000
    rows = []
    for kept in counts:
        took, pairs = one_batch(kept, batch, 1_000_000)
        rows.append([kept, 1_000 * took, pairs / (2 * batch), 2 * batch / took])
    show(
        "Joining a batch of 10,000 elements of each stream",
        ["kept elements of each stream", "ms", "pairs an element", "elements/s, one core"],
        rows,
    )
    costs = [float(row[1]) for row in rows]
    picture(
        "window_join",
        "Joining a batch of 10,000 elements of each stream",
        "kept elements of each stream",
        "ms",
        {"Millpond, one core": ([float(c) for c in counts], costs)},
    )
    shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
