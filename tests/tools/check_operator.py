"""Checks an operator against the protocol of operators.

`check_operator` runs nodes over histories of their inputs and raises AssertionError where

- the output's bag at an instant is not the node's meaning over the inputs' bags,
- the output depends on the cut of the feed, also where a cut goes through an instant,
- a delta breaks INV-DELTA-1, or rows leave in a way its update pattern rules out (law 6),
- shards by a column it can be divided by (`find_sharding`) are together not the whole, or a row is
  in another shard than that of its value,
- state is left when everything has expired,
- its state cannot be pickled at any moment, or moved into files and back.
"""

from __future__ import annotations

import pickle
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from tests.oracle.rows import normalize
from tests.tools.no_memory import no_memory

from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.engine.dataflow.state_memory import move_into_files, move_into_memory
from millpond.model.patterns import MONOTONIC, STRICT, WEAK, Edge, Pattern
from millpond.model.time import BEGINNING, END
from millpond.operators.expire import announce_expirations
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.protocol.node import Node, Operator, Purger, Scalars, Serving
from millpond.operators.protocol.sharding import Sharding
from millpond.operators.relation_versions import RelationVersions
from millpond.operators.shared_distinct import RecentDelta
from millpond.operators.shared_join import SidesDelta
from millpond.operators.windows.rows_window import RowsWindow
from millpond.planner.dataflow.plan import list_in_order

Row = tuple[Any, ...]
#: A bag of rows: the value of a relation at an instant.
Rows = Counter[Row]
#: The meaning of a node: computes its bag from the bags of its inputs.
Meaning = Callable[..., Rows]

#: An instant after all expirations.
LATE = 1_000
#: Operators that are never given rows late.
_IN_ORDER = (RowsWindow, RelationVersions)


@dataclass(frozen=True, eq=False)
class GivenInput(Node):
    """An input whose history is given: the bottom of a plan under test."""

    label: str
    types: tuple[pa.DataType, ...]
    leaves: Edge

    @property
    def schema(self) -> pa.Schema:
        return positional_schema(self.types)

    @property
    def name(self) -> str:
        return self.label

    @property
    def edge(self) -> Edge:
        return self.leaves

    @property
    def carries_expirations(self) -> bool:
        return self.leaves.pattern is not Pattern.MONOTONIC

    @property
    def announces(self) -> bool:
        return self.leaves.pattern is Pattern.STRICT

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.label,)

    @property
    def feed(self) -> tuple[str, str, tuple[str, ...]]:
        return ("given", self.label, ())

    def operator(self) -> Operator:
        raise AssertionError("an input is given, not computed")


@dataclass(frozen=True)
class Life:
    """A row of an input's history, alive from `at` on until before `until`.

    `cut` is the instant at which a negative tuple ends the row early; None if none does.
    """

    row: Row
    at: int
    until: int
    cut: int | None = None


