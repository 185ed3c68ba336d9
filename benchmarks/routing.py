"""How many modules does a tuple visit under each routing policy, and how fast does it adapt?

CACQ, section 4: figure 8 with the queries of table 3, figure 9 with the workloads of table 4.
Tuples of five attributes, uniform in [0, 100), go through the grouped filters of the real match
path, a batch at a time; every batch is one morsel of one block of queries. *Optimal* is the
paper's: from the most to the least selective filter, by calculation. A fixed plan has the order of
what the filters' tables let through, which over uniform values is the optimal one. In figure 9 a
query is introduced every 50 batches, and what is drawn is each filter's share of the tickets.

    python benchmarks/routing.py [--batches 1000] [--rows 4096]
"""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow as pa
import sqlglot

from _harness import RESULTS, console, show
from millpond.engine.eddy.eddy import Router
from millpond.engine.eddy.routing import POLICIES, policy
from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import snapshot_queries
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.predicates.factors import factorize
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.model.schema import Field, Schema

ATTRIBUTES = "abcde"
SCHEMA = Schema(tuple(Field(name, "INTEGER") for name in ATTRIBUTES))
STEP = 50


def growing(bounds: dict[str, int]) -> list[str]:
    """The paper's nested queries: each has one factor more."""
    factors = [f"{name} > {bound}" for name, bound in bounds.items()]
    return [" AND ".join(factors[: i + 1]) for i in range(len(factors))]


TABLE_3 = growing({"a": 90, "b": 70, "c": 50, "d": 30, "e": 10})
TABLE_4 = {
    "independent": ["a > 30", "b > 50", "c > 10", "d > 40", "e > 90"],
    "equally selective": growing(dict.fromkeys(ATTRIBUTES, 10)),
    "increasingly selective": growing({"a": 10, "b": 30, "c": 50, "d": 70, "e": 90}),
}


def optimal(passing: list[float]) -> float:
    """Filters a tuple enters when the most selective ones come first."""
    share, visited = 1.0, 0.0
    for passed in passing:
        visited += share
        share *= passed
    return visited


def stem(queries: list[str]) -> StemSnapshot:
    factors = [factorize(sqlglot.parse_one(q, read="duckdb"), SCHEMA) for q in queries]
    return snapshot_queries(list(enumerate(factors)), SCHEMA)


def batch(rows: int, chance: np.random.Generator) -> pa.Table:
    return pa.table({n: chance.integers(0, 100, rows).astype(np.int32) for n in ATTRIBUTES})


def figure_8(batches: int, rows: int) -> None:
    """Modules visited per tuple, by policy."""
    snapshot = stem(TABLE_3)
    best = optimal([0.09, 0.29, 0.49, 0.69, 0.89])
    found = [["optimal", best, 1.0]]
    for name in POLICIES:
        router, chance = Router(policy(name, 1)), np.random.default_rng(2)
        for _ in range(batches):
            match(batch(rows, chance), snapshot, ScalarEvaluator.of_this_thread(), router=router)
        visited = router.ledger.visits / router.ledger.routed
        found.append([name, visited, visited / best])
    show(
        "Modules visited per tuple (CACQ figure 8)",
        ["policy", "modules", "of optimal"],
        sorted(found, key=lambda row: float(row[1])),
    )


def figure_9(rows: int) -> dict[str, tuple[list[int], dict[str, list[float]]]]:
    """Per workload: batch numbers, and per attribute the share of the tickets at each."""
    drawn = {}
    for title, queries in TABLE_4.items():
        router, chance = Router(policy("ticket", 3)), np.random.default_rng(4)
        shares: dict[str, list[float]] = {name: [] for name in ATTRIBUTES}
        at = []
        for number in range(STEP * (len(queries) + 2)):
            there = queries[: number // STEP + 1]
            if number % STEP == 0:
                snapshot = stem(there)
            match(batch(rows, chance), snapshot, ScalarEvaluator.of_this_thread(), router=router)
            accounts = router.ledger.accounts
            total = sum(account.tickets for account in accounts.values())
            at.append(number)
            for name in ATTRIBUTES:
                own = accounts[name].tickets if name in accounts else 0.0
                shares[name].append(100 * own / total)
        drawn[title] = at, shares
    return drawn


def draw(drawn: dict[str, tuple[list[int], dict[str, list[float]]]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, every = pyplot.subplots(1, len(drawn), figsize=(13, 4), sharey=True)
    for axes, (title, (at, shares)) in zip(every, drawn.items(), strict=True):
        for name, share in shares.items():
            smooth = np.convolve(share, np.ones(7) / 7, mode="same")
            axes.plot(at[4:-4], smooth[4:-4], label=f"s.{name}")
        axes.set(title=title, xlabel="batch")
        axes.grid(True, alpha=0.3)
    every[0].set(ylabel="% of tickets")
    every[-1].legend()
    RESULTS.mkdir(exist_ok=True)
    figure.tight_layout()
    figure.savefig(RESULTS / "routing.png", dpi=120)
    pyplot.close(figure)
    console.print(f"picture: {RESULTS / 'routing.png'}")


def settled(at: list[int], shares: dict[str, list[float]]) -> list[object]:
    """Each filter's share at the end, and the batches it took after the last query came."""
    last = {name: float(np.mean(share[-STEP:])) for name, share in shares.items()}
    after = STEP * 4
    steady = next(
        (
            n - after
            for n in range(after, at[-1] - 10)
            if all(abs(float(np.mean(shares[a][n : n + 10])) - last[a]) < 5.0 for a in ATTRIBUTES)
        ),
        None,
    )
    return [*last.values(), steady]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=4_096)
    options = parser.parse_args()
    figure_8(options.batches, options.rows)
    drawn = figure_9(options.rows)
    show(
        "Percentage of tickets by filter once all queries are there (CACQ figure 9)",
        ["workload", *(f"s.{a}" for a in ATTRIBUTES), "batches until within 5 points"],
        [[title, *settled(at, shares)] for title, (at, shares) in drawn.items()],
    )
    draw(drawn)


if __name__ == "__main__":
    main()
