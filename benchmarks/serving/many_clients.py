"""Two hundred clients invoke over HTTP, and ten feeds follow 10,000 queries, while data flows.

The server is `millpond serve`, a process of its own. Every query is a saved search, as in
`feeds.py`; a tenth of them has each of ten tags, and each tag has one feed. Each client invokes
queries drawn at random, one after the other, with a pause between. Rows are pushed over HTTP at a
rate. All that was given is compared with a direct computation: of every query the prices its
changes had, and of every answer its rows, which are the first of those the query gets in all. How
old an answer is, is the time since the first row was handed over that it does not have yet.

Clients and feeds are threads of two further processes that use `http.client`: one process of httpx
for all of them took more of the machine than the server, and what was measured was its own queue.
Memory is what the server's processes have for themselves (RssAnon), in MB: Python, the JVM, and
Spark's workers; files of the store that are mapped are counted apart, because the system takes
their memory back when it needs it. In the second half of the run Python and the workers may not
grow by a tenth; the JVM's heap has a limit of its own.

    python benchmarks/serving/many_clients.py [--queries 10000] [--clients 200] [--seconds 600]
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing as mp
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))
from _harness import console, percentile, show
from feeds import ITEMS, limits, make_elements, texts

TAGS = 10
#: Pushes a second.
PUSHES = 5


def run_clients(place: str, options: argparse.Namespace, until: float, results: Any) -> None:
    """A process: all clients, each a thread that invokes one query after the other."""
    latencies: list[float] = []
    errors: list[str] = []
    answers: list[tuple[int, float, list[float]]] = []

    def invoke(seed: int) -> None:
        random = np.random.default_rng(seed)
        time.sleep(random.random() * options.pause)
        connection = http.client.HTTPConnection(place, timeout=60)
        while time.time() < until:
            asked, begun = time.time(), time.perf_counter()
            query = int(random.integers(options.queries))
            try:
                connection.request("GET", f"/v1/queries/q{query}/result")
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException) as error:
                errors.append(repr(error))
                connection.close()
            else:
                if answer.status == 200:
                    latencies.append(time.perf_counter() - begun)
                    answers.append((query, asked, [row[2] for row in orjson.loads(body)["rows"]]))
                else:
                    errors.append(body[:200].decode())
            time.sleep(options.pause)

    threads = [threading.Thread(target=invoke, args=(seed,)) for seed in range(options.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((latencies, errors, answers, time.process_time()))


def run_feeds(place: str, counts: Any, results: Any, ended: Any) -> None:
    """A process: all feeds, each a thread, until `ended` is set; `counts` tells of each tag."""
    prices: dict[int, list[float]] = {}
    lags = list[float]()

    def follow(tag: int) -> None:
        connection = http.client.HTTPConnection(place)
        headers = {"Accept": "application/x-ndjson"}
        connection.request("GET", f"/v1/changes?tag=t{tag}&follow=true", headers=headers)
        for line in connection.getresponse():
            event = orjson.loads(line) if line.strip() else {}
            if event.get("event") == "change":
                lags.append(time.time() - event["row"]["sent"] / 1e6)
                prices.setdefault(int(event["query"][1:]), []).append(event["row"]["price"])
                counts[tag] += 1

    for tag in range(TAGS):
        threading.Thread(target=follow, args=(tag,), daemon=True).start()
    ended.wait()
    results.put((prices, lags, time.process_time()))


class Load:
    """What is done to the server by this process, and what was seen."""

    def __init__(self, http: httpx.Client, options: argparse.Namespace) -> None:
        self.http = http
        self.options = options
        #: Of each query, when what it wants was handed over, and the price.
        self.wanted: list[list[tuple[float, float]]] = [[] for _ in range(options.queries)]
        self.errors: list[str] = []
        self.pushed = 0

    def register(self) -> float:
        """Make the stream and the queries; return how many seconds that took."""
        declare = "CREATE STREAM s (sent BIGINT, item INTEGER, price DOUBLE)"
        self.http.post("/v1/statements", json={"text": declare}).raise_for_status()
        body = [
            {"cql": text, "name": f"q{n}", "options": {"follow": True, "tags": f"t{n % TAGS}"}}
            for n, text in enumerate(texts(self.options.queries))
        ]
        begun = time.perf_counter()
        for start in range(0, len(body), 1000):
            self.http.post("/v1/queries", json=body[start : start + 1000]).raise_for_status()
        return time.perf_counter() - begun

    def push(self, until: float) -> None:
        """Push rows at the rate until the time is over."""
        random, size = np.random.default_rng(1), self.options.rate // PUSHES
        begun, number = time.time(), 0
        headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
        while time.time() < until:
            time.sleep(max(0.0, begun + number / PUSHES - time.time()))
            number += 1
            batch = make_elements(size, random)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_table(batch)
            body = sink.getvalue().to_pybytes()
            answer = self.http.post("/v1/streams/s/tuples", content=body, headers=headers)
            if answer.status_code != 200:
                self.errors.append(answer.text[:200])
            else:
                self._expect(batch)
                self.pushed += size

    def _expect(self, batch: pa.Table) -> None:
        """Compute directly what the queries get of a batch."""
        sent, items, prices = (column.to_numpy() for column in batch.columns)
        own = limits(self.options.queries)
        for row in np.flatnonzero(prices < own.max()):
            of_item = np.arange(items[row], self.options.queries, ITEMS)
            for query in of_item[prices[row] < own[of_item]]:
                self.wanted[query].append((sent[row] / 1e6, float(prices[row])))

    def compare_changes(self, prices: dict[int, list[float]]) -> None:
        """Of every query, the changes that came are those of the direct computation."""
        for query, wanted in enumerate(self.wanted):
            found = sorted(prices.get(query, []))
            assert found == sorted(price for _, price in wanted), query

    def compare_answers(self, answers: list[tuple[int, float, list[float]]]) -> list[float]:
        """How old each answer was, in seconds; its rows are the first of those its query gets."""
        ages = []
        for query, asked, found in answers:
            wanted = self.wanted[query]
            assert sorted(found) == sorted(price for _, price in wanted[: len(found)]), query
            missing = wanted[len(found)][0] if len(found) < len(wanted) else asked
            ages.append(max(0.0, asked - missing))
        return ages


def measure_memory(pid: int) -> dict[str, float]:
    """The memory of a process and those it started, in MB: by kind of process, and mapped files."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, KeyError):
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found, waiting = dict.fromkeys(("python", "jvm", "workers", "mapped"), 0.0), [(pid, "python")]
    while waiting:
        one, kind = waiting.pop()
        with suppress(OSError, KeyError):
            if kind == "python" and one != pid:
                kind = "jvm" if "java" in Path(f"/proc/{one}/comm").read_text() else "workers"
            status = Path(f"/proc/{one}/status").read_text()
            held = dict(line.split(":", 1) for line in status.splitlines())
            found[kind] += int(held["RssAnon"].split()[0]) / 1e3
            found["mapped"] += int(held["RssFile"].split()[0]) / 1e3
            below = "workers" if kind == "jvm" else kind
            waiting += [(child, below) for child in children.get(one, [])]
    return found


