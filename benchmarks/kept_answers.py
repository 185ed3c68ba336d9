"""What data arrival rate can be kept up with when matches are stored, and when answers are kept?

PSoup, VLDB 2002, figure 9: selections by an interval over a window of 1,000 elements. "PSoup-P"
stores matches and applies windows when somebody asks (`materialize = 'lazy'`). "PSoup-C" keeps each
query's current answer (`'eager'`): what a batch brings is counted in, and what leaves is counted
out. Beside them, answers that are computed again after each batch, which is what keeping them
would cost without counting. Pushes of equal size, each matched and (but for PSoup-P) with all its
answers there before the next. The answers of all three are compared at the end.

The pond is in this process, without Spark.

    python benchmarks/kept_answers.py [--queries 1,10,100,1000] [--batch 1000] [--seconds 3]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from _harness import picture, show
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

#: Values are uniform below this, as in the paper.
SPAN = 256
#: Elements of a window; one comes each millisecond.
WINDOW = 1_000
LAZY, EAGER, AGAIN = "PSoup-P (lazy)", "PSoup-C (eager)", "computed again after each push"


def texts(queries: int, seed: int = 3) -> list[str]:
    """Selections by an interval of any length on one of two attributes."""
    random = np.random.default_rng(seed)
    found = []
    for low, length, attribute in zip(
        random.integers(0, SPAN, queries),
        random.integers(1, SPAN, queries),
        random.choice(["a", "b"], queries),
        strict=True,
    ):
        interval = f"{attribute} >= {low} AND {attribute} < {low + length // 4}"
        found.append(f"SELECT a, b FROM s [RANGE 1 SECOND] WHERE {interval}")
    return found


def batch(number: int, rows: int) -> pa.Table:
    """The elements of a push."""
    random = np.random.default_rng(number)
    ts = (np.arange(rows) + number * rows) * (1_000_000 // WINDOW)
    values = {name: pa.array(random.integers(0, SPAN, rows), pa.int32()) for name in "ab"}
    return pa.table({"ts": pa.array(ts, pa.timestamp("us")), **values})


def measure(
    store: Path, queries: int, rows: int, lasting: float, way: str
) -> tuple[float, list[list[tuple[object, ...]]]]:
    """Elements a second, and some answers after four pushes."""
    with open_local(store) as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, a INTEGER, b INTEGER) TIMESTAMP BY ts")
        mode = "eager" if way == EAGER else "lazy"
        for number, text in enumerate(texts(queries)):
            pond.register(text, f"q{number}", materialize=mode)
        handles = [pond.query(f"q{number}") for number in range(queries)]

        def push(number: int) -> None:
            pond.ingest("s", batch(number, rows))
            pond.wait_until_matched()
            if way == AGAIN:
                for handle in handles:
                    handle.invoke()

        for number in range(4):
            push(number)
        answers = [sorted(handle.invoke().rows()) for handle in handles[:50]]
        if way == EAGER:
            check_served(pond, queries)
        pushed, began = 0, time.perf_counter()
        while time.perf_counter() - began < lasting:
            push(4 + pushed)
            pushed += 1
        return pushed * rows / (time.perf_counter() - began), answers


def check_served(pond: Pond, queries: int) -> None:
    """Raise AssertionError unless the answers just read were those that are kept."""
    kept = pond._components.invoker.kept_answers
    served = [kept.of(pond.query(f"q{number}").id).served for number in range(min(queries, 50))]
    assert all(served), served


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", default="1,10,100,1000")
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    counts = [int(n) for n in options.queries.split(",")]
    rates: dict[str, list[float]] = {LAZY: [], EAGER: [], AGAIN: []}
    rows = []
    for queries in counts:
        found = {}
        for way, own in rates.items():
            with tempfile.TemporaryDirectory(prefix="millpond-bench-") as folder:
                rate, found[way] = measure(
                    Path(folder) / "store", queries, options.batch, options.seconds, way
                )
            own.append(rate)
        assert found[LAZY] == found[EAGER] == found[AGAIN]
        rows.append([queries, *(own[-1] for own in rates.values())])
    heads = ["queries", *(f"{way}, elements/s" for way in rates)]
    show("Arrival rate with stored matches and with kept answers", heads, rows)
    picture(
        "kept_answers",
        "Data arrival rate for selection queries (PSoup, figure 9)",
        "queries",
        "elements/s",
        {way: (counts, own) for way, own in rates.items()},
    )


if __name__ == "__main__":
    main()
