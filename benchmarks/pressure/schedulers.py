"""How much waits between operators by scheduler, while bursts arrive?

Elements of a stream arrive in bursts that are faster than the plan can work, and pauses. Each
scheduler runs the same plan over the same elements; a slice may be read once it has arrived. The
size of the queues is that of the input that has arrived and was not read, and of all outputs that
wait between operators. All runs give the same changes, which is checked.

The time is that of the operators: the clock stands still while nothing runs but for arrivals.

    make bench NAME=schedulers
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import BEFORE, plan_query

from _harness import RESULTS, console, show
from millpond.engine.dataflow.dataflow import Dataflow
from millpond.engine.dataflow.inputs import GivenInputs
from millpond.engine.dataflow.scheduling.policies import NAMES, make_policy
from millpond.engine.dataflow.scheduling.protocol import (
    OperatorRates,
    Ready,
    SchedulingPolicy,
)
from millpond.engine.dataflow.step import Scheduling

SECOND = 1_000_000
PLANS = {
    "select, group": "SELECT k, count(*) AS n, sum(v) AS t FROM s [RANGE 60 SECONDS]"
    " WHERE v < 0.2 GROUP BY k",
    "join, group": "SELECT a.k, count(*) AS n FROM s [RANGE 10 SECONDS] a, s [RANGE 10 SECONDS] b"
    " WHERE a.k = b.k AND a.v < 0.1 AND b.v > 0.9 GROUP BY a.k",
}
#: Bursts of arrivals, as shares of all elements: when each begins and ends, as shares of the time
#: that the plan takes for everything.
BURSTS = ((0.0, 0.1), (0.35, 0.45), (0.7, 0.75))


class BurstClock:
    """Goes on with the process's time, and ahead where nothing can run before more arrives."""

    def __init__(self) -> None:
        self._ahead = -time.process_time()

    def __call__(self) -> float:
        return time.process_time() + self._ahead

    def skip_to(self, instant: float) -> None:
        self._ahead += max(0.0, instant - self())


class Arriving:
    """A policy over another, for which slices arrive at given times; it notes what waits."""

    def __init__(
        self, policy: SchedulingPolicy, clock: BurstClock, arrivals: Sequence[float], size: float
    ) -> None:
        self._policy, self._clock = policy, clock
        self._arrivals, self._size = arrivals, size
        self._sources: set[int] = set()
        self.times: list[float] = []
        self.sizes: list[float] = []

    def learn(self, operators: Sequence[OperatorRates]) -> None:
        read = {place for one in operators for place in one.readers}
        self._sources = set(range(len(operators))) - read
        self._policy.learn(operators)

    def choose(self, ready: Sequence[Ready], now: float) -> Ready:
        there = [one for one in ready if self._has_arrived(one, now)]
        if not there:
            first = min(ready, key=lambda one: one.oldest)
            self._clock.skip_to(self._arrivals[first.oldest])
            return self.choose(ready, self._clock())
        arrived = int(np.searchsorted(self._arrivals, now, side="right"))
        heads = [one.oldest for one in ready if one.place in self._sources]
        unread = max(0, arrived - min(heads, default=arrived))
        waiting = sum(one.size for one in ready if one.place not in self._sources)
        self.times.append(now)
        self.sizes.append(unread * self._size + waiting)
        return self._policy.choose(there, now)

    def _has_arrived(self, one: Ready, now: float) -> bool:
        if one.place not in self._sources or one.oldest >= len(self._arrivals):
            return True
        return self._arrivals[one.oldest] <= now


def make_feed(elements: int) -> pa.Table:
    random = np.random.default_rng(7)
    return pa.table(
        {
            "__ts": np.arange(elements) * SECOND // 1_000,
            "__seq": np.arange(elements),
            "k": random.integers(0, 500, elements),
            "v": random.random(elements),
        }
    )


def make_arrivals(slices: int, seconds: float) -> list[float]:
    """When each slice arrives: in bursts, evenly within each."""
    parts = np.array_split(np.arange(slices), len(BURSTS))
    times = [
        np.linspace(begin * seconds, end * seconds, len(part))
        for part, (begin, end) in zip(parts, BURSTS, strict=True)
    ]
    return [float(one) for one in np.concatenate(times)]


def draw(name: str, lines: dict[str, tuple[list[float], list[float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    for label, (times, sizes) in lines.items():
        axes.step(times, np.array(sizes) / 2**20, where="post", label=label)
    axes.set(title=f"What waits: {name}", xlabel="seconds of work", ylabel="MB in queues")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    console.print(f"picture: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=600_000)
    parser.add_argument("--memory", type=int, default=16 << 20)
    options = parser.parse_args()
    pond = OraclePond()
    pond.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts")
    feed = make_feed(options.elements)
    last = int(feed["__ts"][-1].as_py())
    rows: list[list[object]] = []
    for name, text in PLANS.items():
        plan = plan_query(pond.world, text)
        expected, lines = None, {}
        flow = Dataflow(plan, since=BEFORE)
        begun = time.process_time()
        flow.schedule(Scheduling(memory=options.memory))
        flow.advance(GivenInputs({"s": feed}), last)  # also compiles what is compiled
        slices, seconds = flow.queues.slices, time.process_time() - begun
        if not slices:
            parser.error("so few elements are taken whole: ask for more, or for less --memory")
        for policy in NAMES:
            clock = BurstClock()
            arrivals = make_arrivals(slices, seconds)
            own = Arriving(make_policy(policy), clock, arrivals, feed.nbytes / slices)
            flow = Dataflow(plan, since=BEFORE)
            memory = options.memory
            scheduling = Scheduling(policy, None, memory, clock, lambda _, __, own=own: own)
            flow.schedule(scheduling)
            changes = flow.advance(GivenInputs({"s": feed}), last)[plan.key]
            assert expected is None or changes == expected
            expected = changes
            lines[policy] = (own.times, own.sizes)
            spans = np.diff([*own.times, own.times[-1]])
            mean = float((np.array(own.sizes) * spans).sum() / max(spans.sum(), 1e-9))
            peak = max(own.sizes)
            rows.append([name, policy, peak / 2**20, mean / 2**20, own.times[-1]])
        RESULTS.mkdir(exist_ok=True)
        file = "schedulers_" + name.replace(", ", "_")
        draw(name, lines, RESULTS / f"{file}.svg")
    columns = ["plan", "scheduler", "peak MB", "mean MB", "seconds"]
    show(f"Queues by scheduler, {options.elements:,} elements in bursts", columns, rows)


if __name__ == "__main__":
    main()
