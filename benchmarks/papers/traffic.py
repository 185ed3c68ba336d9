"""How long do invocations over traffic take as the window grows? PSoup's journal version.

The paper's traces of sensors on highways are not to be had. Elements are drawn as it describes
them: a timestamp, a lane, uniformly, and a speed, with one mode and rare extremes. The queries are
its own: `speed > c1 AND lane = c2`, with constants drawn from the values. PSoup-C keeps answers
(`eager`), PSoup-P reads stored matches (`lazy`), NoMat evaluates when asked (`none`). Their answers
are compared.

The pond is in this process, without Spark.

    python benchmarks/papers/traffic.py [--rows 300000] [--queries 20] [--repeats 5]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from _harness import picture, seconds, show
from millpond.testing.local_runtime import open_local

LANES = 5
WAYS = {"PSoup-C": "eager", "PSoup-P": "lazy", "NoMat": "none"}


def elements(rows: int) -> pa.Table:
    """Readings a millisecond apart."""
    random = np.random.default_rng(9)
    speed = np.clip(random.normal(60, 12, rows), 0, 120)
    stamps = pa.array(np.arange(rows, dtype=np.int64) * 1_000).cast(pa.timestamp("us"))
    lane = random.integers(1, LANES + 1, rows).astype(np.int32)
    return pa.table({"ts": stamps, "lane": lane, "speed": speed})


def texts(queries: int, window: int) -> list[str]:
    random = np.random.default_rng(2)
    where = zip(
        random.integers(0, 120, queries), random.integers(1, LANES + 1, queries), strict=True
    )
    return [
        f"SELECT * FROM s [RANGE {window} MILLISECONDS] WHERE speed > {speed} AND lane = {lane}"
        for speed, lane in where
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    sizes = [n for n in (1_000, 10_000, 30_000, 100_000, 300_000, 1_000_000) if n <= options.rows]
    rows, lines = [], {way: (sizes, []) for way in WAYS}
    with (
        tempfile.TemporaryDirectory(prefix="millpond-bench-") as folder,
        open_local(Path(folder) / "store") as pond,
    ):
        pond.execute("CREATE STREAM s (ts TIMESTAMP, lane INTEGER, speed DOUBLE) TIMESTAMP BY ts")
        asked = {
            size: {
                way: [pond.register(t, materialize=mode) for t in texts(options.queries, size)]
                for way, mode in WAYS.items()
            }
            for size in sizes
        }
        pond.ingest("s", elements(options.rows))
        pond.wait_until_matched()
        for size, ways in asked.items():
            answers = [
                [sorted(handle.invoke().rows()) for handle in handles] for handles in ways.values()
            ]
            assert answers[0] == answers[1] == answers[2]
            took: dict[str, list[float]] = {way: [] for way in WAYS}
            for _ in range(options.repeats):  # in turns
                for way, handles in ways.items():
                    took[way] += [seconds(handle.invoke) for handle in handles]
            middle = {way: statistics.median(own) * 1e3 for way, own in took.items()}
            for way, own in middle.items():
                lines[way][1].append(own)
            mean = sum(map(len, answers[0])) / options.queries
            rows.append([size, mean, *middle.values()])
    heads = ["window, elements", "rows of an answer", *(f"{way} p50, ms" for way in WAYS)]
    show("Invocation over traffic by window size", heads, rows)
    picture("traffic", "Traffic (PSoup, journal version)", "window, elements", "ms", lines)


if __name__ == "__main__":
    main()