def check_operator(
    node: Node,
    histories: Mapping[str, Sequence[Life]],
    cuts: Sequence[int],
    meaning: Meaning,
    intervals: Collection[int | None] = (None,),
) -> None:
    """Raise AssertionError if a node breaks the protocol on a history.

    Args:
        node: The node, over `GivenInput` inputs (directly or below an `Expire`).
        histories: The history of each input, by label.
        cuts: Ascending instants below LATE to which the node is advanced; LATE is added.
        meaning: Computes its bag from the bags of the inputs below, in the order of the plan.
        intervals: The readers' purging intervals; at most LATE // 2, or None.
    """
    given = [i for i in list_in_order([node]) if i.feed is not None]
    whole = run(node, histories, [LATE], intervals)
    parts = run(node, histories, [*cuts, LATE], intervals)
    torn = run(node, histories, [*cuts, LATE], intervals, through_instants=True)
    labels = [label for i in node.inputs for label in _list_labels(i)]
    instants = {BEGINNING, LATE}
    for life in (life for history in histories.values() for life in history):
        instants |= {life.at, life.until, life.cut or life.at}
    instants |= {i + d for i in set(instants) for d in (-1, 1)}
    for instant in sorted(i for i in instants if BEGINNING <= i <= LATE):
        bags = {
            g.label: bag_at(histories[g.label], instant) for g in given if isinstance(g, GivenInput)
        }
        expected = meaning(*[bags[label] for label in labels])
        for name, way in (("at once", whole), ("cut", parts), ("torn", torn)):
            actual = sum_deltas(way.deltas, instant)
            if actual != expected:
                raise AssertionError(
                    f"{node.name} {name} at {instant}, cuts {list(cuts)}\n"
                    f"given:    {sorted(actual.elements(), key=repr)}\n"
                    f"expected: {sorted(expected.elements(), key=repr)}"
                )
    check_pattern(node, parts.deltas)
    check_late(node, histories, [*cuts, LATE], meaning, intervals)
    check_shards(node, histories, [*cuts, LATE], whole, intervals)
    everything = [life for history in histories.values() for life in history]
    if all((life.cut or life.until) <= LATE for life in everything):
        assert not parts.left, f"{node.name} keeps {parts.left} rows when all have expired"


def check_late(
    node: Node,
    histories: Mapping[str, Sequence[Life]],
    cuts: Sequence[int],
    meaning: Meaning,
    intervals: Collection[int | None],
) -> None:
    """Raise AssertionError if a node's output is wrong where rows come steps after their instants.

    Such a row comes at the instant at which the step before ended, if it has not left until then
    (`TimeWindow` without `in_order`). Which nodes may be given such rows, `needs_order` says.
    """
    nodes = list(list_in_order([node]))
    given = [n for n in nodes if isinstance(n, GivenInput)]
    if any(n.timed_inputs for n in nodes) or any(isinstance(n, _IN_ORDER) for n in nodes):
        return
    if any(n.edge.pattern is Pattern.WEAKEST for n in given):  # it is WEAK where rows may be late
        return
    late = {label: _delay(history, cuts) for label, history in histories.items()}
    found = run(node, {}, cuts, intervals, late=late)
    labels = [label for i in node.inputs for label in _list_labels(i)]
    for number, upto in enumerate(cuts):
        after = cuts[number - 1] if number else BEGINNING
        came = {
            label: [x for step in steps[: number + 1] for x in step]
            for label, steps in late.items()
        }
        instants = {upto, after} | {
            i for lives in came.values() for x in lives for i in (x.at, x.until, x.cut or x.at)
        }
        for instant in sorted(i for i in instants if after <= i <= upto):
            expected = meaning(*[bag_at(came[label], instant) for label in labels])
            actual = sum_deltas(found.deltas[: number + 1], instant)
            if actual != expected:
                raise AssertionError(
                    f"{node.name} with late rows at {instant}, cuts {list(cuts)}\n"
                    f"came:     {came}\n"
                    f"given:    {sorted(actual.elements(), key=repr)}\n"
                    f"expected: {sorted(expected.elements(), key=repr)}"
                )


def check_shards(
    node: Node,
    histories: Mapping[str, Sequence[Life]],
    cuts: Sequence[int],
    whole: OperatorRun,
    intervals: Collection[int | None],
) -> None:
    """Raise AssertionError if the shards of a node are together not the node.

    It is divided by every column it can be divided by, also where all shards have one of its
    inputs whole, as they have relations.
    """
    given = [n for n in list_in_order([node]) if isinstance(n, GivenInput)]
    for undivided in (None, *given):
        for place, columns in (find_divisions(node, undivided) or {}).items():
            divided = {g.label for g in given if g is not undivided}
            assert set(columns) == divided, f"{node.name} by {columns}: {divided}"
            ways = []
            for shard in range(2):
                own = {
                    label: [x for x in lives if shard_of(x.row[int(columns[label])]) == shard]
                    if label in columns
                    else lives
                    for label, lives in histories.items()
                }
                ways.append(run(node, own, cuts, intervals))
                for delta in ways[-1].deltas:
                    values = delta.rows.column(place).to_pylist()
                    assert all(shard_of(value) == shard for value in values), (
                        f"{node.name}: {values}"
                    )
            for instant in sorted(
                {0, *cuts, *(life.at for some in histories.values() for life in some)}
            ):
                found = sum((sum_deltas(way.deltas, instant) for way in ways), Counter())
                assert found == sum_deltas(whole.deltas, instant), (
                    f"{node.name} in shards by {columns} at {instant}: {found}"
                )


