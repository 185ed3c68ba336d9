"""What does HTTP add to an invocation, on a connection that is kept alive, beside in-process?

A query whose answer has ten rows is invoked by `Handle.invoke` and by `GET …/result`. The server is
a process of its own, and both are measured against the same pond. At most 1 ms more at the median
is wanted.

    python benchmarks/http_latency.py [--repeats 2000]
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

from _harness import percentile, seconds, show
from millpond.api import server
from millpond.testing.local_runtime import open_local

QUERY = "SELECT k, v FROM s [RANGE 1 HOUR] WHERE v < 10"
PATH = "/v1/queries/q/result"


def serve(directory: str, repeats: int, told: Connection) -> None:
    """Fill a pond, measure it in process, and serve it until told to end."""
    with open_local(Path(directory) / "store") as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
        pond.ingest("s", [{"ts": "2026-03-01 12:00:00", "k": f"k{n}", "v": n} for n in range(1000)])
        handle = pond.register(QUERY, "q")
        pond.wait_until_matched()
        for _ in range(100):
            handle.invoke()
        assert len(handle.invoke()) == 10
        told.send([seconds(handle.invoke) for _ in range(repeats)])
        server.serve(pond, port=0, on_ready=told.send)


def measure(url: str, path: str, repeats: int) -> list[float]:
    """Seconds of each call on one connection."""
    address = urlsplit(url).netloc
    connection = http.client.HTTPConnection(address)

    def call() -> None:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        assert response.status == 200, response.status

    for _ in range(100):
        call()
    times = [seconds(call) for _ in range(repeats)]
    connection.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2_000)
    repeats = parser.parse_args().repeats
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    with tempfile.TemporaryDirectory() as directory:
        process = processes.Process(target=serve, args=(directory, repeats, theirs))
        process.start()
        inside: list[float] = ours.recv()
        url: str = ours.recv()
        found = {
            "in process": inside,
            "over HTTP": measure(url, PATH, repeats),
            "over HTTP, liveness alone": measure(url, "/healthz", repeats),
        }
        process.terminate()
        process.join()
    base = percentile(inside, 0.5)
    show(
        "An invocation in process and over HTTP",
        ["invocation", "p50, ms", "p99, ms", "more at p50, ms"],
        [
            [
                name,
                percentile(times, 0.5) * 1e3,
                percentile(times, 0.99) * 1e3,
                (percentile(times, 0.5) - base) * 1e3,
            ]
            for name, times in found.items()
        ],
    )


if __name__ == "__main__":
    main()
