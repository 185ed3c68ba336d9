"""Who should select first, the filter or the join? Stocks with articles, as CACQ's figure 11 asks.

`SELECT * FROM stocks s, articles a WHERE s.price > x AND s.symbol = a.symbol`, from 1 to 200
queries that differ in x, in three plans built from the same parts: NiagaraCQ's *PushDown* (one
grouped filter, then a join for each query), its *PullUp* (one join, then the grouped filter over
what it gives), and CACQ's: an eddy that routes morsels by tickets. Then the same with an expensive
function in each query instead of `price > x`, and 1, 10 or 100 articles a stock. All give the same
tuples with the same query sets, which is checked.

    python benchmarks/joins_and_selections.py [--stocks 50000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import sqlglot

from _harness import median_seconds, picture, show
from millpond.catalog.objects import StreamDef
from millpond.cql.print.dialect import parse_query
from millpond.engine.eddy.eddy import Eddy, Module
from millpond.engine.eddy.routing import policy
from millpond.engine.joins.join import Composites, PairLimit, SteMProbe
from millpond.engine.joins.join_stem import JoinSteM, StemPart, with_time
from millpond.engine.joins.plan import JoinPlan, plan_join
from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import snapshot_queries
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.predicates.factors import factorize
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.model.schema import Field, Schema
from millpond.planner.bind.bind import bind

STOCKS = Schema((Field("symbol", "INTEGER"), Field("price", "DOUBLE")))
ARTICLES = Schema((Field("symbol", "INTEGER"), Field("text", "VARCHAR")))
JOIN = "SELECT * FROM stocks s, articles a WHERE s.symbol = a.symbol"
MORSEL = 8_192
MOST = 10**9


class Catalog:
    """The two streams."""

    def find(self, name: str) -> StreamDef | None:
        schema = {"stocks": STOCKS, "articles": ARTICLES}.get(name.lower())
        return StreamDef(len(name), name.lower(), schema) if schema else None

    def names(self) -> list[str]:
        return ["stocks", "articles"]


def join_plan() -> JoinPlan:
    bound = bind(parse_query(JOIN), JOIN, Catalog())
    assert bound.join is not None
    plan = plan_join(bound.join, bound.literals, ["stocks", "articles"], [None, None])
    assert plan is not None
    return plan


@dataclass
class PriceFilter:
    """The grouped filter on `stocks.price`: gives every tuple its query set."""

    stocks: pa.Table
    stem: StemSnapshot
    predicates: int
    name: str = "price"

    def is_ready(self, morsel: Composites) -> bool:
        return 0 in morsel.places

    def process(self, morsel: Composites) -> Composites:
        found = match(
            self.stocks.take(morsel.places[0]), self.stem, ScalarEvaluator.of_this_thread()
        )
        sets = np.zeros((len(morsel), -(-self.predicates // 64)), np.uint64)
        reader = found.reader()
        for query in reader.slots.tolist():
            rows = reader.rows(query, 0, len(morsel))
            sets[rows, query >> 6] |= np.uint64(1) << np.uint64(query & 63)
        return Composites(morsel.places, morsel.count, sets).take(sets.any(axis=1))


@dataclass
class ExpensiveFunction:
    """One query's function of a stock, which takes `cost` seconds a tuple."""

    prices: np.ndarray
    threshold: float
    cost: float
    number: int
    predicates: int = 1

    @property
    def name(self) -> str:
        return f"function {self.number}"

    def is_ready(self, morsel: Composites) -> bool:
        return 0 in morsel.places

    def process(self, morsel: Composites) -> Composites:
        until = time.perf_counter() + self.cost * len(morsel)
        holds = self.prices[morsel.places[0]] > self.threshold
        while time.perf_counter() < until:
            pass
        bit = np.uint64(1) << np.uint64(self.number)
        before = (
            morsel.sets if morsel.sets is not None else np.full((len(morsel), 1), ~np.uint64(0))
        )
        sets = np.where(holds[:, None], before, before & ~bit)
        return Composites(morsel.places, morsel.count, sets).take(sets.any(axis=1))