def find_divisions(node: Node, undivided: Node | None = None) -> Sharding:
    """Find by which columns of the inputs given a node can be divided; one may be undivided."""
    known: dict[str, Sharding] = {}
    for n in list_in_order([node]):
        below = [known[i.key] for i in n.inputs]
        if isinstance(n, GivenInput):
            own = {place: {n.label: str(place)} for place in range(len(n.types))}
            known[n.key] = None if n is undivided else own
        elif all(one is None for one in below):
            known[n.key] = None
        else:
            known[n.key] = n.find_sharding(below)
    return known[node.key]


def shard_of(value: Any) -> int:
    """Choose one of two shards by a value."""
    return zlib.crc32(repr(normalize(value)).encode()) % 2


def _delay(history: Sequence[Life], cuts: Sequence[int]) -> list[list[Life]]:
    """Choose the step in which each row comes; those that have left until then never do."""
    steps: list[list[Life]] = [[] for _ in cuts]
    for life in history:
        due = next(number for number, upto in enumerate(cuts) if life.at <= upto)
        number = min(due + (life.at + life.until + len(str(life.row))) % 3, len(cuts) - 1)
        at = life.at if number == due else cuts[number - 1]
        if at < (life.until if life.cut is None else life.cut):
            steps[number].append(replace(life, at=at))
    return steps


def bag_at(history: Sequence[Life], instant: int) -> Rows:
    """Compute an input's bag at an instant."""
    return Counter(
        tuple(map(normalize, life.row))
        for life in history
        if life.at <= instant < (life.until if life.cut is None else life.cut)
    )


def sum_deltas(deltas: Sequence[Delta], instant: int) -> Rows:
    """Add up deltas to the bag at an instant."""
    bag: Rows = Counter()
    for delta in deltas:
        here = delta.where((delta.at <= instant) & (instant < delta.until))
        columns = [column.to_pylist() for column in here.rows.columns]
        for row, weight in zip(zip(*columns, strict=True), here.weight.tolist(), strict=True):
            bag[tuple(map(normalize, row))] += weight
    return Counter({row: count for row, count in bag.items() if count})


@dataclass(frozen=True)
class OperatorRun:
    """The output of a node, and the number of rows of state it kept at the end."""

    deltas: list[Delta]
    left: int


def run(
    node: Node,
    histories: Mapping[str, Sequence[Life]],
    cuts: Sequence[int],
    intervals: Collection[int | None] = (None,),
    *,
    through_instants: bool = False,
    late: Mapping[str, Sequence[Sequence[Life]]] | None = None,
) -> OperatorRun:
    """Advance a node to each cut in turn; between, its state is pickled and moved.

    With `through_instants`, every other row of a cut's instant comes in the next step, which begins
    with that instant. With `late`, each step has the rows that come in it.
    """
    nodes = list(list_in_order([node]))
    operators = {n.key: n.operator() for n in nodes if n.feed is None}
    for n in nodes:
        if n.purges:
            cast(Purger, operators[n.key]).purging.set_intervals(intervals)
        if n.serves_readers:
            readers = [m for m in nodes if any(below.key == n.key for below in m.inputs)]
            cast(Serving, operators[n.key]).serve(set(range(len(n.schema))), readers)
    scalars: Scalars = DuckDBScalars()
    given: list[Delta] = []
    position = BEGINNING - 1
    torn = through_instants or late is not None
    for number, cut in enumerate(cuts):
        deltas: dict[str, Delta] = {}
        for n in nodes:
            if isinstance(n, GivenInput) and late is not None:
                come = _list_late(late[n.label], number, position, cut)
                deltas[n.key] = _make_delta(n, come)
            elif isinstance(n, GivenInput):
                deltas[n.key] = _feed_input(n, histories[n.label], position, cut, through_instants)
            else:
                inputs = [deltas[i.key] for i in n.inputs]
                deltas[n.key] = operators[n.key].advance(inputs, cut, scalars)
                _check_delta(n, deltas[n.key], position - torn, cut)
        given.append(deltas[node.key])
        operators = _carry(operators, len(given))
        position = cut
    return OperatorRun(given, operators[node.key].size())


