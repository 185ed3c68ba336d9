"""Plays a history through a dataflow, with any cut, and compares its changes with the oracle's."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

import pyarrow as pa
from tests.oracle.changes import OracleChange, changes
from tests.oracle.rows import normalize
from tests.oracle.world import World
from tests.tools.no_memory import no_memory

from millpond.catalog.objects import REJECTS, Definition
from millpond.cql import parse_query
from millpond.engine.dataflow.dataflow import Dataflow
from millpond.engine.dataflow.inputs import GivenInputs, StepInputs
from millpond.engine.dataflow.scheduling.policies import NAMES
from millpond.engine.dataflow.scheduling.protocol import OperatorRates, Ready
from millpond.engine.dataflow.step import Scheduling
from millpond.model.time import BEGINNING, END
from millpond.operators.structures.expiration_queues import ARRIVAL_ORDER
from millpond.planner.bind.bind import bind
from millpond.planner.dataflow.plan import Plan, plan_changes
from millpond.planner.optimize.choices import CARRIED, DISTINCT_FORMS, Choice
from millpond.planner.resolve.names import TablesAlone

#: The instant before the beginning of time: from here on, changes add up to the relation.
BEFORE = BEGINNING - 1


@dataclass(frozen=True)
class WorldNames(TablesAlone):
    """The oracle's world as a catalog for the binder."""

    world: World

    def find(self, name: str) -> Definition | None:
        lower = name.lower()
        if lower in self.world.relations:
            return self.world.relations[lower].definition
        stream = self.world.streams.get(lower.removesuffix("$rejects"))
        if stream is None:
            return None
        rejects = lower.endswith("$rejects")
        return stream.definition.pseudo(REJECTS) if rejects else stream.definition

    def names(self) -> list[str]:
        return [*self.world.streams, *self.world.relations]


def plan_query(world: World, text: str, *, whim: str = "", **options: Any) -> Plan:
    """Plan the computation of a query's changes; with a whim, as nobody would choose it."""
    names = WorldNames(world)
    bound = bind(parse_query(text), text, names)
    plan = plan_changes(bound, names, **options)
    if not whim:
        return plan
    random = Random(whim)
    choices = {}
    for start in (plan, plan_changes(bound, names, rules=())):
        for key, found in start.read_choices().items():
            choices[key] = choose_by_chance(found, random)
    return plan_changes(bound, names, choices=choices, owner="q", **options)


def play_in_steps(
    plan: Plan, feeds: Mapping[str, pa.Table], ends: Sequence[int]
) -> list[dict[str, Any]]:
    """Advance a dataflow to each instant of `ends` in turn, and list its changes."""
    flow, found, last = Dataflow(plan), [], -1
    for end in ends:
        given = {}
        for name, feed in feeds.items():
            stamps = feed["__ts"].to_pylist()
            places = [i for i, at in enumerate(stamps) if last < at <= end]
            given[name] = feed.take(pa.array(places, pa.int64()))
        found.append(flow.advance(given, end)[plan.key])
        assert not flow.failed
        last = end
    return pa.concat_tables(found).to_pylist()


def choose_by_chance(found: Choice, random: Random) -> Choice:
    """Choose of an operator what chance says."""
    order = random.sample(found.order, len(found.order))
    return replace(
        found,
        expire=(random.choice((CARRIED, 1, 3, 200, ARRIVAL_ORDER)),) if found.expire else (),
        distinct=random.choice(list(DISTINCT_FORMS)) if found.distinct else "",
        order=tuple(order),
        shared=random.random() < 0.7,
    )


def feeds(world: World, flow: Dataflow, after: int, upto: int) -> dict[str, pa.Table]:
    """Make the feeds that advance a dataflow from one instant to another."""
    found = {}
    for name, columns in flow.needs.items():
        history = world.streams[name.lower().removesuffix("$rejects")]
        is_rejects = name.lower().endswith("$rejects")
        elements = history.rejects if is_rejects else history.elements
        some = [e for e in elements if after < e.at <= upto]
        some.sort(key=lambda e: (e.at, e.seq))
        definition = WorldNames(world).find(name)
        assert definition is not None
        rows = [{"__ts": e.at, "__seq": e.seq, **e.row} for e in some]
        stamps = [pa.field("__ts", pa.int64()), pa.field("__seq", pa.int64())]
        found[name] = _table(rows, stamps, definition, columns)
    for name, columns in flow.relations.items():
        relation = world.relations[name.lower()]
        moves = [(v.begin, 1, v.row) for v in relation.versions]
        moves += [(v.end, -1, v.row) for v in relation.versions if v.end < END]
        moves = [move for move in moves if after < move[0] <= upto]
        moves.sort(key=lambda move: move[0])
        rows = [{"__at": at, "__sign": sign, **row} for at, sign, row in moves]
        stamps = [pa.field("__at", pa.int64()), pa.field("__sign", pa.int8())]
        found[name] = _table(rows, stamps, relation.definition, columns)
    return found