class Bench:
    """Stocks, articles and queries, and the plans that answer them."""

    def __init__(self, stocks: int, per_stock: int, thresholds: np.ndarray) -> None:
        chance = np.random.default_rng(4)
        self.count = stocks
        self.thresholds = thresholds
        self.stocks = pa.table(
            {
                "symbol": chance.permutation(stocks).astype(np.int32),
                "price": chance.random(stocks) * 100,
            }
        )
        symbols = np.repeat(np.arange(stocks, dtype=np.int32), per_stock)
        self.articles = pa.table(
            {"symbol": chance.permutation(symbols), "text": pa.array(["news"] * len(symbols))}
        )
        self.plan = join_plan()
        bounds = [
            (n, factorize(sqlglot.parse_one(f"price > {x!r}", read="duckdb"), STOCKS))
            for n, x in enumerate(thresholds.tolist())
        ]
        self.stem = snapshot_queries(bounds, STOCKS)

    def filter(self) -> PriceFilter:
        return PriceFilter(self.stocks, self.stem, len(self.thresholds))

    def functions(self, cost: float) -> list[ExpensiveFunction]:
        prices = self.stocks["price"].to_numpy()
        return [ExpensiveFunction(prices, x, cost, n) for n, x in enumerate(self.thresholds)]

    def probe(self) -> SteMProbe:
        stems = [JoinSteM([StemPart(with_time(t, None))]) for t in (self.stocks, self.articles)]
        return SteMProbe(self.plan, 1, stems, PairLimit(MOST))

    def morsels(self) -> Iterator[Composites]:
        for first in range(0, self.count, MORSEL):
            places = np.arange(first, min(first + MORSEL, self.count), dtype=np.int64)
            yield Composites({0: places}, len(places))

    def cacq(self, others: list[Module[Composites]]) -> list[Composites]:
        eddy: Eddy[Composites] = Eddy(policy("ticket", 1))
        return list(eddy.route(self.morsels(), [*others, self.probe()]))

    def pull_up(self, others: list[Module[Composites]]) -> list[Composites]:
        eddy: Eddy[Composites] = Eddy(policy("fixed", 1))
        return list(eddy.route(self.morsels(), [self.probe(), *others]))

    def push_down(self) -> list[list[Composites]]:
        """One join for each query: their selections are different sets of tuples."""
        chosen, probe = self.filter(), self.probe()
        selected = [chosen.process(morsel) for morsel in self.morsels()]
        joined = []
        for query in range(len(self.thresholds)):
            word, bit = query >> 6, np.uint64(1) << np.uint64(query & 63)
            mine = [m.take((m.sets[:, word] & bit) != 0) for m in selected if m.sets is not None]
            joined.append([probe.process(m) for m in mine])
        return joined


def answers(found: list[Composites], queries: int) -> list[int]:
    """How many tuples each query gets."""
    counts = np.zeros(queries, np.int64)
    for morsel in found:
        assert morsel.sets is not None
        for query in range(queries):
            bit = np.uint64(1) << np.uint64(query & 63)
            counts[query] += int(((morsel.sets[:, query >> 6] & bit) != 0).sum())
    return counts.tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stocks", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    chance = np.random.default_rng(9)

    def timed(work: Callable[[], object]) -> float:
        return median_seconds(work, options.repeats) * 1e3

    rows = []
    counts = [1, 10, 50, 100, 200]
    for queries in counts:
        thresholds = np.sort(chance.random(queries) * 60 + 40)
        bench = Bench(options.stocks, 1, thresholds)
        want = answers(bench.cacq([bench.filter()]), queries)
        assert answers(bench.pull_up([bench.filter()]), queries) == want
        assert [sum(map(len, found)) for found in bench.push_down()] == want
        rows.append(
            [
                queries,
                timed(lambda b=bench: b.cacq([b.filter()])),
                timed(lambda b=bench: b.pull_up([b.filter()])),
                timed(bench.push_down),
            ]
        )
    show(
        f"Selections over a join of {options.stocks:,} stocks",
        ["queries", "CACQ, ms", "PullUp, ms", "PushDown, ms"],
        rows,
    )
    lines = {
        name: (counts, [r[i] for r in rows])
        for i, name in enumerate(("CACQ", "PullUp", "PushDown"), 1)
    }
    picture("joins_and_selections", "Selections over a join", "queries", "ms", lines)

    rows = []
    few = max(50, options.stocks // 500)
    for per_stock in (1, 10, 100):
        bench = Bench(few, per_stock, chance.random(8) * 100)
        costs = chance.uniform(10e-6, 500e-6, 8)

        def functions(b: Bench = bench, costs: np.ndarray = costs) -> list[Module[Composites]]:
            made = b.functions(0.0)
            for function, cost in zip(made, costs, strict=True):
                function.cost = float(cost)
            return list(made)

        assert answers(bench.cacq(functions()), 8) == answers(bench.pull_up(functions()), 8)
        rows.append(
            [
                per_stock,
                timed(lambda b=bench, f=functions: b.cacq(f())),
                timed(lambda b=bench, f=functions: b.pull_up(f())),
            ]
        )
    show(
        f"Eight expensive functions over a join of {few} stocks",
        ["articles a stock", "CACQ, ms", "PullUp, ms"],
        rows,
    )


if __name__ == "__main__":
    main()
