"""How long does registering 1, 1,000 and 10,000 queries over kept elements take while data flows?

A million kept elements by default, and another stream of the same pond fed all
the while. "registered" is until the handles are there and answer; "matched" until every kept
element is matched against every query. Beside it: the p50 of a running query's invocation before,
during and after.

    python benchmarks/registration.py [--rows 1000000] [--queries 1,1000,10000]
    python benchmarks/registration.py --many 100000 [--rows 200000]

The second form is of very many selective queries (`kernel/many_queries.py`).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from _harness import percentile, seconds, show
from kernel.many_queries import show_many
from millpond.service.open_pond import open_pond
from workloads.interests import STREAM, elements, texts, write_elements


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--queries", default="1,1000,10000")
    parser.add_argument("--many", type=int, help="so many selective queries, without Spark")
    options = parser.parse_args()
    if options.many:
        show_many(options.many, options.rows)
        return
    base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    write_elements(base / "elements", options.rows, 4)
    with open_pond(base / "store") as pond:
        pond.execute(STREAM.format(name="s", path=base / "elements", files=100))
        pond.execute("CREATE STREAM t (a INTEGER, b INTEGER, c INTEGER, d INTEGER, e INTEGER)")
        pond.wait_until_matched()
        while pond._components.log.version.clock(pond.streams()[0].id).next_seq < options.rows:
            time.sleep(0.1)
        running = pond.register(f"{texts(1, 's', seed=99)[0]} AND a % 7 = 0")
        pond.wait_until_matched()
        stop = threading.Event()
        invoked: list[tuple[float, float]] = []

        def feed() -> None:
            random = np.random.default_rng(1)
            while not stop.is_set():
                pond.ingest("t", elements(1_000, random))
                stop.wait(0.1)

        def invoke() -> None:
            while not stop.is_set():
                invoked.append((time.perf_counter(), seconds(running.invoke)))
                stop.wait(0.01)

        threads = [threading.Thread(target=work, daemon=True) for work in (feed, invoke)]
        for thread in threads:
            thread.start()
        time.sleep(3)
        quiet = percentile([took for _, took in invoked], 0.5)
        rows = []
        for number, count in enumerate(int(n) for n in options.queries.split(",")):
            queries = [(text, None, {}) for text in texts(count, "s", seed=20 + number)]
            begun = time.perf_counter()
            handles = pond.register_many(queries)
            registered = time.perf_counter() - begun
            handles[-1].invoke()
            answered = time.perf_counter() - begun
            pond._components.maintenance.wait_until_idle()
            matched = time.perf_counter() - begun
            during = [took for at, took in invoked if at >= begun]
            rows.append(
                [
                    count,
                    registered,
                    registered / count * 1e3,
                    answered,
                    matched,
                    quiet * 1e3,
                    percentile(during, 0.5) * 1e3 if during else None,
                ]
            )
        stop.set()
        for thread in threads:
            thread.join()
    show(
        f"Registration over {options.rows:,} kept elements",
        [
            "queries",
            "registered, s",
            "ms a query",
            "first answer, s",
            "all matched, s",
            "other query's p50 before, ms",
            "meanwhile, ms",
        ],
        rows,
    )
    shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
