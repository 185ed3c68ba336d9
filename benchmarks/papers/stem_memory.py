"""What do SteMs save of the memory of joins? CACQ's section 3.3: SteMs and intermediate indexes.

The paper's example: every three of n sources are joined on the time by a query of their own. A plan
of pipelined joins keeps an index for every pair of sources that it joins first (*intermediate
indexes*); plans share these, and (n-1)(n-2)/2 are left. SteMs index each source once. The paper has
128 bytes a tuple, one match of each tuple in each other source, and an hour of readings, one a
second. It computes the bytes; here they are measured.

*SteMs*: the queries are answered when asked. Bytes are those of the control tables: kept elements
and their runs, and beside them the pairs that joins have stored, which the paper's SteMs do not do.
*Pipelined joins*: the same queries are followed, in one dataflow that shares equal parts. Bytes are
those of the sides of joins, in memory; a side that several joins have is counted once.

    python benchmarks/papers/stem_memory.py [--sources 3,4,6,8,10] [--readings 3600]
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa

from _harness import console, picture, show
from millpond.catalog.objects import Definition, StreamDef
from millpond.cql.print.dialect import parse_query
from millpond.engine.dataflow.dataflow import Dataflow
from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.engine.dataflow.state_memory import measure_state
from millpond.model.schema import Field, Schema
from millpond.operators.join import Join
from millpond.operators.protocol.node import Node
from millpond.planner.bind.bind import bind
from millpond.planner.dataflow.plan import Plan, plan_changes
from millpond.planner.optimize.statistics import ObservedStatistics, StreamSample
from millpond.service.pond import Pond
from millpond.testing.local_runtime import LocalRuntime

START = 1_577_836_800_000_000
SECOND = 1_000_000
#: Besides timestamp and second of a reading: a tuple has 128 bytes, as the paper's.
PAYLOAD = "x" * 116
SCHEMA = Schema((Field("ts", "TIMESTAMP"), Field("second", "INTEGER"), Field("payload", "VARCHAR")))
#: Seconds of readings a step of the dataflow.
STEP = 60


def query(sources: tuple[int, ...]) -> str:
    """The join of some sources on the second of their readings."""
    names = [f"s{n}" for n in sources]
    columns = ", ".join(f"{name}.payload AS {name}" for name in names)
    windows = ", ".join(f"{name} [RANGE 1 HOUR]" for name in names)
    equal = " AND ".join(f"{names[0]}.second = {name}.second" for name in names[1:])
    return f"SELECT {columns} FROM {windows} WHERE {equal}"


def readings(count: int) -> pa.Table:
    """A reading a second."""
    seconds = np.arange(count, dtype=np.int32)
    return pa.table(
        {
            "ts": pa.array(START + seconds.astype(np.int64) * SECOND, pa.timestamp("us")),
            "second": seconds,
            "payload": pa.array([PAYLOAD] * count),
        }
    )


class Catalog:
    """The sources."""

    def __init__(self, sources: int) -> None:
        names = [f"s{n}" for n in range(sources)]
        self._streams = {n: StreamDef(i + 1, n, SCHEMA, "ts") for i, n in enumerate(names)}

    def find(self, name: str) -> Definition | None:
        return self._streams.get(name.lower())

    def names(self) -> list[str]:
        return list(self._streams)


def measure_stems(sources: int, texts: list[str], count: int) -> tuple[int, int, int]:
    """Bytes of kept elements, of their runs, and of stored pairs."""
    found = {"segments": 0, "stem": 0, "join": 0}
    with (
        tempfile.TemporaryDirectory(prefix="millpond-bench-") as directory,
        Pond(Path(directory, "store"), LocalRuntime()) as pond,
    ):
        for number in range(sources):
            pond.execute(
                f"CREATE STREAM s{number} (ts TIMESTAMP, second INTEGER, payload STRING)"
                " TIMESTAMP BY ts"
            )
        handles = [pond.register(text) for text in texts]
        for number in range(sources):
            pond.ingest(f"s{number}", readings(count))
        pond.catch_up()
        pond.wait_until_matched()
        assert all(handle.invoke().table.num_rows == count for handle in handles)
        for entity in pond.entities.every():
            kind = entity.id.partition(":")[0]
            if kind in found:
                found[kind] += entity.figures["bytes"]
    return found["segments"], found["stem"], found["join"]


def measure_pipelines(sources: int, texts: list[str], count: int) -> tuple[int, int, int]:
    """Bytes of indexes on sources, of intermediate ones, and how many of these there are."""
    catalog, raw = Catalog(sources), readings(count)
    table = raw.append_column("__ts", raw["ts"].cast(pa.int64()))
    table = table.append_column("__seq", pa.array(np.arange(count, dtype=np.int64)))
    samples = {name: StreamSample(1.0, table.slice(0, 1_000), count) for name in catalog.names()}
    plans: list[Plan] = []
    running: set[str] = set()
    for text in texts:  # each is planned around those that run, so that it shares what it can
        known = ObservedStatistics(samples, DuckDBScalars(), running=running, steps=1 / STEP)
        plans.append(plan_changes(bind(parse_query(text), text, catalog), catalog, known=known))
        running |= {node.key for node in plans[-1].nodes()}
    flow = Dataflow(*plans)
    for begin in range(0, count, STEP):
        step = table.slice(begin, STEP)
        feeds = {name: step.select([*c, "__ts", "__seq"]) for name, c in flow.needs.items()}
        flow.advance(feeds, START + (begin + STEP - 1) * SECOND)
    # Each join has sides of its own. One index for all that probe an input by a key is counted.
    indexes: dict[tuple[str, tuple[int, ...]], tuple[bool, int]] = {}
    for node in {node.key: node for plan in plans for node in plan.nodes()}.values():
        if isinstance(node, Join):
            join = flow.operator(node.key)
            for side, keys, rows in (
                (node.left, node.left_keys, join._left),
                (node.right, node.right_keys, join._right),
            ):
                indexes[side.key, keys] = is_of_joins(side), measure_state(rows).memory
    of_sources = sum(size for of_joins, size in indexes.values() if not of_joins)
    of_joins = [size for of_joins, size in indexes.values() if of_joins]
    return of_sources, sum(of_joins), len(of_joins)


def is_of_joins(node: Node) -> bool:
    """Whether rows of a node are pairs."""
    return isinstance(node, Join) or any(is_of_joins(below) for below in node.inputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", default="3,4,6,8,10")
    parser.add_argument("--readings", type=int, default=3_600)
    options = parser.parse_args()
    rows = []
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for count in map(int, options.sources.split(",")):
        texts = [query(chosen) for chosen in combinations(range(count), 3)]
        elements, runs, pairs = measure_stems(count, texts, options.readings)
        of_sources, of_joins, intermediate = measure_pipelines(count, texts, options.readings)
        stems, pipelines = elements + runs, of_sources + of_joins
        sizes = [elements, runs, pairs, of_sources, of_joins]
        megabytes = [size / 1e6 for size in sizes]
        rows.append([count, len(texts), *megabytes, intermediate, pipelines / stems])
        for name, size in (
            ("SteMs", stems),
            ("SteMs and stored pairs", stems + pairs),
            ("pipelined joins", pipelines),
        ):
            xs, ys = lines.setdefault(name, ([], []))
            xs.append(count)
            ys.append(size / 1e6)
        console.print(f"{count} sources, {len(texts)} queries done")
    show(
        "Memory of SteMs and of intermediate indexes (CACQ 3.3)",
        [
            "sources",
            "queries",
            "elements, MB",
            "runs of SteMs, MB",
            "stored pairs, MB",
            "indexes on sources, MB",
            "intermediate indexes, MB",
            "of these",
            "pipelined joins / SteMs",
        ],
        rows,
    )
    picture("stem_memory", "Memory of joins of three (CACQ 3.3)", "sources", "MB", lines)


if __name__ == "__main__":
    main()