def _table(
    rows: list[dict[str, Any]], stamps: list[pa.Field], definition: Any, columns: Sequence[str]
) -> pa.Table:
    declared = definition.schema.to_arrow()
    schema = pa.schema([*stamps, *(declared.field(name) for name in columns)])
    return pa.Table.from_pylist(rows, schema=schema)


class Ticks:
    """A clock that goes on by one at each look."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 1.0
        return self._now


class Whim:
    """A scheduling policy that chooses by chance."""

    def __init__(self, seed: str, latency: float | None = None) -> None:
        self._random = Random(seed)

    def learn(self, operators: Sequence[OperatorRates]) -> None:
        pass

    def choose(self, ready: Sequence[Ready], now: float) -> Ready:
        return self._random.choice(ready)


#: A memory of queues with which every slice has one instant, and some slices may wait.
TIGHT = 2_000
#: Ways in which operators take turns, all with slices of one instant.
SCHEDULINGS = (
    *(Scheduling(name, memory=TIGHT, clock=Ticks()) for name in NAMES),
    Scheduling("chain", latency=20, memory=TIGHT, clock=Ticks()),
    Scheduling("chain", memory=1, clock=Ticks()),
    *(Scheduling(seed, memory=TIGHT, clock=Ticks(), make=Whim) for seed in "abc"),
)


def run(
    world: World,
    plans: Sequence[Plan],
    cuts: Iterable[int],
    *,
    pickled: bool = False,
    schedulings: Sequence[Scheduling] = (),
    spilled: bool = False,
) -> tuple[dict[str, list[OracleChange]], Dataflow]:
    """Advance a dataflow of plans from the beginning of time to each cut in turn.

    Args:
        world: The history.
        plans: The plans to run.
        cuts: Ascending instants; the dataflow stops at the last.
        pickled: Whether the dataflow is pickled and read back between any two steps.
        schedulings: How operators take turns in each step, over and over; none: steps are whole.
        spilled: Whether there is no memory for state, so that all of it lies in files.

    Raises:
        AssertionError: a plan gave up.
    """
    flow = Dataflow(*plans, since=BEFORE)
    if spilled:
        flow.limit_memory(no_memory())
    given: dict[str, list[OracleChange]] = {plan.key: [] for plan in plans}
    for number, cut in enumerate(cuts):
        fed: Mapping[str, pa.Table] | StepInputs = feeds(world, flow, flow.position, cut)
        if schedulings:
            flow.schedule(schedulings[number % len(schedulings)])
            fed = GivenInputs(cast(Mapping[str, pa.Table], fed), few=0)
        for key, table in flow.advance(fed, cut).items():
            given[key] += as_changes(table)
        assert not flow.failed, flow.failed
        if pickled:
            flow = pickle.loads(pickle.dumps(flow))
    return given, flow


def as_changes(table: pa.Table) -> list[OracleChange]:
    """Convert a table of changes to the oracle's changes."""
    columns = [column.to_pylist() for column in table.columns]
    return [
        OracleChange(at, sign, tuple(map(normalize, row)))
        for at, sign, *row in zip(*columns, strict=True)
    ]


def check_changes(
    world: World,
    text: str,
    cuts: Sequence[int],
    *,
    pickled: bool = False,
    schedulings: Sequence[Scheduling] = (),
    spilled: bool = False,
    beside: Sequence[str] = (),
    **options: Any,
) -> Plan:
    """Raise AssertionError if a query's changes differ from the oracle's.

    Args:
        world: The history.
        text: The query.
        cuts: As for `run`.
        pickled, schedulings, spilled: As for `run`.
        beside: Other queries that run with it.
        options: Options of the plan.
    """
    plan = plan_query(world, text, **options)
    plans = [plan, *(plan_query(world, other, **options) for other in beside)]
    given, _ = run(world, plans, cuts, pickled=pickled, schedulings=schedulings, spilled=spilled)
    expected = changes(world, parse_query(text), BEFORE, cuts[-1])
    compare(given[plan.key], expected, f"{text}\ncuts {list(cuts)}\n{plan.explained}")
    return plan


def compare(given: list[OracleChange], expected: list[OracleChange], what: str) -> None:
    """Raise AssertionError with the first difference between two sequences of changes."""
    for place in range(max(len(given), len(expected))):
        one = given[place] if place < len(given) else None
        other = expected[place] if place < len(expected) else None
        if one == other:
            continue
        at = min(c.at for c in (one, other) if c is not None)
        raise AssertionError(
            f"{what}\nat {at}\n"
            f"given:    {[c for c in given if c.at == at]}\n"
            f"expected: {[c for c in expected if c.at == at]}"
        )
