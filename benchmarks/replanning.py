"""What does a plan cost that notices when rates turn over, beside plans that stay?

Three streams are joined over windows. First the third stream is slow, then the first is. So first
the second and third stream should be joined before the first, and then the first and second. One
pond has the monitor of plans, and made its plan before any data; three others have a fixed plan:
as written, the best for the first half, the best for the second. All get the same elements, in
turns, a second of stream time each; changes are kept and must be equal. Processor time of the whole
process is measured, with pushing and the monitor itself.

    python benchmarks/replanning.py [--seconds 40] [--rate 2000]
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from _harness import console, picture, show
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
QUERY = (
    "SELECT a.n AS x, c.n AS y FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS],"
    " c [RANGE 10 SECONDS] WHERE a.k = b.k AND b.v = c.v"
)
#: The order of joining, by the name of the plan; None: the monitor chooses.
ORDERS = {
    "as written": ["a", "b", "c"],
    "best before": ["b", "c", "a"],
    "best after": ["b", "a", "c"],
    "noticing": None,
}
#: The slow stream has so many times fewer elements.
SLOWER = 100
#: Seconds over which the cost at an end is taken.
LAST = 10


def start(store: Path, order: list[str] | None) -> Pond:
    pond = open_local(store, ManualClock())
    for name in "abc":
        columns = "ts TIMESTAMP, k INTEGER, v INTEGER, n INTEGER"
        pond.execute(f"CREATE STREAM {name} ({columns}) TIMESTAMP BY ts")
    options = "changes = 'from beginning', follow = true, keep_changes = 100000000"
    pond.execute(f"CREATE QUERY q WITH ({options}) AS {QUERY}")
    if order is not None:
        document = pond.export_plan()
        next(o for o in document["operators"].values() if o["order"])["order"] = order
        pond.adopt_plan(document)
        pond.execute("ALTER SYSTEM SET (replanning = 'never')")
    return pond


def make_elements(second: int, rate: int, seed: int) -> pa.Table:
    chance = np.random.default_rng((second, seed))
    stamps = np.sort(chance.integers(0, SECOND, rate)) + second * SECOND
    columns = {"ts": pa.array(stamps, pa.timestamp("us"))}
    for name, values in (("k", 500), ("v", 100_000), ("n", 1_000_000)):
        columns[name] = pa.array(chance.integers(0, values, rate), pa.int32())
    return pa.table(columns)


def advance(pond: Pond, elements: dict[str, pa.Table]) -> float:
    """Push a second's elements; return the milliseconds of processor until all is settled."""
    began = time.process_time()
    for name, rows in elements.items():
        pond.ingest(name, rows)
    pond.wait_until_matched()
    return (time.process_time() - began) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=40, help="of each half")
    parser.add_argument("--rate", type=int, default=2_000, help="of the fast streams")
    given = parser.parse_args()
    slow = given.rate // SLOWER
    spent: dict[str, list[float]] = {name: [] for name in ORDERS}
    with TemporaryDirectory(prefix="millpond-replanning-") as directory:
        ponds = {name: start(Path(directory) / name, order) for name, order in ORDERS.items()}
        for second in range(2 * given.seconds):
            turned = second >= given.seconds
            rates = (slow, given.rate, given.rate) if turned else (given.rate, given.rate, slow)
            elements = {
                name: make_elements(second, rate, seed)
                for seed, (name, rate) in enumerate(zip("abc", rates, strict=True))
            }
            for name, pond in ponds.items():
                spent[name].append(advance(pond, elements))
        changes = {name: pond.query("q").fetch(limit=100_000_000) for name, pond in ponds.items()}
        rows = {name: sorted(map(str, found.rows())) for name, found in changes.items()}
        assert all(rows[name] == rows["as written"] for name in rows), "changes are others"
        moves = ponds["noticing"].ask(
            "SELECT at, name, why FROM system$actions WHERE action = 'replan'"
        )
        console.print(f"{len(moves.rows())} moves, {len(rows['noticing']):,} equal changes")
        for pond in ponds.values():
            pond.close()
    table = []
    for name, each in spent.items():
        halves = each[: given.seconds], each[given.seconds :]
        ends = [statistics.median(half[-LAST:]) for half in halves]
        table.append((name, *ends, sum(each) / 1e3))
    columns = ("plan", "ms at the end of half 1", "ms at the end of half 2", "seconds in all")
    show("Plans that notice: processor time a second of stream time", columns, table)
    seconds = list(range(1, 2 * given.seconds + 1))
    picture(
        "replanning",
        f"Rates turn over after {given.seconds} seconds",
        "seconds of stream time",
        "ms of processor a second",
        {name: (seconds, each) for name, each in spent.items()},
    )


if __name__ == "__main__":
    main()
