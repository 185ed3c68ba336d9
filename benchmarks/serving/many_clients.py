"""Two hundred clients invoke over HTTP, and ten feeds follow 10,000 queries, while data flows.

The server is `millpond serve`, a process of its own. Every query is a saved search, as in
`feeds.py`; a tenth of them has each of ten tags, and each tag has one feed. Each client invokes
queries drawn at random, one after the other, with a pause between. Rows are pushed over HTTP at a
rate. The feeds are compared with a direct computation: as many changes of each tag, and the same
sum of prices. Memory is that of the server's processes together, at each tenth of the time.

    python benchmarks/serving/many_clients.py [--queries 10000] [--clients 200] [--seconds 600]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))
from _harness import console, percentile, show
from feeds import ITEMS, Expected, make_elements, texts

TAGS = 10
#: Pushes a second.
PUSHES = 5


class Load:
    """What is done to the server, and what was seen."""

    def __init__(self, http: httpx.AsyncClient, options: argparse.Namespace) -> None:
        self.http = http
        self.options = options
        self.expected = Expected(options.queries)
        self.latencies: list[float] = []
        self.errors: list[str] = []
        self.lags: list[float] = []
        self.counts = np.zeros(TAGS, np.int64)
        self.totals = np.zeros(TAGS)
        self.until = 0.0

    async def register(self) -> float:
        """Make the stream and the queries; return how many seconds that took."""
        declare = "CREATE STREAM s (sent BIGINT, item INTEGER, price DOUBLE)"
        (await self.http.post("/v1/statements", json={"text": declare})).raise_for_status()
        body = [
            {"cql": text, "name": f"q{n}", "options": {"follow": True, "tags": f"t{n % TAGS}"}}
            for n, text in enumerate(texts(self.options.queries))
        ]
        begun = time.perf_counter()
        for start in range(0, len(body), 1000):
            answer = await self.http.post("/v1/queries", json=body[start : start + 1000])
            answer.raise_for_status()
        return time.perf_counter() - begun

    async def invoke(self, seed: int) -> None:
        """One client: invokes queries one after the other."""
        random = np.random.default_rng(seed)
        await asyncio.sleep(random.random() * self.options.pause)
        while time.monotonic() < self.until:
            name = f"q{random.integers(self.options.queries)}"
            begun = time.perf_counter()
            try:
                answer = await self.http.get(f"/v1/queries/{name}/result")
                if answer.status_code != 200:
                    self.errors.append(answer.text[:200])
                else:
                    self.latencies.append(time.perf_counter() - begun)
            except httpx.HTTPError as error:
                self.errors.append(repr(error))
            await asyncio.sleep(self.options.pause)

    async def follow(self, tag: int) -> None:
        """One feed, until it is cancelled."""
        headers = {"Accept": "application/x-ndjson"}
        path = f"/v1/changes?tag=t{tag}&follow=true"
        async with self.http.stream("GET", path, headers=headers, timeout=None) as answer:
            async for line in answer.aiter_lines():
                event = json.loads(line) if line else {}
                if event.get("event") == "change":
                    self.counts[tag] += 1
                    self.totals[tag] += event["row"]["price"]
                    self.lags.append(time.time() - event["row"]["sent"] / 1e6)

    async def push(self) -> None:
        """Push rows at the rate until the time is over."""
        random, size = np.random.default_rng(1), self.options.rate // PUSHES
        begun, number = time.monotonic(), 0
        headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
        while time.monotonic() < self.until:
            await asyncio.sleep(max(0.0, begun + number / PUSHES - time.monotonic()))
            number += 1
            batch = make_elements(size, random)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_table(batch)
            body = sink.getvalue().to_pybytes()
            answer = await self.http.post("/v1/streams/s/tuples", content=body, headers=headers)
            if answer.status_code != 200:
                self.errors.append(answer.text[:200])
            else:
                self.expected.add(batch)

    def missing(self) -> int:
        """How many changes the feeds have not been given yet."""
        return int(self.expected.count.sum() - self.counts.sum())


def measure_memory(pid: int) -> float:
    """The memory of a process and those it started, in MB."""
    children: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(stat[1]), []).append(int(entry.name))
        sizes[int(entry.name)] = int(stat[21]) * os.sysconf("SC_PAGE_SIZE")
    found, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        found += sizes.get(one, 0)
        waiting += children.get(one, [])
    return found / 1e6


async def measure(url: str, pid: int, options: argparse.Namespace) -> list[object]:
    """Do everything; a row of the table."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as http:
        load = Load(http, options)
        registered = await load.register()
        console.print(f"registered {options.queries:,} in {registered:.1f} s")
        feeds = [asyncio.create_task(load.follow(tag)) for tag in range(TAGS)]
        await asyncio.sleep(2)
        load.until = time.monotonic() + options.seconds
        busy = [asyncio.create_task(load.invoke(seed)) for seed in range(options.clients)]
        busy.append(asyncio.create_task(load.push()))
        memory = []
        while time.monotonic() < load.until:
            await asyncio.sleep(options.seconds / 10)
            memory.append(measure_memory(pid))
            loads = os.getloadavg()[0]
            console.print(f"memory {memory[-1]:,.0f} MB, load of the machine {loads:.1f}")
        await asyncio.gather(*busy)
        deadline = time.monotonic() + 60
        while load.missing() > 0 and time.monotonic() < deadline:
            assert not any(feed.done() for feed in feeds)
            await asyncio.sleep(0.2)
        for feed in feeds:
            feed.cancel()
    for tag in range(TAGS):
        assert load.counts[tag] == load.expected.count[tag::TAGS].sum(), tag
        assert np.isclose(load.totals[tag], load.expected.total[tag::TAGS].sum()), tag
    for error in sorted(set(load.errors))[:5]:
        console.print(error)
    return [
        len(load.latencies),
        len(load.errors),
        percentile(load.latencies, 0.5) * 1e3,
        percentile(load.latencies, 0.99) * 1e3,
        int(load.counts.sum()),
        percentile(load.lags, 0.5) * 1e3,
        percentile(load.lags, 0.99) * 1e3,
        memory[0],
        memory[-1],
    ]


def main() -> None:
    """Start a server, load it, and stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--pause", type=float, default=1.0, help="between two calls of a client")
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    assert options.queries % ITEMS == 0
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as base:
        words = [sys.executable, "-m", "millpond.cli.main", "serve", "--port", "0"]
        server = subprocess.Popen(
            [*words, "--store", f"{base}/store"], stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            ready = next(line for line in server.stdout if "is ready" in line)
            url = next(word for word in ready.split() if word.startswith("http")).rstrip("/")
            row = asyncio.run(measure(url, server.pid, options))
        finally:
            server.terminate()
            server.wait(60)
    columns = ["invocations", "errors", "p50, ms", "p99, ms", "changes", "lag p50, ms", "p99, ms"]
    show("Many clients", [*columns, "memory first, MB", "last, MB"], [row])


if __name__ == "__main__":
    main()