def _carry(operators: dict[str, Operator], number: int) -> dict[str, Operator]:
    """Pickle operators and read them back, or move their state, by the number of the step."""
    if number % 2:
        return pickle.loads(pickle.dumps(operators))
    if number % 3 == 0:
        return {key: move_into_memory(operator) for key, operator in operators.items()}
    home, only_rows = no_memory().home, number % 8 == 4
    return {
        key: move_into_files(operator, home, only_rows=only_rows)
        for key, operator in operators.items()
    }


def _feed_input(
    node: GivenInput, history: Sequence[Life], after: int, upto: int, tears: bool = False
) -> Delta:
    """Make an input's delta: rows with their expirations, negative tuples for rows cut short."""
    rows = _list_events(history, after, upto)
    rows.sort(key=lambda entry: entry[0])
    if tears:
        rows = [row for row in rows if row[0] < upto or upto == LATE or comes_first(row)]
        rest = _list_events(history, after - 1, after)
        rows = [row for row in rest if not comes_first(row)] + rows
    return _make_delta(node, rows)


def _list_late(steps: Sequence[Sequence[Life]], number: int, after: int, upto: int) -> list[Event]:
    """List what comes in a step, and what is taken back in it of what has come."""
    rows = [(life.at, life.until, 1, life.row) for life in steps[number]]
    for life in (life for step in steps[: number + 1] for life in step):
        if life.cut is not None and after < life.cut <= upto:
            rows.append((life.cut, life.until, -1, life.row))
    return sorted(rows, key=lambda entry: entry[0])


def _make_delta(node: GivenInput, rows: Sequence[Event]) -> Delta:
    columns = list(zip(*(entry[3] for entry in rows), strict=True)) or [()] * len(node.types)
    arrays = [pa.array(list(c), t) for c, t in zip(columns, node.types, strict=True)]
    numbers = [np.array([entry[i] for entry in rows], np.int64) for i in range(3)]
    return Delta(pa.RecordBatch.from_arrays(arrays, schema=node.schema), *numbers)


#: An instant, the end, the weight and the row of a line of a delta.
Event = tuple[int, int, int, Row]


def _list_events(history: Sequence[Life], after: int, upto: int) -> list[Event]:
    """List what comes and what is taken back in the instants of (after, upto]."""
    rows: list[Event] = []
    for life in history:
        if after < life.at <= upto:
            rows.append((life.at, life.until, 1, life.row))
        if life.cut is not None and after < life.cut <= upto:
            rows.append((life.cut, life.until, -1, life.row))
    return rows


def comes_first(event: Event) -> bool:
    """Whether a line of a cut's instant comes before the cut."""
    return (event[1] + event[2] + len(str(event[3]))) % 2 == 0


def _list_labels(node: Node) -> list[str]:
    """The labels of the inputs below a node, or of itself."""
    if isinstance(node, GivenInput):
        return [node.label]
    return [label for i in node.inputs for label in _list_labels(i)]


