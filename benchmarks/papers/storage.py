"""What do kept matches and kept answers add to what is stored? PSoup, section 5.1.

Selections by an interval over all of a stream, in a pond for each of the paper's three systems:
NoMat (`materialize = 'none'`) stores elements and queries, PSoup-P (`lazy`) matches as well, and
PSoup-C (`eager`) holds the answers on top, in memory. What is measured is the size of the files of
elements and matches, and of the answers as Arrow data. The catalog is in none of them.

The pond is in this process, without Spark.

    python benchmarks/papers/storage.py [--rows 200000] [--queries 1,10,100,1000]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from _harness import picture, show
from millpond.testing.local_runtime import open_local

SPAN = 256
WAYS = {"NoMat": "none", "PSoup-P": "lazy", "PSoup-C": "eager"}


def texts(queries: int) -> list[str]:
    """Selections by an interval of up to a quarter of the values."""
    random = np.random.default_rng(3)
    found = []
    for low, length in zip(
        random.integers(0, SPAN, queries), random.integers(1, SPAN // 4, queries), strict=True
    ):
        found.append(f"SELECT a, b FROM s WHERE a >= {low} AND a < {low + length}")
    return found


def stored(store: Path) -> int:
    """The bytes of a store's files of elements and matches."""
    found = [path for name in ("segments", "matches") for path in (store / name).rglob("*")]
    return sum(path.stat().st_size for path in found if path.is_file())


def bytes_an_element(queries: int, rows: int, mode: str) -> tuple[float, list[int]]:
    """What a pond stores for an element, and some answers' numbers of rows."""
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as folder:
        store = Path(folder) / "store"
        random = np.random.default_rng(5)
        with open_local(store) as pond:
            pond.execute("CREATE STREAM s (a INTEGER, b INTEGER)")
            handles = [pond.register(text, materialize=mode) for text in texts(queries)]
            for _ in range(4):
                values = {n: random.integers(0, SPAN, rows // 4).astype(np.int32) for n in "ab"}
                pond.ingest("s", pa.table(values))
            pond.wait_until_matched()
            tables = [handle.invoke().table for handle in handles]
            answers = [table.num_rows for table in tables]
            held = sum(table.nbytes for table in tables) if mode == "eager" else 0
        return (stored(store) + held) / rows, answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--queries", default="1,10,100,1000")
    options = parser.parse_args()
    counts = [int(n) for n in options.queries.split(",")]
    rows, lines = [], {way: (counts, []) for way in WAYS}
    for queries in counts:
        found = {w: bytes_an_element(queries, options.rows, mode) for w, mode in WAYS.items()}
        assert len({tuple(answers) for _, answers in found.values()}) == 1
        for way, (each, _) in found.items():
            lines[way][1].append(each)
        rows.append([queries, *(each for each, _ in found.values())])
    heads = ["queries", *(f"{way}, bytes an element" for way in WAYS)]
    show("Storage (PSoup 5.1)", heads, rows)
    picture("storage", "What is stored (PSoup, 5.1)", "queries", "bytes an element", lines)


if __name__ == "__main__":
    main()
