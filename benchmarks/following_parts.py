"""What do many followed queries with a budget cost: served together, and each by itself?

Every query selects from one stream by two predicates of its own, wants the most frequent items
first, and has one probe for four elements. Together they are one family: regions are listed and
estimated once, ranked by one sort, and matched by one Query SteM (`engine/promising/step.py`). By
itself each is a family of one. Both find the same rows.

    python benchmarks/following_parts.py [--queries 1000] [--elements 4000] [--alone 50]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from _harness import console, show
from millpond.engine.joins.keys import Axis
from millpond.engine.promising.look import Look
from millpond.engine.promising.step import Family, FamilyState
from millpond.engine.promising.value_index import ValueIndex
from millpond.engine.scalars.residual_query import Residual
from millpond.model.time import BEGINNING, END
from millpond.runtime.advance_job import SegmentFile
from millpond.runtime.region_segments import RegionSegment
from millpond.runtime.summary_tasks import SummaryPlan
from millpond.service.changes.looks import make_look
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

_STEPS = 8


def make_pond(path: Path, elements: int) -> Pond:
    """A pond with one stream of items, and a summary of them."""
    pond = open_local(path)
    pond.execute(
        "CREATE STREAM s (ts TIMESTAMP, item INTEGER, price DOUBLE) TIMESTAMP BY ts;"
        "CREATE SUMMARY si ON s (item) WITH GRANULARITY INTERVAL 64 SECONDS AND COLLAPSE (4, 3)"
    )
    random = np.random.default_rng(7)
    ts = np.sort(random.integers(0, _STEPS * 1_000_000, elements)).astype("datetime64[us]")
    items = random.zipf(1.3, elements).clip(1, 500).astype(np.int32)
    pond.ingest("s", pa.table({"ts": ts, "item": items, "price": random.random(elements) * 100}))
    return pond


def make_looks(pond: Pond, count: int) -> list[Look]:
    """Queries with predicates of their own."""
    components = pond._components
    found = []
    for number in range(count):
        text = (
            f"SELECT ts, item FROM s [RANGE 20 SECONDS] WHERE price > {number % 90}"
            f" AND item <> {number % 7 + 1} WITH PREFERENCE DESC"
            " SUMMARY(si).ESTIMATE.COUNT(item) BUDGET '0.25 probes'"
        )
        look = make_look(components.log.version, components.registrar.bind(text))
        assert look is not None
        found.append(look)
    return found


def follow(pond: Pond, path: Path, looks: Sequence[Look]) -> tuple[float, list[int]]:
    """Make all steps of one family; the seconds of a step, and the rows found by each query."""
    version = pond._components.log.version
    stream = next(s for s in version.streams.values() if s.name == "s")
    files = [
        SegmentFile(r.path, r.checksum, r.seq_runs, r.min_ts, r.max_ts)
        for r in version.segments(stream.id)
    ]
    views = [RegionSegment(str(path), file) for file in files]
    index = ValueIndex(views, "item", Axis.INTEGER, BEGINNING, END - 1, END, with_nulls=True)
    plan = SummaryPlan.of(version.summaries["si"], "INTEGER")
    family, state = Family(looks, Residual()), FamilyState.of(len(looks))
    rows, seconds = np.zeros(len(looks), np.int64), 0.0
    for step in range(1, _STEPS + 1):
        line = step * looks[0].line
        summary = plan.begin(line)
        for view in views:
            summary = plan.add(summary, view.table, view.file.seq_runs, BEGINNING)
        assert summary.zones
        begun = time.perf_counter()
        found = family.step(state, [index], {0: summary}, line - looks[0].line - 1, line)
        seconds += time.perf_counter() - begun
        for number, own in found.items():
            rows[number] += len(own.priority)
    return seconds / _STEPS, rows.tolist()


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--elements", type=int, default=4_000)
    parser.add_argument("--alone", type=int, default=50, help="queries that are served one by one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        with make_pond(path, given.elements) as pond:
            looks = make_looks(pond, given.queries)
            follow(pond, path, looks[:2])  # compiled and opened
            together, rows = follow(pond, path, looks)
            some = looks[: given.alone]
            alone = [follow(pond, path, [look]) for look in some]
    assert [own for _, (own,) in alone] == rows[: len(some)]
    each = float(np.mean([seconds for seconds, _ in alone]))
    show(
        f"a step of {given.elements / _STEPS:,.0f} elements for {given.queries:,} queries",
        ("", "ms a query", "ms all"),
        [
            ("together", together / given.queries * 1e3, together * 1e3),
            (f"one by one ({len(some)} measured)", each * 1e3, each * given.queries * 1e3),
        ],
    )
    console.print(f"{sum(rows):,} rows found; both ways give the same number for every query.")


if __name__ == "__main__":
    main()