def _check_delta(node: Node, delta: Delta, after: int, upto: int) -> None:
    """Check INV-DELTA-1, and that only nodes with `carries_expirations` output expirations."""
    assert delta.rows.schema.equals(node.schema), f"{node.name}: {delta.rows.schema}"
    if isinstance(delta, SidesDelta):  # it refers to rows of its operator
        news = [side.new for side in delta.sides or ()]
        assert all(((after < new.at) & (new.at <= upto)).all() for new in news)
        return
    if isinstance(delta, RecentDelta):
        assert ((after < delta.at) & (delta.at <= upto)).all()
        return
    assert len(delta) == delta.rows.num_rows == len(delta.until) == len(delta.weight)
    assert (np.diff(delta.at) >= 0).all(), f"{node.name}: rows out of order"
    assert ((after < delta.at) & (delta.at <= upto)).all(), f"{node.name}: rows of another step"
    assert (delta.at < delta.until).all(), f"{node.name}: an empty life"
    assert (delta.weight != 0).all(), f"{node.name}: a weight of zero"
    assert node.carries_expirations or delta.is_explicit, f"{node.name}: an expiration"


def check_pattern(node: Node, deltas: Sequence[Delta]) -> None:
    """Check law 6: no row leaves in a way that the update pattern rules out.

    Where rows carry expirations and are not announced, only a STRICT edge has negative tuples.
    """
    pattern = node.pattern
    ends: list[int] = []
    for delta in deltas:
        if pattern is not Pattern.STRICT and not node.announces:
            assert (delta.weight > 0).all(), f"{node.name} is {pattern.name}: a negative tuple"
        if pattern is Pattern.WEAKEST and node.carries_expirations:
            ends += delta.until[delta.until < END].tolist()
        if pattern is Pattern.MONOTONIC:
            assert (delta.weight > 0).all(), f"{node.name} is MONOTONIC: a row leaves"
            assert delta.is_explicit, f"{node.name} is MONOTONIC: a row will leave"
    assert ends == sorted(ends), f"{node.name} is WEAKEST: rows leave out of order"


# -- random histories ------------------------------------------------------------------------------


@st.composite
def histories(
    draw: st.DrawFn, rows: st.SearchStrategy[Row], edge: Edge, most: int = 12
) -> list[Life]:
    """Draw a history of rows that leave as an edge's update pattern says."""
    found = []
    # Often many rows are equal, and many instants: what meets in one instant is told apart.
    few = draw(st.booleans())
    instants = st.integers(0, 6 if few else 20)
    rows = st.sampled_from(draw(st.lists(rows, min_size=1, max_size=2))) if few else rows
    (length,) = edge.lengths or (0,)
    assert isinstance(length, int)
    for _ in range(draw(st.integers(0, most))):
        row, at = draw(rows), draw(instants)
        match edge.pattern:
            case Pattern.MONOTONIC:
                found.append(Life(row, at, END))
            case Pattern.WEAKEST:
                found.append(Life(row, at, at + length))
            case Pattern.WEAK:
                found.append(Life(row, at, at + draw(st.integers(1, 8))))
            case _:
                until = draw(st.sampled_from((END, at + draw(st.integers(2, 9)))))
                early = st.integers(at + 1, min(until, at + 9) - 1 if until < END else at + 9)
                cut = draw(early) if until >= END or draw(st.booleans()) else None
                found.append(Life(row, at, until, cut))
    # Elements of one instant come in the same order, however the feed is cut.
    return sorted(found, key=lambda life: life.at)


#: Edges of every update pattern, for the inputs of an operator.
EDGES = (MONOTONIC, Edge(Pattern.WEAKEST, frozenset([5])), WEAK, STRICT)


def cuts() -> st.SearchStrategy[list[int]]:
    """Draw the cuts of a feed."""
    either = (st.lists(st.integers(-1, last), max_size=6, unique=True) for last in (12, 30))
    return st.one_of(*either).map(sorted)


__all__ = [
    "EDGES",
    "LATE",
    "GivenInput",
    "Life",
    "announce_expirations",
    "check_operator",
    "cuts",
    "histories",
]
