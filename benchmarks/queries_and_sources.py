"""How do more queries, and more sources, change the elements a second? CACQ's figure 6.

(a) From 1 to 200 range queries on one attribute of one source: all in one Query SteM, against the
same queries each by itself, as in a system in which a query is a job. (b) Twenty of them over 1
to 16 sources that share the same number of elements between them. End to end through Spark,
answers kept; (a)'s other side runs as many ponds one after the other, up to ten, and is worked out
from these.

    python benchmarks/queries_and_sources.py [--rows 400000]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np

from _harness import picture, seconds, show
from millpond.service.open_pond import open_pond
from workloads.interests import SPAN, STREAM, write_elements

#: Ponds that are run to see what queries cost that share nothing.
ALONE = 10


def texts(queries: int, sources: int, seed: int = 3) -> list[str]:
    """Ranges on one attribute, each over a source chosen at random."""
    chance = np.random.default_rng(seed)
    lows = chance.integers(0, SPAN * 9 // 10, queries)
    chosen = chance.integers(0, sources, queries)
    return [
        f"SELECT * FROM s{source} WHERE a BETWEEN {low} AND {low + SPAN // 20}"
        for low, source in zip(lows.tolist(), chosen.tolist(), strict=True)
    ]


def took(files: list[Path], queries: list[str]) -> float:
    """Seconds for a pond of its own to read all files past the queries."""
    from pyspark.sql import SparkSession

    store = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    try:
        with open_pond(store, bounded=True, spark=SparkSession.getActiveSession()) as pond:
            for number, path in enumerate(files):
                pond.execute(STREAM.format(name=f"s{number}", path=path, files=1_000))
            pond.register_many([(text, None, {}) for text in queries])
            return seconds(pond._components.sources.read_to_end)
    finally:
        shutil.rmtree(store, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    with open_pond(base / "session"):
        write_elements(base / "all", options.rows, 4)
        took([base / "all"], texts(1, 1))  # warm
        rows = []
        counts = [1, 5, 20, 50, 100, 200]
        for count in counts:
            queries = texts(count, 1)
            together = took([base / "all"], queries)
            few = queries[:ALONE]
            alone = sum(took([base / "all"], [q]) for q in few) * count / len(few)
            rows.append([count, options.rows / together, options.rows / alone, alone / together])
        show(
            "Elements a second by number of queries",
            ["queries", "one Query SteM", "each by itself", "times"],
            rows,
        )
        picture(
            "queries",
            "One source, many queries",
            "queries",
            "elements/s",
            {
                "one Query SteM": (counts, [r[1] for r in rows]),
                "each by itself": (counts, [r[2] for r in rows]),
            },
        )
        rows = []
        sources = [1, 2, 4, 8, 16]
        for count in sources:
            files = [base / f"of-{count}-{n}" for n in range(count)]
            for n, path in enumerate(files):
                write_elements(path, options.rows // count, 2, seed=n)
            together = took(files, texts(20, count))
            rows.append([count, options.rows / together])
        show("Elements a second by number of sources", ["sources", "20 queries"], rows)
        picture(
            "sources",
            "Twenty queries, many sources",
            "sources",
            "elements/s",
            {"20 queries": (sources, [r[1] for r in rows])},
        )
    shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
