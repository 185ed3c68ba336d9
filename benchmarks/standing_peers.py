"""How fast are standing queries in Millpond beside other engines that have them, answers kept?

Two workloads: 1,000 queries of five ranges, of which an element matches 60; and 1,000, 10,000 and
100,000 equalities `a = k`, of which an element matches one. Each engine gets the same elements, as
many as it gets through in seconds, and its matches are compared in number and sum with a
computation of our own. The engines run in turns. Besides the clock, the seconds of the processor
are given, of all processes and threads of an engine: they are comparable where others use the
machine.

Millpond reads Parquet files through Spark, and writes elements and matches to a disk. The others
have their elements in memory, and keep numbers of elements in lists in memory.

    python benchmarks/standing_peers.py [--rows 4000000] [--repeats 3] [--ranges 1000]
        [--equalities 1000,10000,100000] [--only esper,lucene,bytewax,pathway] [--scale 1]
        [--timeout 600]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from _harness import console, processor_seconds, seconds, show, spread
from matching import matched
from millpond.service.open_pond import open_pond
from peers.standing import MISSING, PEERS, Peer
from workloads.interests import ATTRIBUTES, SPAN, ranges, texts

Run = dict[str, float]


class Workload:
    """Elements and queries of one kind, in the files and texts that engines take.

    Args:
        kind: `ranges` or `equalities`.
        queries: How many.
        rows: How many elements there are at most.
        base: Where the files lie.
    """

    def __init__(self, kind: str, queries: int, rows: int, base: Path) -> None:
        self.kind, self.queries, self.rows = kind, queries, rows
        random = np.random.default_rng(7)
        self._base = base / f"{kind}-{queries}"
        self._base.mkdir(parents=True)
        if kind == "ranges":
            self.table = random.integers(0, SPAN, (rows, len(ATTRIBUTES))).astype(np.int32)
            constants = ranges(queries).astype(np.int32)
            self.texts = texts(queries, "s")
        else:
            self.table = random.integers(0, queries, (rows, 1)).astype(np.int32)
            constants = random.permutation(queries).astype(np.int32)
            self.texts = [f"SELECT * FROM s WHERE a = {k}" for k in constants.tolist()]
        self.bounds = constants
        self.constants = self._base / "constants"
        constants.tofile(self.constants)
        self._expected: dict[int, tuple[int, int]] = {}

    def elements(self, rows: int) -> Path:
        """The file with the first elements."""
        path = self._base / f"elements-{rows}"
        if not path.exists():
            self.table[:rows].tofile(path)
        return path

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of an element: the peers have no more either."""
        return ATTRIBUTES[: self.table.shape[1]]

    def stream(self) -> str:
        """The statement that makes the stream of the elements in `parquet`."""
        attributes = ", ".join(f"{name} INTEGER" for name in self.attributes)
        return (
            f"CREATE STREAM s ({attributes})"
            f" USING parquet OPTIONS (path '{self.parquet()}', maxFilesPerTrigger '1000')"
        )

    def parquet(self) -> Path:
        """Parquet files of all elements."""
        folder = self._base / "parquet"
        if not folder.exists():
            folder.mkdir()
            for number, part in enumerate(np.array_split(self.table, 8)):
                columns = dict(zip(self.attributes, part.T, strict=True))
                pq.write_table(pa.table(columns), folder / f"part-{number:04d}.parquet")
        return folder

    def expected(self, rows: int) -> tuple[int, int]:
        """(matches, sum of the numbers of matching elements) of the first elements."""
        if rows not in self._expected:
            if self.kind == "equalities":
                self._expected[rows] = rows, rows * (rows - 1) // 2
            else:
                matches = total = 0
                for ends in self.bounds:
                    hit = np.ones(rows, bool)
                    for column, (low, high) in enumerate(ends):
                        values = self.table[:rows, column]
                        hit &= (values >= low) & (values <= high)
                    found = np.flatnonzero(hit)
                    matches, total = matches + len(found), total + int(found.sum())
                self._expected[rows] = matches, total
        return self._expected[rows]


def through_millpond(workload: Workload) -> Run:
    """One run of a pond of its own, on the Spark session there is."""
    from pyspark.sql import SparkSession

    store = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    try:
        with open_pond(store, bounded=True, spark=SparkSession.getActiveSession()) as pond:
            pond.execute(workload.stream())
            registered = seconds(
                lambda: pond.register_many([(t, None, {}) for t in workload.texts])
            )
            before = processor_seconds(os.getpid())
            took = seconds(pond._components.sources.read_to_end)
            used = processor_seconds(os.getpid()) - before
            matches = int(matched(pond))
            answer = pond.ask(workload.texts[0].replace("*", "count(*), sum(a)")).rows()
            check_one(workload, answer[0])
        if workload.rows <= 1_000_000 or workload.kind == "equalities":
            assert matches == workload.expected(workload.rows)[0]
        return {
            "rows": workload.rows,
            "seconds": took,
            "processor": used,
            "registered": registered,
        }
    finally:
        shutil.rmtree(store, ignore_errors=True)


