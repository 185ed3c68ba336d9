"""What does knowing how rows leave save? The update-pattern paper's five queries, figures 9 to 17.

Time and state per 1,000 connections once windows are full, for windows of 2,000 to 200,000 s and
three strategies as the paper defines them: *negative* (windows announce every expiration by a
negative tuple), *direct* (rows carry their expirations, and every operator looks for them in state
that is in the order of arrival), and *aware* (what each edge's update pattern allows and is
expected to cost least; Millpond's default). One more query is written so that only a rewriting
makes it cheap: the duplicate-elimination push-down.

The dataflow alone is measured, in processor time, in steps of `--step` seconds: 1 is the paper's
setting, whose eager expiration interval is the time between two arrivals. Its lazy expiration
interval is five percent of the window (`--lazy 0.05`); Millpond's default is to drop what has
expired when it is as much as what is alive. A strategy a query's patterns forbid has no figure.
Changes are kept, and must be the same by every strategy; steps of the strategies are interleaved,
so that what else the machine does falls on all of them.

`--intervals` asks another question: what does the lazy interval cost, and what does it save? Then
*aware* alone is measured, over a whole window without gaps, with several intervals side by side.
`--partitions` asks how many partitions by expiration time a result needs (the paper's UPA(10) and
UPA(50), figure 10), beside *direct*, which looks at every row: whole windows again, in which the
rows wait that a join or a negation has to take back.

What to expect: the paper's factors come from lists that are scanned, and from results that are kept
and searched for what a negative tuple takes back. Operators over tables and columns do neither, and
followers are delivered changes, so that announcing costs little more than carrying. Then direct
suffers where large results are scanned at short steps, and `aware` is the better of the two for
joins and negations, up to twice as fast for duplicate elimination, and an order of magnitude faster
than both where it rewrites; and it keeps fewer rows.

    python benchmarks/update_patterns.py [--windows 2000,20000,200000] [--steps 1,100] [--plans]
        [--lazy 0.05] [--intervals | --partitions]
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pyarrow as pa

from _harness import console, picture, show
from millpond.catalog.objects import Definition, StreamDef
from millpond.cql.print.dialect import parse_query
from millpond.engine.dataflow.dataflow import Dataflow
from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.errors import MillpondError
from millpond.operators.distinct_announcing import LastCopies
from millpond.operators.distinct_delta_star import LongestLives
from millpond.operators.expire import Expire
from millpond.planner.bind.bind import bind
from millpond.planner.dataflow.plan import Plan, plan_changes
from millpond.planner.optimize.cost import PlanStatistics
from millpond.planner.optimize.statistics import ObservedStatistics, StreamSample
from workloads.connections import SCHEMA, link

LINKS = ("link1", "link2", "link3")
STRATEGIES = ("negative", "direct", "aware")
SECOND = 1_000_000
#: A strategy has no figure where it is expected to keep more rows than this.
MOST = 10_000_000
#: In how many stretches is measured.
STRETCHES = 10
#: Lazy expiration intervals that are compared, in shares of the window; None is the default.
SHARES = (None, 0.0, 0.01, 0.05, 0.25, 1.0)
#: Numbers of partitions by expiration time that are compared; the paper has 10 and 50.
PARTITIONS = (1, 10, 50, 250)
#: The queries of which rows wait in partitions, by the plan that is chosen.
PARTITIONED = (
    "1 join, ftp (fig. 9)",
    "1 join, telnet (fig. 10)",
    "3 negation (fig. 15)",
    "5 negation, then join (fig. 17)",
)
#: What of the queries keeps what has expired for a while.
LAZY = ("1 join, ftp (fig. 9)", "2 distinct pairs (fig. 12, 14)", "4 distinct, then join (fig. 16)")

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
    "3 negation (fig. 15)": "SELECT src FROM link1 {w} EXCEPT ALL SELECT src FROM link2 {w}",
    "4 distinct, then join (fig. 16)": (
        "SELECT a.src FROM (SELECT DISTINCT src FROM link1 {w}) a, "
        "(SELECT DISTINCT src FROM link2 {w}) b WHERE a.src = b.src"
    ),
    "4 written as join, then distinct": (
        "SELECT DISTINCT a.src FROM link1 {w} a, link2 {w} b WHERE a.src = b.src"
    ),
    "5 negation, then join (fig. 17)": (
        "SELECT n.src, c.payload FROM "
        "(SELECT a.src FROM link1 {w} a WHERE NOT EXISTS "
        "(SELECT 1 FROM link2 {w} b WHERE b.src = a.src AND b.protocol = 'nntp')) n, "
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


def known(links: dict[str, pa.Table], step: float) -> PlanStatistics:
    """What a pond knows that has seen the first 10,000 connections of each link."""
    samples = {}
    for name, table in links.items():
        rows = table.slice(0, 10_000)
        stamps = rows["__ts"].to_numpy()
        rate = len(stamps) * SECOND / float(stamps[-1] - stamps[0])
        samples[name] = StreamSample(rate, rows, table.num_rows)
    return ObservedStatistics(samples, DuckDBScalars(), steps=1 / step)


def planned(
    text: str,
    strategy: str,
    statistics: PlanStatistics,
    lazy: int | None = None,
    partitions: int | None = None,
) -> Plan | None:
    """The query's plan by a strategy, with a lazy expiration interval in microseconds and a number
    of partitions (None: Millpond's own choice); None where the strategy is not one for it."""
    catalog = Catalog()
    bound = bind(parse_query(text), text, catalog)
    try:
        return plan_changes(
            bound,
            catalog,
            strategy=strategy,
            known=statistics,
            lazy_expiration=lazy,
            partitions=partitions,
        )
    except MillpondError as error:
        if error.code != "CQL-214":
            raise
        return None


def steps(
    links: dict[str, pa.Table], plan: Plan, low: int, high: int, step: int
) -> Iterator[tuple[dict[str, pa.Table], int]]:
    """Feeds of `step` µs each from `low` (exclusive) to `high`, and the instants they reach."""
    stamps = {name: links[name]["__ts"].to_numpy() for name in plan.needs}
    tables = {n: links[n].select([*c, "__ts", "__seq"]) for n, c in plan.needs.items()}
    for begin in range(low, high, step):
        end = min(begin + step, high)
        feeds = {}
        for name, table in tables.items():
            lo, hi = np.searchsorted(stamps[name], (begin, end), side="right")
            feeds[name] = table.slice(lo, hi - lo)
        yield feeds, end


@dataclass
class Run:
    """A strategy at work on one query and window."""

    plan: Plan
    flow: Dataflow
    arrived: int = 0
    seconds: float = 0.0
    kept: list[pa.Table] = field(default_factory=list)
    states: list[int] = field(default_factory=list)

    def pass_by(self, links: dict[str, pa.Table], low: int, high: int, step: int) -> None:
        """Advances without being measured."""
        for feeds, upto in steps(links, self.plan, low, high, step):
            self.flow.advance(feeds, upto)

    def advance(self, feeds: dict[str, pa.Table], upto: int) -> None:
        """One more step."""
        self.arrived += sum(table.num_rows for table in feeds.values())
        begun = time.process_time()
        changes = self.flow.advance(feeds, upto)
        self.seconds += time.process_time() - begun
        self.kept.append(changes[self.plan.key])
        self.states.append(self.state)

    @property
    def milliseconds(self) -> float:
        """Per 1,000 connections."""
        return self.seconds / max(self.arrived, 1) * 1e6

    @property
    def state(self) -> int:
        return sum(self.flow.sizes().values())

    def digest(self) -> str:
        changes = pa.concat_tables(self.kept).combine_chunks()
        found = hashlib.sha256()
        for column in changes.columns:
            for chunk in column.chunks:
                found.update(np.ascontiguousarray(chunk.to_numpy(zero_copy_only=False)).tobytes())
        return found.hexdigest()

    def same_as(self, others: dict[str, Run]) -> str:
        """Whose plan it has, if that of another strategy: what differs then is chance."""
        same = [s for s, run in others.items() if run is not self and run.plan.key == self.plan.key]
        return f"as {same[0]}" if same else "its own"

    def bound(self) -> float | None:
        """How many times the rows it gives δ* keeps, at most; None if there is none in the plan."""
        sizes, worst = self.flow.sizes(), None
        for node in self.plan.nodes():
            if node.name == "distinct" and node.detail.startswith("δ*"):
                output = living(self.flow.operator(node.key), self.flow.position)
                worst = max(worst or 0.0, sizes[node.key] / max(output, 1))
        return worst


def living(operator: LastCopies | LongestLives, position: int) -> int:
    """How many of the rows that a δ* keeps are in its output."""
    if isinstance(operator, LastCopies):
        return operator._living
    return int((operator._given[: operator.size()] > position).sum())


def interval(share: float | None, window: int) -> int | None:
    """A share of a window of so many seconds in microseconds."""
    return None if share is None else int(share * window * SECOND)


def strategies(
    text: str, links: dict[str, pa.Table], window: int, step: int, share: float | None
) -> dict[str, Run]:
    """A run by each strategy that is one for the query."""
    runs = {}
    for strategy in STRATEGIES:
        plan = planned(text, strategy, known(links, step), interval(share, window))
        if plan is not None and (strategy == "aware" or _expected(plan) < MOST):
            runs[strategy] = Run(plan, Dataflow(plan))
    return runs


def measure(
    text: str,
    runs: dict[str, Run],
    links: dict[str, pa.Table],
    window: int,
    measured: int,
    step: int,
    stretches: int = STRETCHES,
) -> None:
    """Some runs of one query and window, from full windows on.

    Stretches are measured that are spread over one more window: what is eliminated as a duplicate
    comes back in waves, a window apart.
    """
    long_step, now = max(step, window // 20) * SECOND, 0
    for stretch in range(stretches):
        passed = now + (window + 1 if not stretch else window // stretches) * SECOND
        # A few steps of the length that is measured, so that state has its shape.
        begun = passed + 5 * step * SECOND
        for run in runs.values():
            run.pass_by(links, now, passed, long_step)
            run.pass_by(links, passed, begun, step * SECOND)
        now = begun + -(-measured // (stretches * step)) * step * SECOND
        own = [steps(links, run.plan, begun, now, step * SECOND) for run in runs.values()]
        gc.collect()  # one collection takes as long as a hundred steps, whosever it falls on
        gc.disable()
        for feeds in zip(*own, strict=True):
            for run, (tables, upto) in zip(runs.values(), feeds, strict=True):
                run.advance(tables, upto)
        gc.enable()
    assert len({run.digest() for run in runs.values()}) == 1, (text, window)


def _expected(plan: Plan) -> float:
    """The most rows that are expected to come, with their expirations, to who keeps them."""
    kept = [i.key for n in plan.nodes() if n.state for i in n.inputs if i.carries_expirations]
    return max((plan.estimates[key].output.rows for key in kept), default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", default="2000,20000,200000")
    parser.add_argument("--steps", default="1,100", help="seconds of traffic a step")
    parser.add_argument("--measured", type=int, default=200, help="steps that are measured")
    parser.add_argument("--plans", action="store_true", help="print what aware chose")
    parser.add_argument("--lazy", type=float, help="the lazy expiration interval, of the window")
    parser.add_argument("--intervals", action="store_true", help="compare lazy intervals")
    parser.add_argument("--partitions", action="store_true", help="compare numbers of partitions")
    options = parser.parse_args()
    windows = [int(w) for w in options.windows.split(",")]
    lengths = [int(s) for s in options.steps.split(",")]
    longest = 2 * max(windows) + (options.measured + 10 * STRETCHES) * max(lengths) + 1_000
    links = {name: link(n, longest + 5_000) for n, name in enumerate(LINKS)}
    for step in lengths:
        if options.intervals:
            lazy_intervals(links, windows, step)
        elif options.partitions:
            partitions_by_expiration(links, windows, step)
        else:
            one_step_length(links, windows, step, options)


def lazy_intervals(links: dict[str, pa.Table], windows: list[int], step: int) -> None:
    """What intervals cost and save, in a table."""
    rows = []
    for about, window in product(LAZY, windows):
        text = QUERIES[about].format(w=f"[RANGE {window} SECONDS]")
        plans = {
            "default" if share is None else f"{share:.0%}": planned(
                text, "aware", known(links, step), interval(share, window)
            )
            for share in SHARES
        }
        for name, run in whole_window(text, plans, links, window, step).items():
            mean = sum(run.states) / len(run.states)
            rows.append([about, window, name, run.milliseconds, mean, max(run.states)])
    show(
        f"Lazy expiration intervals, steps of {step} s",
        ["query", "window, s", "interval", "ms per 1,000", "rows of state, mean", "at most"],
        rows,
    )


def partitions_by_expiration(links: dict[str, pa.Table], windows: list[int], step: int) -> None:
    """What partitions cost and save: a table, and a picture for each query."""
    rows = []
    for about in PARTITIONED:
        lines: dict[str, tuple[list[float], list[float]]] = {}
        for window in windows:
            text = QUERIES[about].format(w=f"[RANGE {window} SECONDS]")
            statistics = known(links, step)
            plans = {"direct": planned(text, "direct", statistics)}
            if (direct := plans["direct"]) is not None and _expected(direct) > MOST:
                plans["direct"] = None
            for count in PARTITIONS:
                plans[f"UPA({count})"] = planned(text, "aware", statistics, partitions=count)
            for name, run in whole_window(text, plans, links, window, step).items():
                waiting = [n for n in run.plan.nodes() if isinstance(n, Expire)]
                held = sum(run.flow.sizes()[n.key] for n in waiting)
                rows.append([about, window, name, run.milliseconds, held, len(run.kept)])
                xs, ys = lines.setdefault(name, ([], []))
                xs.append(window)
                ys.append(run.milliseconds)
        name = f"update_patterns_{step}s_partitions_" + letters(about)
        title = f"Partitions by expiration, query {about}, steps of {step} s"
        picture(name, title, "window, s", "ms per 1,000 connections", lines)
    show(
        f"Partitions by expiration, steps of {step} s",
        ["query", "window, s", "partitions", "ms per 1,000", "rows that wait", "steps"],
        rows,
    )


def whole_window(
    text: str, plans: dict[str, Plan | None], links: dict[str, pa.Table], window: int, step: int
) -> dict[str, Run]:
    """A run by each plan that there is, measured over one whole window without gaps."""
    runs = {name: Run(plan, Dataflow(plan)) for name, plan in plans.items() if plan is not None}
    measure(text, runs, links, window, window, step, stretches=1)
    console.print(f"window {window} s, steps of {step} s: {text}")
    return runs


def letters(about: str) -> str:
    """A query's name as a part of a file's."""
    return "".join(c if c.isalnum() else "_" for c in about)


def one_step_length(
    links: dict[str, pa.Table], windows: list[int], step: int, options: argparse.Namespace
) -> None:
    """Table and pictures for steps of one length."""
    rows = []
    for about, text in QUERIES.items():
        times: dict[str, tuple[list[float], list[float]]] = {}
        states: dict[str, tuple[list[float], list[float]]] = {}
        for window in windows:
            query = text.format(w=f"[RANGE {window} SECONDS]")
            found = strategies(query, links, window, step, options.lazy)
            measure(query, found, links, window, options.measured * step, step)
            for strategy, run in found.items():
                for lines, value in ((times, run.milliseconds), (states, float(run.state))):
                    xs, ys = lines.setdefault(strategy, ([], []))
                    xs.append(window)
                    ys.append(value)
            others = [found[s].milliseconds for s in STRATEGIES[:2] if s in found]
            aware = found["aware"]
            rows.append(
                [
                    about,
                    window,
                    *(found[s].milliseconds if s in found else None for s in STRATEGIES),
                    min(others) / aware.milliseconds,
                    max(others) / aware.milliseconds,
                    *(found[s].state if s in found else None for s in STRATEGIES),
                    aware.bound(),
                    aware.same_as(found),
                ]
            )
            if options.plans:
                console.print(f"{about}, window {window} s, steps of {step} s:")
                console.print(aware.plan.explain_estimates_among({}))
        console.print(f"query {about} done, steps of {step} s")
        name = f"update_patterns_{step}s_" + letters(about)
        title = f"Query {about}, steps of {step} s"
        picture(name + "_time", title, "window, s", "ms per 1,000 connections", times)
        picture(name + "_state", title, "window, s", "rows of state", states)
    show(
        f"Update patterns, steps of {step} s",
        [
            "query",
            "window, s",
            *(f"{s}, ms per 1,000" for s in STRATEGIES),
            "better of the others / aware",
            "worse of the others / aware",
            *(f"{s}, rows of state" for s in STRATEGIES),
            "δ*'s rows / its output",
            "aware's plan is",
        ],
        rows,
    )


if __name__ == "__main__":
    main()