def measure(url: str, pid: int, options: argparse.Namespace) -> list[object]:
    """Do everything; a row of the table."""
    spawn, place = mp.get_context("spawn"), url.removeprefix("http://")
    clients, feeds, ended = spawn.Queue(), spawn.Queue(), spawn.Event()
    counts = spawn.Array("q", TAGS, lock=False)
    with httpx.Client(base_url=url, timeout=60) as own:
        load = Load(own, options)
        registered = load.register()
        console.print(f"registered {options.queries:,} in {registered:.1f} s")
        reading = spawn.Process(target=run_feeds, args=(place, counts, feeds, ended), daemon=True)
        reading.start()
        time.sleep(4)
        until = time.time() + options.seconds
        asking = spawn.Process(
            target=run_clients, args=(place, options, until, clients), daemon=True
        )
        asking.start()
        pushing = threading.Thread(target=load.push, args=(until,), daemon=True)
        pushing.start()
        memory = []
        for _ in range(20):
            time.sleep(options.seconds / 20)
            memory.append(measure_memory(pid))
            sizes = ", ".join(f"{kind} {size:,.0f} MB" for kind, size in memory[-1].items())
            console.print(f"{sizes}; load of the machine {os.getloadavg()[0]:.1f}")
        latencies, errors, answers, asking_seconds = clients.get()
        pushing.join()
    changes, seen, idle = sum(map(len, load.wanted)), -1, time.monotonic()
    while sum(counts) < changes and time.monotonic() < idle + 60:  # as long as some still come
        assert reading.is_alive()
        if sum(counts) != seen:
            seen, idle = sum(counts), time.monotonic()
        time.sleep(0.2)
    time.sleep(2.0)  # what is given twice comes, too
    ended.set()
    prices, lags, reading_seconds = feeds.get()
    load.compare_changes(prices)
    ages = load.compare_answers(answers)
    console.print(f"compared {changes:,} changes and {sum(len(a[2]) for a in answers):,} rows")
    errors += load.errors
    for error in sorted(set(errors))[:5]:
        console.print(error)
    console.print(
        f"seconds of processor: clients {asking_seconds:.1f}, feeds {reading_seconds:.1f}"
    )
    for kind in ("python", "workers"):
        assert memory[-1][kind] <= 1.1 * memory[len(memory) // 2][kind], kind
    own = [sum(size for kind, size in one.items() if kind != "mapped") for one in memory]
    return [
        load.pushed // options.seconds,
        len(latencies),
        len(errors),
        percentile(latencies, 0.5) * 1e3,
        percentile(latencies, 0.99) * 1e3,
        percentile(ages, 0.99) * 1e3,
        changes,
        percentile(lags, 0.5) * 1e3,
        percentile(lags, 0.99) * 1e3,
        own[0],
        own[-1],
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
            row = measure(url, server.pid, options)
        finally:
            server.terminate()
            server.wait(60)
    columns = ["elements/s", "invocations", "errors", "p50, ms", "p99, ms"]
    columns += ["answers old by p99, ms"]
    columns += ["changes", "lag p50, ms", "p99, ms", "memory first, MB", "last, MB"]
    show("Many clients", columns, [row])


if __name__ == "__main__":
    main()
