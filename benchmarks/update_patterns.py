"""What does knowing how rows leave save? The update-pattern paper's five queries, figures 9 to 17.

Time and state per 1,000 connections once windows are full, for windows of 2,000 to 200,000 s and
three strategies: *negative* (windows announce every expiration by a negative tuple), *direct* (rows
carry their expirations, every operator finds them in its own state), and *aware* (each edge as its
update pattern allows; Millpond's default). The dataflow alone is measured, on one core, in steps of
`--step` seconds; a strategy a query's patterns forbid has no figure. Changes are kept, and must be
the same by every strategy.

    python benchmarks/update_patterns.py [--windows 2000,20000,200000] [--measured 20000]
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from _connections import SCHEMA, link
from _harness import console, picture, show
from millpond.catalog.objects import Definition, StreamDef
from millpond.cql.dialect import parse_query
from millpond.engine.dataflow import Dataflow
from millpond.errors import MillpondError
from millpond.planner.bind import bind
from millpond.planner.dataflow import Plan, plan_changes

LINKS = ("link1", "link2", "link3")
STRATEGIES = ("negative", "direct", "aware")
SECOND = 1_000_000

QUERIES = {
    "1 join, ftp (fig. 9)": (
        "SELECT a.src, a.payload, b.payload AS other FROM link1 {w} a, link2 {w} b "
        "WHERE a.src = b.src AND a.protocol = 'ftp' AND b.protocol = 'ftp'"
    ),
    "1 join, telnet (fig. 10)": (
        "SELECT a.src, a.payload, b.payload AS other FROM link1 {w} a, link2 {w} b "
        "WHERE a.src = b.src AND a.protocol = 'telnet' AND b.protocol = 'telnet'"
    ),
    "2 distinct sources (fig. 11, 13)": "SELECT DISTINCT src FROM link1 {w}",
    "2 distinct pairs (fig. 12, 14)": "SELECT DISTINCT src, dst FROM link1 {w}",
    "3 negation (fig. 15)": ("SELECT src FROM link1 {w} EXCEPT ALL SELECT src FROM link2 {w}"),
    "4 distinct, then join (fig. 16)": (
        "SELECT a.src FROM (SELECT DISTINCT src FROM link1 {w}) a, "
        "(SELECT DISTINCT src FROM link2 {w}) b WHERE a.src = b.src"
    ),
    "5 negation, then join (fig. 17)": (
        "SELECT n.src, c.payload FROM "
        "(SELECT src FROM link1 {w} EXCEPT ALL SELECT src FROM link2 {w}) n, "
        "link3 {w} c WHERE n.src = c.src AND c.protocol = 'ftp'"
    ),
}


class Catalog:
    """The three links."""

    def __init__(self) -> None:
        self._links = {n: StreamDef(i + 1, n, SCHEMA, "ts") for i, n in enumerate(LINKS)}

    def find(self, name: str) -> Definition | None:
        return self._links.get(name.lower())

    def names(self) -> list[str]:
        return list(LINKS)


def planned(text: str, strategy: str) -> Plan | None:
    """The query's plan by a strategy; None where the strategy is not one for it."""
    catalog = Catalog()
    bound = bind(parse_query(text), text, catalog)
    try:
        return plan_changes(bound, catalog, strategy=strategy)
    except MillpondError as error:
        if error.code != "CQL-214":
            raise
        return None


def steps(
    links: dict[str, pa.Table], plan: Plan, low: int, high: int, step: int
) -> Iterator[tuple[dict[str, pa.Table], int]]:
    """Feeds of `step` µs each from `low` (exclusive) to `high`, and the instants they reach."""
    stamps = {name: links[name]["__ts"].to_numpy() for name in plan.needs}
    for begin in range(low, high, step):
        end = min(begin + step, high)
        feeds = {}
        for name, columns in plan.needs.items():
            lo, hi = np.searchsorted(stamps[name], (begin, end), side="right")
            feeds[name] = links[name].select([*columns, "__ts", "__seq"]).slice(lo, hi - lo)
        yield feeds, end


def measure(
    plan: Plan, links: dict[str, pa.Table], window: int, measured: int, step: int
) -> tuple[float, int, str]:
    """(ms per 1,000 connections, rows of state in the end, a digest of the changes)."""
    flow = Dataflow(plan)
    warm, end = (window + 1) * SECOND, (window + 1 + measured) * SECOND
    for feeds, upto in steps(links, plan, 0, warm, max(step, window // 20) * SECOND):
        flow.advance(feeds, upto)
    kept: list[pa.Table] = []
    arrived = 0
    begun = time.perf_counter()
    for feeds, upto in steps(links, plan, warm, end, step * SECOND):
        arrived += sum(table.num_rows for table in feeds.values())
        kept.append(flow.advance(feeds, upto)[plan.key])
    took = time.perf_counter() - begun
    changes = pa.concat_tables(kept).combine_chunks()
    digest = hashlib.sha256()
    for column in changes.columns:
        for chunk in column.chunks:
            digest.update(np.ascontiguousarray(chunk.to_numpy(zero_copy_only=False)).tobytes())
    return took / arrived * 1e6, sum(flow.sizes().values()), digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", default="2000,20000,200000")
    parser.add_argument("--measured", type=int, default=20_000, help="seconds of traffic measured")
    parser.add_argument("--step", type=int, default=1_000, help="seconds of traffic a step")
    options = parser.parse_args()
    windows = [int(w) for w in options.windows.split(",")]
    longest = max(windows) + options.measured + 1_000
    links = {name: link(n, longest + 5_000) for n, name in enumerate(LINKS)}
    rows = []
    for about, text in QUERIES.items():
        lines: dict[str, tuple[list[int], list[float]]] = {}
        for window in windows:
            found: dict[str, tuple[float, int, str]] = {}
            for strategy in STRATEGIES:
                plan = planned(text.format(w=f"[RANGE {window} SECONDS]"), strategy)
                if plan is None:
                    continue
                found[strategy] = measure(plan, links, window, options.measured, options.step)
                xs, ys = lines.setdefault(strategy, ([], []))
                xs.append(window)
                ys.append(found[strategy][0])
            assert len({digest for _, _, digest in found.values()}) == 1, (about, window)
            others = [found[s][0] for s in STRATEGIES[:2] if s in found]
            rows.append(
                [
                    about,
                    window,
                    *(found[s][0] if s in found else None for s in STRATEGIES),
                    min(others) / found["aware"][0],
                    *(found[s][1] if s in found else None for s in STRATEGIES),
                ]
            )
        console.print(f"query {about} done")
        name = "update_patterns_" + "".join(c if c.isalnum() else "_" for c in about)[:24].strip(
            "_"
        )
        picture(name, f"Query {about}", "window, s", "ms per 1,000 connections", lines)
    show(
        "Update patterns",
        [
            "query",
            "window, s",
            *(f"{s}, ms per 1,000" for s in STRATEGIES),
            "better of the others / aware",
            *(f"{s}, rows of state" for s in STRATEGIES),
        ],
        rows,
    )


if __name__ == "__main__":
    main()
