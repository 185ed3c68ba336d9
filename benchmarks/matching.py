"""How many elements a second go through N standing range queries, end to end, answers kept?

Beside it, in the same run: what Spark needs to move the same rows to Python and do nothing (the
moving limit), Spark's broadcast range join and DuckDB's join with a table of the queries (both
only count), and Flink SQL's statement set, which throws away what it finds. Everything but Flink,
whose elements are generated in it, reads the same Parquet files.

    python benchmarks/matching.py [--rows 6000000] [--queries 1,100,1000,10000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow as pa

from _harness import console, picture, seconds, show
from millpond.service.open_pond import open_pond
from millpond.service.pond import Pond
from peers import flink
from workloads.interests import ATTRIBUTES, STREAM, ranges, texts, write_elements


def through_millpond(files: Path, rows: int, queries: int) -> tuple[float, float, int]:
    """(elements a second, matches an element, bytes kept) with a pond of its own."""
    from pyspark.sql import SparkSession

    store = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    spark = SparkSession.getActiveSession()
    try:
        with open_pond(store, bounded=True, spark=spark) as pond:
            pond.execute(STREAM.format(name="s", path=files, files=1_000))
            pond.register_many([(t, None, {}) for t in texts(queries, "s")])
            # Very many queries are laid out behind what goes on; here they stand from the start.
            stream = pond.streams()[0].id
            pond._components.stems.snapshot(pond._components.log.version, stream)
            took = seconds(lambda: read_and_match(pond))
            assert pond._components.log.version.clock(stream).next_seq == rows
            check(pond, files, queries)
            kept = sum(f.stat().st_size for f in (store / "matches").iterdir())
            return rows / took, matched(pond) / rows, kept
    finally:
        shutil.rmtree(store, ignore_errors=True)


def read_and_match(pond: Pond) -> None:
    """Read the files, and wait for what was not matched as it came, if there is any."""
    pond._components.sources.read_to_end()
    pond.wait_until_matched()


def matched(pond: Pond) -> float:
    """Pairs of element and query the pond has stored."""
    return next(
        sample.value
        for metric in pond.metrics.collect()
        for sample in metric.samples
        if sample.name == "millpond_matches_total"
    )


def check(pond: Pond, files: Path, queries: int) -> None:
    """A few answers against DuckDB over the same files."""
    found = texts(queries, "s")
    for number in {0, queries // 2, queries - 1}:
        answer = pond.ask(found[number].replace("*", "count(*), sum(a), sum(e)")).rows()
        sql = found[number].replace("*", "count(*), sum(a), sum(e)")
        sql = sql.replace("FROM s", f"FROM '{files}/*.parquet'")
        assert answer == duckdb.sql(sql).fetchall(), (answer, sql)


def moving_limit(files: Path, rows: int) -> float:
    """Elements a second when Spark hands them to Python and Python drops them."""
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    assert spark is not None

    def drop(batches):  # type: ignore[no-untyped-def]
        count = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"n": [count]})

    def work() -> None:
        frame = spark.read.parquet(str(files)).mapInArrow(drop, "n bigint")
        assert sum(r.n for r in frame.collect()) == rows

    return rows / seconds(work)


def through_spark(files: Path, rows: int, queries: int) -> float:
    """Elements a second through Spark's broadcast range join, matches only counted."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    spark = SparkSession.getActiveSession()
    assert spark is not None
    share = max(1, queries * rows // 20_000_000)  # a sample of the elements: it is slow
    frame = spark.read.parquet(str(files)).sample(1 / share, seed=1).cache()
    count = frame.count()
    bounds = ranges(queries).reshape(queries, -1).tolist()
    names = [f"{a}{end}" for a in ATTRIBUTES for end in ("0", "1")]
    table = F.broadcast(spark.createDataFrame(bounds, names))
    on = [f"{a} BETWEEN {a}0 AND {a}1" for a in ATTRIBUTES]
    took = seconds(lambda: frame.join(table, F.expr(" AND ".join(on))).count())
    frame.unpersist()
    return count / took


def through_duckdb(files: Path, rows: int, queries: int) -> float:
    """Elements a second through DuckDB's join with the queries, matches only counted."""
    sample = min(rows, max(20_000, 40_000_000 // queries))
    bounds = ranges(queries).reshape(queries, -1)
    names = [f"{a}{end}" for a in ATTRIBUTES for end in ("0", "1")]
    with duckdb.connect() as connection:
        connection.register("q", pa.table(dict(zip(names, bounds.T, strict=True))))
        connection.execute(f"CREATE TABLE s AS FROM '{files}/*.parquet' LIMIT {sample}")
        on = " AND ".join(f"s.{a} BETWEEN q.{a}0 AND q.{a}1" for a in ATTRIBUTES)
        sql = f"SELECT count(*) FROM s JOIN q ON {on}"
        return sample / seconds(lambda: connection.sql(sql).fetchall())


def through_flink(queries: int) -> float | None:
    """Elements a second through one statement set of Flink SQL; None where it cannot run."""
    if not flink.is_installed() or queries > _MOST_FLINK:
        return None
    many = {1: 24_000_000, 10: 12_000_000, 100: 3_000_000}.get(queries, 120_000)
    try:
        return flink.rate("flink_matching.py", many // 6, many, queries)
    except RuntimeError as error:
        console.print(f"Flink could not run {queries:,} queries: {error}")
        return None


#: Seconds before a run: a virtual machine gives its host the memory of the one before meanwhile.
_REST = 5.0
#: Flink makes an operator a query: a job of a thousand takes half a minute to begin.
_MOST_FLINK = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--queries", default="1,100,1000,10000")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    counts = [int(n) for n in options.queries.split(",")]
    base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    files = base / "elements"
    write_elements(files, options.rows, 8)
    with open_pond(base / "session"):  # starts Spark; the ponds measured share its session
        through_millpond(files, options.rows, 1)  # warm: workers, compiled kernels, page cache
        moving_limit(files, options.rows)
        rows = []
        for queries in counts:
            limits, runs = [], []
            for _ in range(options.repeats):  # side by side: the machine is not the same for long
                time.sleep(_REST)
                limits.append(moving_limit(files, options.rows))
                time.sleep(_REST)
                runs.append(through_millpond(files, options.rows, queries))
            limit = statistics.median(limits)
            rate = statistics.median(r[0] for r in runs)
            spark = None if options.no_peers else through_spark(files, options.rows, queries)
            duck = None if options.no_peers else through_duckdb(files, options.rows, queries)
            stream = None if options.no_peers else through_flink(queries)
            rows.append(
                [
                    queries,
                    runs[0][1],
                    rate,
                    limit,
                    rate / limit,
                    spark,
                    rate / spark if spark else None,
                    duck,
                    stream,
                    rate / stream if stream else None,
                    runs[0][2] / options.rows,
                ]
            )
            console.print(f"{queries:,} queries: {rate:,.0f} elements/s")
    columns = [
        "queries",
        "matches an element",
        "Millpond, elements/s",
        "moving limit, elements/s",
        "of the moving limit",
        "Spark join, elements/s",
        "times Spark",
        "DuckDB join, elements/s",
        "Flink SQL, elements/s",
        "times Flink",
        "bytes of matches an element",
    ]
    show("Matching", columns, rows)
    lines = {
        "Millpond": (counts, [r[2] for r in rows]),
        "moving limit": (counts, [r[3] for r in rows]),
    }
    if not options.no_peers:
        lines["Spark broadcast range join"] = (counts, [r[5] for r in rows])
        lines["DuckDB join"] = (counts, [r[7] for r in rows])
        flinks = [(r[0], r[8]) for r in rows if r[8]]
        if flinks:
            lines["Flink SQL"] = ([x for x, _ in flinks], [y for _, y in flinks])
        elif not flink.is_installed():
            console.print(flink.MISSING)
    picture("matching", "Elements through standing queries", "queries", "elements/s", lines)
    shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
