"""How many rows does a join of two streams hold by the k of each constraint, kept and broken?

Orders come once, and what fulfils an order comes in three elements soon after (STREAM, CIDR 4.1).
A tenth of them refers to orders that never come.
The stream of fulfilments is made to adhere to its constraints with a known k; the constraints are
declared with k = 0 … 1,000. Where the declared k is smaller than the stream's, rows are read back.
All runs give the same changes, which is checked. Rows are means over the steps; the time is that of
the whole run, beside the run without constraints.

    make bench NAME=state_by_k
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import BEFORE, plan_query

from _harness import picture, show
from millpond.engine.dataflow.dataflow import Dataflow
from millpond.model.constraints import CLUSTERED, FOREIGN_KEY, ORDERED, UNIQUE, Constraint
from millpond.planner.optimize.statistics import GuessedStatistics

SECOND = 1_000_000
#: Orders of one step, and of a window.
STEP, WINDOW = 200, 10_000
KS = (0, 1, 3, 10, 30, 100, 300, 1_000)
QUERY = (
    f"SELECT f.item, o.amount FROM f [RANGE {WINDOW} SECONDS], o [RANGE {WINDOW} SECONDS]"
    " WHERE f.id = o.id"
)


def make_streams(orders: int, spread: int) -> dict[str, pa.Table]:
    """Make both streams: an order a second, three fulfilments of each up to `spread` later."""
    random = np.random.default_rng(3)
    at = np.arange(1, orders + 1) * SECOND
    known = random.random(orders) < 0.9
    own = np.repeat(2 * np.arange(orders) + ~known, 3)
    late = np.repeat(at, 3) + random.integers(0, spread * SECOND + 1, 3 * orders)
    order = np.argsort(late, kind="stable")
    columns = {"__ts": at, "__seq": np.arange(orders), "id": 2 * np.arange(orders)}
    fulfilled = {"__ts": late[order], "__seq": np.arange(3 * orders), "id": own[order]}
    return {
        "o": pa.table({**columns, "amount": np.arange(orders)}),
        "f": pa.table({**fulfilled, "item": np.arange(3 * orders)}),
    }


def constraints_of(kind: str, k: int) -> dict[str, tuple[Constraint, ...]]:
    unique = Constraint("u", UNIQUE, ("id",))
    if kind == CLUSTERED:
        return {"o": (unique,), "f": (Constraint("c", CLUSTERED, ("id",), rows=k),)}
    if kind == ORDERED:
        ordered = Constraint("c", ORDERED, ("id",), rows=k)
        return {"f": (ordered,), "o": (ordered,)}
    return {"o": (unique,), "f": (Constraint("c", FOREIGN_KEY, ("id",), "o", rows=k),)}


class Run:
    """A run of the query, with its mean state, its changes and what it read back."""

    def __init__(
        self, streams: dict[str, pa.Table], constraints: dict[str, tuple[Constraint, ...]]
    ) -> None:
        self._streams = streams
        pond = OraclePond()
        pond.execute("CREATE STREAM o (ts TIMESTAMP, id BIGINT, amount BIGINT) TIMESTAMP BY ts")
        pond.execute("CREATE STREAM f (ts TIMESTAMP, id BIGINT, item BIGINT) TIMESTAMP BY ts")
        known = GuessedStatistics()
        known.constraints = {name: (Constraint("u", UNIQUE, ("id",)),) for name in streams}
        plan = plan_query(pond.world, QUERY, known=known)
        (join,) = [node.key for node in plan.nodes() if len(node.inputs) == 2]
        flow = Dataflow(plan, since=BEFORE)
        flow.constrain(constraints)
        held, self.changes = [], []
        began = time.process_time()
        last = int(streams["f"]["__ts"][-1].as_py()) // SECOND
        for second in range(STEP, last + STEP, STEP):
            upto = second * SECOND
            feeds = {name: self._between(name, flow.position, upto) for name in streams}
            self.changes.append(flow.advance(feeds, upto, self._read_back)[plan.key])
            held.append(flow.sizes()[join])
        self.seconds = time.process_time() - began
        self.held = float(np.mean(held[len(held) // 3 :]))
        figures = flow.list_release_figures().get(join, [])
        self.recalled = max((one.recalled for one in figures), default=0)

    def _between(self, name: str, after: int, upto: int) -> pa.Table:
        ts = self._streams[name]["__ts"].to_numpy()
        lo, hi = np.searchsorted(ts, (after, upto), side="right")
        return self._streams[name].slice(lo, hi - lo)

    def _read_back(self, name: str, upto: int) -> Iterator[pa.Table]:
        yield self._between(name, upto - WINDOW * SECOND, upto)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=30_000)
    parser.add_argument("--spread", type=int, default=50)
    options = parser.parse_args()
    streams = make_streams(options.orders, options.spread)
    free = Run(streams, {})
    rows: list[list[object]] = [["none", "", free.held, 0, free.seconds]]
    lines = {"without constraints": (KS[1:], [free.held] * len(KS[1:]))}
    for kind in (CLUSTERED, ORDERED, FOREIGN_KEY):
        held = []
        for k in KS:
            one = Run(streams, constraints_of(kind, k))
            assert all(a.equals(b) for a, b in zip(free.changes, one.changes, strict=True))
            rows.append([kind, k, one.held, one.recalled, one.seconds])
            held.append(one.held)
        lines[kind] = (KS[1:], held[1:])
    columns = ["constraint", "k", "rows held", "rows read back", "seconds"]
    show(f"State of a join of {options.orders:,} orders by k", columns, rows)
    picture("state_by_k", "State of a join by k", "k", "rows held", lines)


if __name__ == "__main__":
    main()
