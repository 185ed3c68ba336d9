"""How much memory do followed queries take, and how much time, by the memory for their state?

A join of two streams over a long window, groups with medians, a window that keeps rows by key, and
texts under MIN, MAX and a median, and under ORDER BY with LIMIT. Each runs in a process of its own,
once with memory for all of its state and then with less. What state has no room lies in files.
Memory is the largest anonymous resident memory of the process above what it had before the first
step (RssAnon, by a look every 10 ms); files are the bytes that lie there at the end. All runs of a
query give the same changes, which is checked.

    make bench NAME=spilling
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import BEFORE, plan_query

from _harness import picture, show
from millpond.engine.dataflow.dataflow import Dataflow
from millpond.engine.dataflow.state_limit import Memory
from millpond.state.scratch_folder import ScratchFolder

SECOND = 1_000_000
#: Elements of each stream in a step.
STEP = 20_000
QUERIES = {
    "join": "SELECT s.a, t.b FROM s [RANGE 100000 SECONDS], t [RANGE 100000 SECONDS]"
    " WHERE s.k = t.k AND s.a % 100 = 0",
    "groups": "SELECT k, count(*) AS n, median(a) AS middle FROM s [RANGE 100000 SECONDS]"
    " GROUP BY k",
    "rows by key": "SELECT k, a, b FROM s [PARTITION BY k ROWS 2] WHERE a % 1000 = 0",
    "texts": "SELECT k % 40000 AS g, min(t) AS low, max(t) AS high, quantile_disc(t, 0.5) AS middle"
    " FROM s [RANGE 100000 SECONDS] GROUP BY k % 40000",
    "first texts": "SELECT t, k FROM s [RANGE 100000 SECONDS] ORDER BY t LIMIT 10",
}
MEMORIES = (4096, 256, 64, 16)


def make_step(number: int) -> pa.Table:
    """Make the elements of a step: half of the keys are new, half were seen."""
    random = np.random.default_rng(number)
    places = np.arange(STEP) + number * STEP
    keys = np.where(random.random(STEP) < 0.5, places, random.integers(0, places[-1] + 1, STEP))
    return pa.table(
        {
            "__ts": places // 100 * SECOND,
            "__seq": places,
            "k": keys,
            "a": random.integers(0, 1 << 40, STEP),
            "b": random.random(STEP),
            "t": [f"the text {text * 7919 % 10_000_019} of an element" for text in keys.tolist()],
        }
    )


def read_anonymous() -> int:
    """Read this process's anonymous resident memory, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise AssertionError


def run(name: str, megabytes: int, steps: int, folder: str) -> tuple[float, int, int, str]:
    """Run a query; return seconds, bytes of memory, bytes of files and a digest of its changes."""
    pond = OraclePond()
    for stream in "st":
        pond.execute(
            f"CREATE STREAM {stream} (ts TIMESTAMP, k BIGINT, a BIGINT, b DOUBLE, t STRING)"
            " TIMESTAMP BY ts"
        )
    plan = plan_query(pond.world, QUERIES[name])
    flow = Dataflow(plan, since=BEFORE)
    flow.limit_memory(Memory(megabytes << 20, ScratchFolder(Path(folder))))
    digest, most, seconds, over = hashlib.blake2b(), 0, 0.0, threading.Event()

    def look() -> None:
        nonlocal most
        while not over.wait(0.01):
            most = max(most, read_anonymous())

    def advance(number: int) -> None:
        nonlocal seconds
        fed = make_step(number)
        feeds = dict.fromkeys(flow.needs, fed)
        upto = int(fed["__ts"][-1].as_py()) + SECOND - 1
        began = time.perf_counter()
        found = flow.advance(feeds, upto)[plan.key]
        seconds += time.perf_counter() - began
        for column in found.columns:
            for buffer in pa.concat_arrays(column.chunks).buffers():
                digest.update(buffer or b"")

    advance(0)
    before, seconds = read_anonymous(), 0.0
    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    for number in range(1, steps):
        advance(number)
    over.set()
    looking.join()
    return seconds, most - before, flow.size.files, digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()
    rows: list[list[object]] = []
    lines = {}
    for name in QUERIES:
        taken, first = [], None
        for megabytes in MEMORIES:
            spawn = multiprocessing.get_context("spawn")
            with tempfile.TemporaryDirectory() as folder, spawn.Pool(1) as pool:
                found = pool.apply(run, (name, megabytes, options.steps, folder))
            seconds, most, files, digest = found
            first = first or (seconds, digest)
            assert digest == first[1], f"{name} with {megabytes} MB gave other changes"
            rows.append([name, megabytes, most / 2**20, files / 2**20, seconds, seconds / first[0]])
            taken.append(most / 2**20)
        lines[name] = (MEMORIES, taken)
    columns = ["query", "memory for state, MB", "RssAnon, MB", "in files, MB", "seconds", "ratio"]
    show(f"State of {options.steps * STEP:,} elements a stream", columns, rows)
    picture("spilling", "Memory by the memory for state", "memory for state, MB", "MB", lines)


if __name__ == "__main__":
    main()
