"""How long from the arrival of an element until an answer shows it, at several rates?

Elements are pushed in batches of equal size at equal distances, past 1,000 standing queries; the
time is from handing a batch over until an invocation counts its elements. "keeps up" says whether
as much became visible as was pushed: the greatest rate that does is the load, and half of it is
where the target stands.

    python benchmarks/freshness.py [--rates 1000,10000,50000,100000] [--seconds 15]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from _harness import percentile, show
from _workload import elements, texts
from millpond.service.composition import open_pond
from millpond.service.pond import Pond

#: Pushes a second, at any rate.
PUSHES = 20


def watch(pond: Pond, rate: int, lasting: float) -> tuple[list[float], bool]:
    """Seconds until each push was visible, and whether all were soon after the last."""
    query = pond.query("watched")
    size = max(1, rate // PUSHES)
    random = np.random.default_rng(rate)
    before = int(query.invoke().rows()[0][0])
    pushed: list[tuple[int, float]] = []
    seen: list[float] = []
    stop = threading.Event()

    def look() -> None:
        at = 0
        while not (stop.is_set() and at == len(pushed)):
            count = int(query.invoke().rows()[0][0]) - before
            now = time.perf_counter()
            while at < len(pushed) and count >= pushed[at][0]:
                seen.append(now - pushed[at][1])
                at += 1
            time.sleep(0.01)

    looking = threading.Thread(target=look)
    looking.start()
    begun = time.perf_counter()
    total = 0
    for number in range(int(lasting * PUSHES)):
        time.sleep(max(0.0, begun + number / PUSHES - time.perf_counter()))
        total += size
        at = time.perf_counter()
        pond.ingest("s", elements(size, random))
        pushed.append((total, at))
    pushing = time.perf_counter() - begun
    stop.set()
    looking.join()
    keeps_up = time.perf_counter() - begun - pushing < 2 and pushing < 1.1 * lasting
    settled = len(seen) // 5  # Spark compiles while it runs; what it does first is slow
    return seen[settled:], keeps_up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", default="1000,10000,50000,100000")
    parser.add_argument("--seconds", type=float, default=15)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    rows = []
    with open_pond(base / "store") as pond:
        pond.execute("CREATE STREAM s (a INTEGER, b INTEGER, c INTEGER, d INTEGER, e INTEGER)")
        pond.register_many([(text, None, {}) for text in texts(1_000, "s")])
        pond.register("SELECT count(*) FROM s", name="watched")
        watch(pond, 1_000, 10)  # warms up
        for rate in (int(r) for r in options.rates.split(",")):
            took, keeps_up = watch(pond, rate, options.seconds)
            shown = [percentile(took, share) * 1e3 for share in (0.5, 0.99)]
            rows.append([rate, *shown, max(took) * 1e3, "yes" if keeps_up else "no"])
    show(
        "Freshness",
        ["elements a second", "p50, ms", "p99, ms", "most, ms", "keeps up"],
        rows,
    )
    shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