def check_one(workload: Workload, answer: tuple[object, ...]) -> None:
    """Compare the first query's count and sum of `a` with a computation of our own."""
    hit = np.ones(workload.rows, bool)
    ends = workload.bounds[0].reshape(-1, 2) if workload.kind == "ranges" else None
    if ends is None:
        hit = workload.table[:, 0] == workload.bounds[0]
    else:
        for column, (low, high) in enumerate(ends):
            hit &= (workload.table[:, column] >= low) & (workload.table[:, column] <= high)
    values = workload.table[hit, 0].astype(np.int64)
    assert answer == (len(values), int(values.sum())), answer


def through_peer(peer: Peer, workload: Workload, scale: float, timeout: float) -> Run:
    """One run of a peer, whose matches are compared."""
    rows = peer.elements(workload.kind, workload.queries, scale, workload.rows)
    found = peer.run(workload.kind, workload.elements(rows), workload.constants, timeout)
    assert (found["matches"], found["sum"]) == workload.expected(rows), (peer.name, found)
    return found


def measure(
    workload: Workload, peers: list[Peer], repeats: int, scale: float, timeout: float
) -> list[list[object]]:
    """The rows of the table: Millpond and every peer, measured in turns."""
    engines: dict[str, Callable[[], Run]] = {"Millpond": lambda: through_millpond(workload)}
    skipped: dict[str, str] = {}
    for peer in peers:
        if not peer.is_installed():
            skipped[peer.name] = MISSING
        elif workload.queries > peer.most[workload.kind]:
            if peer.most[workload.kind]:
                skipped[peer.name] = f"over {peer.most[workload.kind]:,} queries: not tried"
        else:
            engines[peer.name] = lambda p=peer: through_peer(p, workload, scale, timeout)
    runs: dict[str, list[Run]] = {name: [] for name in engines}
    through_millpond(workload)  # the peers have half of their elements before their clock runs
    for _ in range(repeats):
        for name, run in engines.items():
            if name in skipped:
                continue
            try:
                runs[name].append(run())
            except RuntimeError as error:
                skipped[name] = str(error)
            else:
                last = runs[name][-1]
                by_clock, by_processor = (last["rows"] / last[s] for s in ("seconds", "processor"))
                console.print(
                    f"{workload.queries:,} {workload.kind}, {name}: {by_clock:,.0f}/s,"
                    f" {by_processor:,.0f} by second of the processor"
                )
    rows: list[list[object]] = []
    own = [run["rows"] / run["processor"] for run in runs["Millpond"]]
    own_clock = [run["rows"] / run["seconds"] for run in runs["Millpond"]]
    for name in [*engines, *(n for n in skipped if n not in engines)]:
        found = runs.get(name, [])
        heading = f"{workload.queries:,} {workload.kind}"
        if not found:
            rows.append([heading, name, None, None, None, None, None, None, skipped[name]])
            continue
        clock = [run["rows"] / run["seconds"] for run in found]
        used = [run["rows"] / run["processor"] for run in found]
        registered = [run["registered"] for run in found if "registered" in run]
        rows.append(
            [
                heading,
                name,
                int(found[0]["rows"]),
                spread(clock),
                spread(used),
                statistics.median(own_clock) / statistics.median(clock),
                statistics.median(own) / statistics.median(used),
                statistics.median(registered) if registered else None,
                skipped.get(name, ""),
            ]
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ranges", default="1000")
    parser.add_argument("--equalities", default="1000,10000,100000")
    parser.add_argument("--only", default="", help="peers whose names begin so")
    parser.add_argument("--scale", type=float, default=1, help="the peers' elements, by it")
    parser.add_argument("--timeout", type=float, default=600)
    options = parser.parse_args()
    wanted = tuple(options.only.lower().split(","))
    peers = [peer for peer in PEERS if peer.name.lower().startswith(wanted)]
    base = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    rows: list[list[object]] = []
    try:
        with open_pond(base / "session"):  # starts Spark; the ponds measured share its session
            through_millpond(Workload("ranges", 10, 100_000, base / "warm"))
            for kind, counts in (("ranges", options.ranges), ("equalities", options.equalities)):
                for queries in filter(None, counts.split(",")):
                    workload = Workload(kind, int(queries), options.rows, base)
                    rows += measure(
                        workload, peers, options.repeats, options.scale, options.timeout
                    )
    finally:
        shutil.rmtree(base, ignore_errors=True)
    show(
        "Standing queries beside other engines",
        [
            "queries",
            "engine",
            "elements",
            "elements/s",
            "by second of the processor",
            "Millpond / it, by the clock",
            "Millpond / it, by the processor",
            "registered, s",
            "",
        ],
        rows,
    )


if __name__ == "__main__":
    main()
