"""How long a second driver takes to lead, warm and cold, when the first is killed.

A store in a shared directory, with followed queries and kept elements. Two servers: one leads, one
waits. The leader is killed with SIGKILL, and the time goes until the one that waits answers a
query, and until it has taken a push. Then that one is killed, too, and a third server begins with
an empty directory: it has to fetch the snapshot and start from nothing, its process included.
Answers are compared with what was pushed.

    python benchmarks/serving/fail_over.py [--queries 10000] [--rows 1000000] [--turns 3]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))
from _harness import console, show
from millpond.demo.cluster import free_port

ROWS = 100_000


class Servers:
    """Servers of one shared directory, each with a directory of its own."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._log = (base / "servers.log").open("ab")

    def start(self) -> int:
        """Start a server with an empty directory; return its port."""
        port = free_port()
        words = [sys.executable, "-m", "millpond.cli.main", "serve", "--port", str(port)]
        words += ["--store", str(self._base / f"driver-{port}"), "--shared", str(self._base / "at")]
        self._running[port] = subprocess.Popen(words, stdout=self._log, stderr=self._log)
        return port

    def kill(self, port: int) -> None:
        process = self._running.pop(port)
        process.kill()
        process.wait()
        shutil.rmtree(self._base / f"driver-{port}", ignore_errors=True)

    def close(self) -> None:
        for port in list(self._running):
            self.kill(port)
        self._log.close()


def wait_for_status(port: int, wanted: int, path: str = "/readyz") -> float:
    """Wait until a server answers so; return when it did."""
    for _ in range(60_000):
        with suppress(httpx.HTTPError):
            if httpx.get(f"http://127.0.0.1:{port}{path}", timeout=5).status_code == wanted:
                return time.perf_counter()
        time.sleep(0.01)
    raise AssertionError(f"{port} does not answer {wanted}")


def push(port: int, first: int, count: int) -> None:
    """Push rows, of which query q of k wants those with this k."""
    numbers = np.arange(first, first + count)
    batch = pa.table({"k": pa.array(numbers % 10_000, pa.int32()), "n": numbers})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_table(batch)
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
    url = f"http://127.0.0.1:{port}/v1/streams/s/tuples"
    httpx.post(
        url, content=sink.getvalue().to_pybytes(), headers=headers, timeout=120
    ).raise_for_status()


def check(port: int, pushed: int) -> None:
    """A query's answer has all of its rows that were pushed."""
    httpx.post(f"http://127.0.0.1:{port}/v1/catch-up", timeout=600).raise_for_status()
    answer = httpx.get(f"http://127.0.0.1:{port}/v1/queries/q7/result", timeout=60).json()
    assert sorted(row[0] for row in answer["rows"]) == list(range(7, pushed, 10_000)), answer


def prepare(port: int, options: argparse.Namespace) -> None:
    url = f"http://127.0.0.1:{port}"
    text = "CREATE STREAM s (k INTEGER, n BIGINT)"
    httpx.post(f"{url}/v1/statements", json={"text": text}, timeout=60).raise_for_status()
    body = [
        {"cql": f"SELECT n FROM s WHERE k = {k}", "name": f"q{k}", "options": {"follow": k < 100}}
        for k in range(options.queries)
    ]
    for start in range(0, len(body), 1_000):
        httpx.post(
            f"{url}/v1/queries", json=body[start : start + 1_000], timeout=120
        ).raise_for_status()
    for first in range(0, options.rows, ROWS):
        push(port, first, ROWS)
    check(port, options.rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as base:
        servers = Servers(Path(base))
        try:
            leads = servers.start()
            wait_for_status(leads, 200)
            prepare(leads, options)
            pushed = options.rows
            for turn in range(options.turns):
                for kind in ("warm", "cold"):
                    if kind == "warm":
                        other = servers.start()
                        wait_for_status(other, 503)
                        time.sleep(2)
                        begun = time.perf_counter()
                        servers.kill(leads)
                    else:
                        servers.kill(leads)
                        begun = time.perf_counter()
                        other = servers.start()
                    answered = wait_for_status(other, 200, "/v1/queries/q7/result") - begun
                    push(other, pushed, 10_000)
                    taken = time.perf_counter() - begun
                    pushed += 10_000
                    check(other, pushed)
                    visible = time.perf_counter() - begun
                    rows.append([turn + 1, kind, answered, taken, visible])
                    console.print(rows[-1])
                    leads = other
        finally:
            servers.close()
    columns = ["turn", "driver", "answers after, s", "a push is taken, s", "and in answers, s"]
    show("A second driver", columns, rows)


if __name__ == "__main__":
    main()
