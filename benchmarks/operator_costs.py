"""What does an operator take for a row, and for being called? The constants of the cost model.

Each operator is run at two sizes of step over the same stream, in processor time; what a row more
takes is the slope, what a step takes is the rest. Beside each stands the constant of
`millpond/operators/protocol/cost_model.py` it is meant for: their ratios are what plans are chosen
by.

    python benchmarks/operator_costs.py
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from tests.tools.check_operator import GivenInput

from _harness import show
from millpond.engine.dataflow.net_changes import net_changes
from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.model.patterns import STRICT, WEAK, Edge, Pattern
from millpond.operators.aggregation.aggregates.count import Count
from millpond.operators.aggregation.measures import Argument
from millpond.operators.distinct_announcing import DistinctAnnouncing
from millpond.operators.distinct_delta_star import DistinctDeltaStar
from millpond.operators.expire import Expire
from millpond.operators.group_by import GroupBy, Grouping
from millpond.operators.join import Join
from millpond.operators.protocol import cost_model
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.protocol.node import Node
from millpond.operators.select import Select
from millpond.operators.set_operations import SetOperation
from millpond.operators.structures.expiration_queues import ARRIVAL_ORDER

TYPES = (pa.int32(), pa.int32())
SCHEMA = positional_schema(TYPES)
WEAKEST = Edge(Pattern.WEAKEST, frozenset([1]))
#: Sizes of steps: what a row more takes is taken from these two.
FEW, MANY = 50, 2_050
#: Rows alive.
ALIVE = 50_000

Feed = Callable[[int, int, np.random.Generator], Delta]


def carrying(keys: int, spread: bool) -> Feed:
    """Rows of so many keys that live as long as makes ALIVE of them, or up to twice that."""

    def feed(low: int, count: int, chance: np.random.Generator) -> Delta:
        at = np.arange(low, low + count)
        life = chance.integers(1, 2 * ALIVE, count) if spread else np.full(count, ALIVE)
        return Delta.of(_rows(count, keys, chance), at, at + life)

    return feed


def announced(keys: int) -> Callable[[], Feed]:
    """The same rows without expirations, and a negative tuple for each that leaves."""

    def begun() -> Feed:
        source, waiting = (
            carrying(keys, False),
            Expire(GivenInput("one", TYPES, WEAKEST)).operator(),
        )

        def feed(low: int, count: int, chance: np.random.Generator) -> Delta:
            return waiting.advance([source(low, count, chance)], low + count - 1, DuckDBScalars())

        return feed

    return begun


def _rows(count: int, keys: int, chance: np.random.Generator) -> pa.RecordBatch:
    seconds = 60_000 if keys > 10_000 else 1
    columns = [chance.integers(0, most, count).astype(np.int32) for most in (keys, seconds)]
    return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=SCHEMA)


def measured(nodes: Sequence[Node], feeds: Sequence[Callable[[], Feed]]) -> tuple[float, float]:
    """(ns a row that comes, ns a step) of nodes in a row over inputs with these feeds."""
    found = []
    for size in (FEW, MANY):
        chance = np.random.default_rng(5)
        operators = [node.operator() for node in nodes]
        scalars = DuckDBScalars()
        inputs = [make() for make in feeds]
        took: list[float] = []
        for low, is_counted in _steps(size):
            deltas = [feed(low, size, chance) for feed in inputs]
            begun = time.process_time_ns()
            for operator in operators:
                deltas = [operator.advance(deltas, low + size - 1, scalars)]
            if is_counted:
                took.append(time.process_time_ns() - begun)
        found.append(float(np.mean(took)))
    slope = (found[1] - found[0]) / (MANY - FEW)
    return slope, found[0] - slope * FEW


def _steps(size: int) -> Iterator[tuple[int, bool]]:
    """Where steps begin, the long ones that fill the state first."""
    low = 0
    while low < 2 * ALIVE:
        yield low, False
        low += size
    for _ in range(200 if size == FEW else 60):
        yield low, True
        low += size


def delivered() -> tuple[float, float]:
    """Of a change that is delivered."""
    chance = np.random.default_rng(5)
    schema = pa.schema([("__at", pa.int64()), ("__sign", pa.int8()), *SCHEMA])
    found = []
    for size in (FEW, MANY):
        deltas = []
        for _ in range(100):
            at = np.sort(chance.integers(0, size // 4, size))
            sign = chance.choice(np.array([1, -1]), size)
            deltas.append(Delta.of(_rows(size, 1_000, chance), at, None, sign))
        begun = time.process_time_ns()
        for delta in deltas:
            net_changes(delta, schema, None)
        found.append((time.process_time_ns() - begun) / len(deltas))
    slope = (found[1] - found[0]) / (MANY - FEW)
    return slope, found[0] - slope * FEW


def main() -> None:
    one, other = (GivenInput(name, TYPES, WEAKEST) for name in ("one", "other"))
    weak, strict = GivenInput("one", TYPES, WEAK), GivenInput("one", TYPES, STRICT)
    plain, spread = (lambda: carrying(1_000, False)), (lambda: carrying(1_000, True))
    apart, often = (lambda: carrying(10**9, False)), (lambda: carrying(5_000, False))
    grouping = Grouping(strict, (0,), TYPES[:1])
    counts = (Count(Argument(), pa.int64()),)
    pairs = 2 * ALIVE / 5_000
    cases: list[tuple[str, Sequence[Node], Sequence[Callable[[], Feed]], float, float, str]] = [
        ("selection", [Select(one, ("c0 < 500",))], [plain], 1, cost_model.SELECTED, ""),
        ("queue", [Expire(one)], [plain], 1, cost_model.QUEUED, ""),
        ("partitions", [Expire(weak)], [spread], 1, cost_model.PARTITIONED, ""),
        ("arrival order", [Expire(weak, ARRIVAL_ORDER)], [spread], 1, cost_model.ARRIVED, ""),
        (
            "join, built and probed",
            [Join(one, other, (0,), (0,), keep=(0, 1, 3))],
            [apart, apart],
            2,
            cost_model.BUILT + cost_model.PROBED,
            "no pairs",
        ),
        (
            "join, a pair",
            [Join(one, other, (0,), (0,), keep=(0, 1, 3))],
            [often, often],
            pairs,
            cost_model.PAIRED + 2 * (cost_model.BUILT + cost_model.PROBED) / pairs,
            f"{pairs:g} pairs a row",
        ),
        (
            "join of announced rows",
            [Join(strict, GivenInput("other", TYPES, STRICT), (0,), (0,), keep=(0, 1, 3))],
            [announced(10**9), announced(10**9)],
            4,
            cost_model.BUILT + cost_model.PROBED + cost_model.ADDED_UP / 2,
            "no pairs",
        ),
        ("δ*", [DistinctDeltaStar(one)], [plain], 1, cost_model.STARRED, "1,000 keys"),
        ("δ*, announcing", [DistinctAnnouncing(one)], [plain], 1, cost_model.STARRED, "1,000 keys"),
        (
            "δ*, many keys",
            [DistinctDeltaStar(one)],
            [apart],
            1,
            cost_model.STARRED + cost_model.GIVEN,
            "all differ",
        ),
        (
            "counts",
            [SetOperation((strict,), "distinct")],
            [announced(1_000)],
            2,
            cost_model.COUNTED,
            "1,000 keys",
        ),
        (
            "grouping and aggregates",
            [grouping, GroupBy(grouping, (0,), counts)],
            [announced(1_000)],
            2,
            cost_model.GROUPED + cost_model.REPLACED,
            "count(*)",
        ),
    ]
    rows: list[list[object]] = []
    for about, nodes, feeds, many, constant, note in cases:
        slope, step = measured(nodes, feeds)
        rows.append([about, slope / many, constant, step / len(nodes) / 1e3, note])
    slope, step = delivered()
    rows.append(["delivery", slope, cost_model.DELIVERED, step / 1e3, "2 to 4 an instant"])
    rows.append(
        ["being called", None, None, (cost_model.CALLED + cost_model.WOKEN) / 1e3, "the constant"]
    )
    show(
        "Operator costs",
        ["operator", "ns a row", "constant, ns", "µs a step", "where"],
        rows,
    )


if __name__ == "__main__":
    main()
