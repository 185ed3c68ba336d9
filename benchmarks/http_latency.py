"""What does HTTP add to an invocation, on a connection that is kept alive, beside in-process?

A query whose answer has ten rows is invoked by `Handle.invoke` and by `GET …/result`. The server is
a process of its own, and both are measured against the same pond, in turns: a round of one, a round
of the other, so that what else the machine does meets both. At most 1 ms more at the median is
wanted.

    python benchmarks/http_latency.py [--repeats 2000] [--rounds 20]
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import tempfile
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

from _harness import percentile, seconds, show
from millpond.api import server
from millpond.service.handles import Handle
from millpond.testing.local_runtime import open_local

QUERY = "SELECT k, v FROM s [RANGE 1 HOUR] WHERE v < 10"
PATHS = {"over HTTP": "/v1/queries/q/result", "over HTTP, liveness alone": "/healthz"}
WARM = 100


def serve(directory: str, asked: Connection) -> None:
    """Fill a pond, serve it, and measure it in process whenever asked, until told to end."""
    with open_local(Path(directory) / "store") as pond:
        pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
        pond.ingest("s", [{"ts": "2026-03-01 12:00:00", "k": f"k{n}", "v": n} for n in range(1000)])
        handle = pond.register(QUERY, "q")
        pond.wait_until_matched()
        assert len(handle.invoke()) == 10

        def start_measuring(url: str) -> None:
            asked.send(url)
            threading.Thread(target=measure_inside, args=(handle, asked), daemon=True).start()

        server.serve(pond, port=0, on_ready=start_measuring)


def measure_inside(handle: Handle, asked: Connection) -> None:
    """Send back the seconds of as many invocations as are asked for, as often as asked."""
    while True:
        repeats: int = asked.recv()
        asked.send([seconds(handle.invoke) for _ in range(repeats)])


def measure(connection: http.client.HTTPConnection, path: str, repeats: int) -> list[float]:
    """Seconds of each call on one connection."""

    def call() -> None:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        assert response.status == 200, response.status

    return [seconds(call) for _ in range(repeats)]


def measure_in_turns(repeats: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of every call, by how it was made."""
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    found: dict[str, list[float]] = {name: [] for name in ("in process", *PATHS)}
    with tempfile.TemporaryDirectory() as directory:
        process = processes.Process(target=serve, args=(directory, theirs))
        process.start()
        connection = http.client.HTTPConnection(urlsplit(ours.recv()).netloc)
        for turn in range(rounds + 1):
            count = repeats // rounds if turn else WARM
            ours.send(count)
            times = {"in process": ours.recv()}
            times |= {name: measure(connection, path, count) for name, path in PATHS.items()}
            if turn:
                for name, part in times.items():
                    found[name].extend(part)
        connection.close()
        process.terminate()
        process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    found = measure_in_turns(arguments.repeats, arguments.rounds)
    base = percentile(found["in process"], 0.5)
    show(
        "An invocation in process and over HTTP",
        ["invocation", "p50, ms", "p99, ms", "more at p50, ms", "times at p50"],
        [
            [
                name,
                percentile(times, 0.5) * 1e3,
                percentile(times, 0.99) * 1e3,
                (percentile(times, 0.5) - base) * 1e3,
                percentile(times, 0.5) / base,
            ]
            for name, times in found.items()
        ],
    )


if __name__ == "__main__":
    main()
