"""Every operator against its meaning on random histories: incremental, honest, leaving nothing.

An operator of `millpond.operators` that no test here checks fails the first of them.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import pkgutil
from collections import Counter
from dataclasses import replace
from importlib import import_module
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle.rows import normalize, sort_key
from tests.tools import check_operator as checking
from tests.tools.check_operator import (
    EDGES,
    LATE,
    GivenInput,
    Life,
    Rows,
    announce_expirations,
    bag_at,
    check_operator,
    cuts,
    histories,
    sum_deltas,
)
from tests.tools.rows_with_frames import FRAMES, order_as_cut, rows_with_frames

from millpond import operators
from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.model.patterns import MONOTONIC, STRICT
from millpond.model.time import END
from millpond.model.windows import Bound, Now, Period, Range, Unbounded
from millpond.model.windows import Rows as RowsOf
from millpond.operators import windows
from millpond.operators.aggregation.aggregates.average import Average
from millpond.operators.aggregation.aggregates.count import Count
from millpond.operators.aggregation.aggregates.min_max import MinMax
from millpond.operators.aggregation.aggregates.sum import SumOfDoubles
from millpond.operators.aggregation.measures import Argument
from millpond.operators.distinct_announcing import DistinctAnnouncing
from millpond.operators.distinct_delta_star import DistinctDeltaStar
from millpond.operators.expire import Expire
from millpond.operators.filtered_semijoin import FilteredSemijoin, Slicing
from millpond.operators.group_by import GroupBy, Grouping
from millpond.operators.join import Join
from millpond.operators.negation import Negation
from millpond.operators.nrr_join import NrrJoin
from millpond.operators.per_query import PerQuery
from millpond.operators.project import Project, Unnest
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.protocol.node import Node
from millpond.operators.recompute import Recompute
from millpond.operators.recompute_groups import RecomputeGroups
from millpond.operators.relation_versions import RelationVersions
from millpond.operators.rstream import Boundaries, Instants, RStream
from millpond.operators.running_frames import (
    EarlierValue,
    FramedAggregate,
    RowNumber,
    RunningFrames,
)
from millpond.operators.sample import Sample
from millpond.operators.select import Select
from millpond.operators.semijoin import Semijoin
from millpond.operators.set_operations import SetOperation
from millpond.operators.source import OneRow, RelationSource, StreamSource
from millpond.operators.structures.expiration_queues import (
    ARRIVAL_ORDER,
    PARTITIONS,
    PartitionedQueue,
)
from millpond.operators.structures.lifetimes import find_length
from millpond.operators.top_k import SortColumn, TopK
from millpond.operators.union import Union
from millpond.operators.windows.rows_window import RowsWindow
from millpond.operators.windows.shared_window import KeptElements, SharedWindow
from millpond.operators.windows.time_window import TimeWindow
from millpond.synopses.sampling import choose_sample

#: How often readers may want expired rows dropped.
INTERVALS = ((None,), (0,), (3,), (None, 7), (500, 3), (500,))

CONFORMANCE = settings(max_examples=40)

TYPES = (pa.string(), pa.float64())
VALUES = (None, 0.0, -0.0, 1.5, float("nan"))
ROWS = st.tuples(st.sampled_from((None, "a", "b", "")), st.sampled_from(VALUES))


def inputs(data: st.DataObject, *names: str) -> tuple[list[GivenInput], dict]:
    """An input of a drawn pattern for each name, with a history."""
    nodes, drawn = [], {}
    for name in names:
        edge = data.draw(st.sampled_from(EDGES))
        nodes.append(GivenInput(name, TYPES, edge))
        drawn[name] = data.draw(histories(ROWS, edge))
    return nodes, drawn


def known(row: tuple) -> bool:
    return row[0] is not None


#: Where operators are checked.
FILES = ("conformance", "shared_distinct", "shared_join")
#: What a test checks an operator by.
CHECKS = {"check_operator", "check_window", "run", "advance"}


def test_every_operator_has_a_case() -> None:
    """Each is made in a test that checks it, of this file or of a file that has its harness."""
    cased: set[str] = set()
    files = [Path(__file__).with_name(f"test_{name}.py") for name in FILES]
    for test in itertools.chain(*(ast.parse(file.read_text()).body for file in files)):
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
            calls = [n.func for n in ast.walk(test) if isinstance(n, ast.Call)]
            names = {ast.unparse(call).rpartition(".")[2] for call in calls}
            cased |= names if names & CHECKS else set()
    nodes: set[str] = set()
    modules = [
        f"{package.__name__}.{file.name}"
        for package in (operators, windows)
        for file in pkgutil.iter_modules(package.__path__)
        if not file.ispkg
    ]
    for name in modules:
        classes = inspect.getmembers(import_module(name), inspect.isclass)
        found = {
            label
            for label, kind in classes
            if kind.__module__ == name and issubclass(kind, Node) and not label.startswith("_")
        }
        assert found, f"{name} has no operator"
        nodes |= found
    assert len(nodes) > 20
    assert nodes - cased == set()


RULES = {
    "distinct": lambda a: Counter(dict.fromkeys(a, 1)),
    "intersect": lambda a, b: Counter(dict.fromkeys(a & b, 1)),
    "intersect all": lambda a, b: a & b,
    "except": lambda a, b: Counter({r: 1 for r in a if r not in b}),
    "except all": lambda a, b: a - b,
}


@pytest.mark.parametrize("rule", RULES)
@CONFORMANCE
@given(st.data())
def test_multiplicities(rule: str, data: st.DataObject) -> None:
    sides = ("one",) if rule == "distinct" else ("one", "other")
    nodes, drawn = inputs(data, *sides)
    node = SetOperation(tuple(announce_expirations(n) for n in nodes), rule)
    check_operator(node, drawn, data.draw(cuts()), RULES[rule])


@pytest.mark.parametrize("keeps_input", [False, True])
@CONFORMANCE
@given(st.data())
def test_delta_star(keeps_input: bool, data: st.DataObject) -> None:
    edge = data.draw(st.sampled_from(EDGES[:3]))
    node = DistinctDeltaStar(GivenInput("one", TYPES, edge), keeps_input)
    drawn = {"one": data.draw(histories(ROWS, edge))}
    check_operator(
        node, drawn, data.draw(cuts()), RULES["distinct"], data.draw(st.sampled_from(INTERVALS))
    )


@CONFORMANCE
@given(st.data())
def test_last_copy(data: st.DataObject) -> None:
    edge = data.draw(st.sampled_from(EDGES[:3]))
    node = DistinctAnnouncing(GivenInput("one", TYPES, edge))
    drawn = {"one": data.draw(histories(ROWS, edge))}
    check_operator(
        node, drawn, data.draw(cuts()), RULES["distinct"], data.draw(st.sampled_from(INTERVALS))
    )


def test_delta_star_keeps_at_most_twice_its_output() -> None:
    node = DistinctDeltaStar(GivenInput("one", TYPES, EDGES[2]))
    lives = [Life(("a", float(n % 3)), n, n + 50) for n in range(300)]
    run = checking.run(node, {"one": lives}, [250])
    assert run.left <= 2 * len(sum_deltas(run.deltas, 250)) == 6


def test_partitions_give_every_row_once_when_it_is_due() -> None:
    chance = np.random.default_rng(7)
    waiting = PartitionedQueue(5)
    lives: list[int] = []
    given: list[int] = []
    for now in range(0, 400_000, 1_000):
        at = np.full(900, now, np.int64)
        until = now + 1 + chance.integers(0, 60_000, 900)
        rows = pa.RecordBatch.from_arrays([pa.array(until)], names=["c0"])
        waiting.add(Delta.of(rows, at, until))
        lives += until.tolist()
        for left in waiting.take_due(now + 500):
            assert left.rows.column(0).to_pylist() == left.at.tolist()
            assert (left.weight == -1).all()
            given += left.at.tolist()
        assert sorted(given) == sorted(i for i in lives if i <= now + 500)
        given, lives = [], [i for i in lives if i > now + 500]
        assert waiting.size() == len(lives)


def pairs(equal, theta=lambda one, other: True):  # type: ignore[no-untyped-def]
    def meaning(left: Rows, right: Rows) -> Rows:
        found: Rows = Counter()
        for one, count in left.items():
            for other, times in right.items():
                if equal(one, other) and theta(one, other):
                    found[one + other] += count * times
        return found

    return meaning


@CONFORMANCE
@given(st.data())
def test_joins(data: st.DataObject) -> None:
    (left, right), drawn = inputs(data, "left", "right")
    shape = data.draw(st.sampled_from(("key", "nulls", "all", "theta")))
    keep = (0, 1, 2, 3)
    match shape:
        case "key":
            node: Node = Join(left, right, (0,), (0,), keep=keep)
            meaning = pairs(lambda one, other: known(one) and one[0] == other[0])
        case "nulls":
            node = Join(left, right, (0, 1), (0, 1), keep=keep, nulls_match=True)
            meaning = pairs(lambda one, other: one == other)
        case "all":
            node = Join(left, right, (), (), keep=keep)
            meaning = pairs(lambda one, other: True)
        case _:
            node = Join(left, right, (0,), (0,), ("c1 < c3",), keep)
            meaning = pairs(lambda one, other: known(one) and one[0] == other[0], _less)
    check_operator(node, drawn, data.draw(cuts()), meaning, data.draw(st.sampled_from(INTERVALS)))


#: What sums of pairs may read.
OF_SUMS = (
    Count(Argument(), pa.int64()),
    Count(Argument(1, pa.float64()), pa.int64()),
    SumOfDoubles(Argument(3, pa.float64()), pa.float64()),
    Average(Argument(1, pa.float64()), pa.float64(), None),
)


@CONFORMANCE
@given(st.data())
def test_joins_that_keep_sums(data: st.DataObject) -> None:
    """Groups over a join that keeps sums by key are groups over its pairs."""
    (left, right), drawn = inputs(data, "left", "right")
    ends = [announce_expirations(i) for i in (left, right)]
    equal: tuple[int, ...] = data.draw(st.sampled_from(((0,), ())))
    sums = tuple(data.draw(st.sets(st.sampled_from((1, 3)))))
    by = (0,) if data.draw(st.booleans()) else ()
    nulls_match = data.draw(st.booleans())
    join = Join(*ends, equal, equal, (), (0, 1, 2, 3), nulls_match)
    types = (pa.string(),) * len(by)

    def over(joined: Join) -> GroupBy:
        return GroupBy(Grouping(joined, by, types), tuple(range(len(by))), OF_SUMS)

    def meaning(ours: Rows, theirs: Rows) -> Rows:
        found: dict[tuple, list] = {} if by else {(): []}
        for one, count in ours.items():
            for other, times in theirs.items():
                if not equal or (one[0] == other[0] and (nulls_match or known(one))):
                    found.setdefault(one[:1] if by else (), []).extend(
                        [(*one, *other)] * (count * times)
                    )
        return Counter(tuple(map(normalize, (*key, *_sum_up(own)))) for key, own in found.items())

    drawn_cuts, intervals = data.draw(cuts()), data.draw(st.sampled_from(INTERVALS))
    for node in (over(join), over(replace(join, sums=sums))):
        check_operator(node, drawn, drawn_cuts, meaning, intervals)


def _sum_up(rows: list) -> tuple:
    ours, theirs = ([row[p] for row in rows if row[p] is not None] for p in (1, 3))
    average = sum(ours) / len(ours) if ours else None
    return len(rows), len(ours), sum(theirs) + 0.0 if theirs else None, average


def _less(one: tuple, other: tuple) -> bool:
    """DuckDB's `<`: NULL is never less, NaN is greater than every number."""
    a, b = one[1], other[1]
    if a is None or b is None or a != a:
        return False
    return a == a and (b != b or a < b) if not isinstance(b, type(None)) else False


@pytest.mark.parametrize("anti", [False, True])
@CONFORMANCE
@given(st.data())
def test_semijoins_and_antijoins(anti: bool, data: st.DataObject) -> None:
    (left, right), drawn = inputs(data, "left", "right")
    by_count = not anti or data.draw(st.booleans())
    if by_count:
        partners: Node = announce_expirations(right)
        predicates, theta = ("c1 < c3",), _less
    else:
        keys = Project(right, (0,), (pa.string(),))
        partners = SetOperation((announce_expirations(keys),), "distinct")
        predicates, theta = (), lambda one, other: True
    node = Semijoin(left, partners, (0,), (0,), predicates, anti, (0, 1))

    def meaning(ours: Rows, theirs: Rows) -> Rows:
        def has_partner(one: tuple) -> bool:
            return any(known(one) and one[0] == o[0] and theta(one, o) for o in theirs)

        return Counter({one: n for one, n in ours.items() if has_partner(one) != anti})

    check_operator(node, drawn, data.draw(cuts()), meaning, data.draw(st.sampled_from(INTERVALS)))


@pytest.mark.parametrize("anti", [False, True])
@CONFORMANCE
@given(st.data())
def test_filtered_partners(anti: bool, data: st.DataObject) -> None:
    """With slices of one instant it is exact, but for a false positive in a million."""
    left = GivenInput("left", TYPES, data.draw(st.sampled_from(EDGES)))
    right = GivenInput("right", TYPES, data.draw(st.sampled_from(EDGES[:3])))
    drawn = {one.label: data.draw(histories(ROWS, one.leaves)) for one in (left, right)}
    node = FilteredSemijoin(left, right, (0,), (0,), anti, (0, 1), Slicing(1e-6, 1, 50))

    def meaning(ours: Rows, theirs: Rows) -> Rows:
        keys = {one[0] for one in theirs if known(one)}
        return Counter({one: n for one, n in ours.items() if (one[0] in keys) != anti})

    check_operator(node, drawn, data.draw(cuts()), meaning, data.draw(st.sampled_from(INTERVALS)))


@CONFORMANCE
@given(st.data())
def test_attaching(data: st.DataObject) -> None:
    edge = data.draw(st.sampled_from(EDGES[:3]))
    left, right = GivenInput("left", TYPES, edge), GivenInput("right", TYPES, STRICT)
    drawn = {
        "left": data.draw(histories(ROWS, edge)),
        "right": [replace(life, until=END) for life in data.draw(histories(ROWS, STRICT))],
    }
    optional = data.draw(st.booleans())
    node = NrrJoin(left, right, (0,), (0,), (), optional)
    for at_once in ([LATE], [*data.draw(cuts()), LATE]):
        run = checking.run(node, drawn, at_once)
        for now in range(-1, 40):
            expected: Rows = Counter()
            for life in drawn["left"]:
                if not life.at <= now < life.until:
                    continue
                one = tuple(map(normalize, life.row))
                found = [o for o, n in bag_at(drawn["right"], life.at).items() for _ in range(n)]
                pairs = [one + o for o in found if known(one) and one[0] == o[0]]
                expected.update(pairs or ([(*one, None, None)] if optional else []))
            assert sum_deltas(run.deltas, now) == expected, now
        checking.check_pattern(node, run.deltas)


def youngest_left(ours: Rows, theirs: Rows) -> Rows:
    fewer = Counter(row[0] for row in theirs.elements())
    kept: Rows = Counter()
    for key in {row[0] for row in ours}:
        rows = [row for row in ours.elements() if row[0] == key]
        rows.sort(key=lambda row: (row[2], sort_key(row[:2])))
        kept.update(row[:2] for row in rows[fewer[key] :])
    return kept


@CONFORMANCE
@given(st.data())
def test_negation_by_attributes(data: st.DataObject) -> None:
    types = (*TYPES, pa.int64())
    aged = st.tuples(*(st.sampled_from(v) for v in ((None, "a"), VALUES, (1, 2, 3))))
    edges = [data.draw(st.sampled_from(EDGES)) for _ in range(2)]
    left, right = GivenInput("left", types, edges[0]), GivenInput("right", TYPES, edges[1])
    drawn = {
        "left": data.draw(histories(aged, edges[0])),
        "right": data.draw(histories(ROWS, edges[1])),
    }
    node = Negation(announce_expirations(left), announce_expirations(right), (0,), (0,))
    check_operator(node, drawn, data.draw(cuts()), youngest_left)


def test_negation_by_attributes_while_rows_and_values_come_and_go() -> None:
    chance = np.random.default_rng(11)
    sides: dict[str, list[Life]] = {"left": [], "right": []}
    for at in range(600):
        # Values change all the time, so that numbers are given anew again and again.
        key = f"k{at // 40 + chance.integers(0, 6)}"
        row = (key, float(chance.integers(0, 3)), at // 3)
        side = "left" if chance.random() < 0.7 else "right"
        given_row = row if side == "left" else row[:2]
        sides[side].append(Life(given_row, at, at + int(chance.integers(1, 120))))
    left = GivenInput("left", (*TYPES, pa.int64()), EDGES[2])
    node = Negation(
        announce_expirations(left),
        announce_expirations(GivenInput("right", TYPES, EDGES[2])),
        (0,),
        (0,),
    )
    stops = list(range(0, 720, 9))
    run = checking.run(node, sides, stops)
    for now in stops:
        bags = [bag_at(sides[side], now) for side in ("left", "right")]
        assert sum_deltas(run.deltas, now) == youngest_left(*bags), now
    assert not run.left


def test_versions_are_forgotten_when_nothing_can_be_attached_to_them() -> None:
    relation = GivenInput("relation", (pa.int64(),), STRICT)
    # A value is replaced every ten instants.
    lives = [Life((n,), 10 * n, END, 10 * n + 10) for n in range(50)]
    windows = (Range(25, None), Range(7, 5))
    run = checking.run(
        RelationVersions(relation, windows), {"relation": lives}, list(range(0, 480, 7))
    )
    for now in range(0, 476):
        rows = sum_deltas(run.deltas, now)
        open_now = (now // 10, 10 * (now // 10), END)
        # Of those that have ended, the ones an element of the last 25 instants was attached to.
        closed = {(n, 10 * n, 10 * n + 10) for n in range(now // 10) if 10 * n + 9 + 25 > now}
        assert rows == Counter({open_now: 1, **dict.fromkeys(closed, 1)}), now
    forever = RelationVersions(relation, (*windows, RowsOf(3)))
    assert not forever.carries_expirations
    kept = checking.run(forever, {"relation": lives}, [480])
    assert len(sum_deltas(kept.deltas, 480)) == 49


@CONFORMANCE
@given(st.data())
def test_union(data: st.DataObject) -> None:
    nodes, drawn = inputs(data, "one", "other")
    check_operator(Union(tuple(nodes)), drawn, data.draw(cuts()), lambda a, b: a + b)


@CONFORMANCE
@given(st.data())
def test_unnesting(data: st.DataObject) -> None:
    """A row's letters beside two numbers: the shorter list is filled up with NULL."""
    (node,), drawn = inputs(data, "one")
    letters = Unnest(
        node,
        ("c0", "unnest(string_split(c0, ''))", "unnest([c1, 7.0])"),
        (pa.string(), pa.string(), pa.float64()),
    )

    def meaning(rows: Rows) -> Rows:
        found: Rows = Counter()
        for (text, number), count in rows.items():
            split = [] if text is None else [text]  # one letter, or the empty text
            for letter, other in zip_longest(split, [number, 7.0]):
                found[text, letter, other] += count
        return found

    check_operator(letters, drawn, data.draw(cuts()), meaning)


@CONFORMANCE
@given(st.data())
def test_selection_and_projection(data: st.DataObject) -> None:
    (node,), drawn = inputs(data, "one")
    selected = Select(node, ("c0 = 'a'",))
    check_operator(
        selected,
        drawn,
        data.draw(cuts()),
        lambda rows: Counter({r: n for r, n in rows.items() if r[0] == "a"}),
    )
    constant = pa.scalar(7, pa.int64()) if data.draw(st.booleans()) else pa.scalar(None, pa.int64())
    projected = Project(node, (0, "length(c0)", constant), (pa.string(), pa.int64(), pa.int64()))

    def meaning(rows: Rows) -> Rows:
        found: Rows = Counter()
        for row, count in rows.items():
            length = None if row[0] is None else len(row[0])
            found[row[0], length, constant.as_py()] += count
        return found

    check_operator(projected, drawn, data.draw(cuts()), meaning)


@CONFORMANCE
@given(st.data())
def test_expire_and_re_evaluation(data: st.DataObject) -> None:
    (node,), drawn = inputs(data, "one")
    partitions = data.draw(st.sampled_from((ARRIVAL_ORDER, 2, PARTITIONS)))
    check_operator(Expire(node, partitions), drawn, data.draw(cuts()), lambda rows: rows)
    again = Recompute(
        (node,),
        (("t", ("k", "x")),),
        "SELECT k, count(*) FROM t GROUP BY k",
        (pa.string(), pa.int64()),
    )

    def meaning(rows: Rows) -> Rows:
        counts: Counter = Counter()
        for row, count in rows.items():
            counts[row[0]] += count
        return Counter(dict.fromkeys(counts.items(), 1))

    check_operator(again, drawn, data.draw(cuts()), meaning)


@CONFORMANCE
@given(st.data())
def test_re_evaluation_by_groups(data: st.DataObject) -> None:
    (node,), drawn = inputs(data, "one")
    again = RecomputeGroups(
        node,
        (0,),
        "SELECT c0, row_number() OVER (PARTITION BY __key), __key FROM group_rows"
        " QUALIFY count(*) OVER (PARTITION BY __key) > 1",
        (pa.string(), pa.int64()),
    )

    def meaning(rows: Rows) -> Rows:
        counts: Counter = Counter()
        for row, count in rows.items():
            counts[row[0]] += count
        return Counter((k, n) for k, c in counts.items() if c > 1 for n in range(1, c + 1))

    check_operator(again, drawn, data.draw(cuts()), meaning)


@pytest.mark.parametrize("by", [(0,), (1,), (0, "c1 > 1"), ()])
@CONFORMANCE
@given(st.data())
def test_group_by(by: tuple[int | str, ...], data: st.DataObject) -> None:
    (node,), drawn = inputs(data, "one")
    kinds = tuple(TYPES[place] if isinstance(place, int) else pa.bool_() for place in by)
    grouping = Grouping(announce_expirations(node), by, kinds)
    aggregates = (
        Count(Argument(), pa.int64()),
        Count(Argument(0, pa.string(), None, True), pa.int64()),
        MinMax(Argument(0, pa.string()), pa.string(), True),
    )
    shown = tuple(range(len(by)))

    def key(row: tuple) -> tuple:
        above = None if row[1] is None else row[1] != row[1] or row[1] > 1
        return tuple(row[place] if isinstance(place, int) else above for place in by)

    def meaning(rows: Rows) -> Rows:
        groups: dict[tuple, list] = {} if by else {(): []}
        for row in rows.elements():
            groups.setdefault(key(row), []).append(row[0])
        found: Rows = Counter()
        for of, words in groups.items():
            some = [w for w in words if w is not None]
            found[(*of, len(words), len(set(some)), max(some, default=None))] += 1
        return found

    check_operator(GroupBy(grouping, shown, aggregates), drawn, data.draw(cuts()), meaning)
    check_operator(grouping, drawn, data.draw(cuts()), lambda rows: rows)


@CONFORMANCE
@given(st.data())
def test_the_first_rows(data: st.DataObject) -> None:
    (node,), drawn = inputs(data, "one")
    count, skip = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 2))
    top = TopK(announce_expirations(node), 2, (SortColumn(0, True, True),), count, skip)

    def place(row: tuple) -> tuple:
        word, number = row
        letters = [-ord(c) for c in word or ""]
        # Descending, so a word comes before those it begins; NULL comes first of all.
        first = (0, []) if word is None else (1, [*letters, 1])
        nan = number is not None and number != number
        return (first, number is None, nan, 0 if nan or number is None else number)

    def meaning(rows: Rows) -> Rows:
        return Counter(sorted(rows.elements(), key=place)[skip : skip + count])

    check_operator(top, drawn, data.draw(cuts()), meaning)


def test_one_row() -> None:
    check_operator(OneRow(), {}, [0, 7], lambda: Counter({(True,): 1}))


@pytest.mark.parametrize("source", [StreamSource, RelationSource])
def test_sources_give_what_they_are_given(source: type[StreamSource | RelationSource]) -> None:
    nodes = {
        StreamSource: StreamSource("s", ("k",), (pa.string(),)),
        RelationSource: RelationSource("r", ("k",), (pa.string(),)),
    }
    node = nodes[source]
    operator = node.operator()
    rows = pa.RecordBatch.from_arrays([pa.array(["a"])], schema=positional_schema(node.types))
    given = Delta.of(rows, np.array([3]))
    assert operator.advance([given], 5, DuckDBScalars()) is given
    assert node.feed == (node.name, node.source, ("k",))
    assert operator.size() == 0


@CONFORMANCE
@given(st.data())
def test_samples(data: st.DataObject) -> None:
    edge = data.draw(st.sampled_from(EDGES))
    numbered = st.tuples(st.sampled_from((None, "a")), st.sampled_from(VALUES), st.integers(0, 99))
    drawn = {"one": data.draw(histories(numbered, edge))}
    seed, percent = data.draw(st.integers(0, 9)), data.draw(st.sampled_from((0.0, 30.0, 100.0)))
    node = Sample(GivenInput("one", (*TYPES, pa.int64()), edge), seed, percent, 2)

    def meaning(rows: Rows) -> Rows:
        numbers = np.array([row[2] for row in rows], np.int64)
        chosen = choose_sample(seed, numbers, percent)
        return Counter({row: n for (row, n), c in zip(rows.items(), chosen, strict=True) if c})

    check_operator(node, drawn, data.draw(cuts()), meaning)


@CONFORMANCE
@given(st.data())
def test_rows_of_several_queries(data: st.DataObject) -> None:
    edge = data.draw(st.sampled_from(EDGES))
    listed = st.tuples(st.sampled_from((None, "a")), st.lists(st.integers(0, 3), max_size=3))
    drawn = {"one": data.draw(histories(listed.map(lambda r: (r[0], tuple(r[1]))), edge))}
    node = PerQuery(GivenInput("one", (pa.string(), pa.list_(pa.int64())), edge), 1)

    def meaning(rows: Rows) -> Rows:
        found: Rows = Counter()
        for (name, logs), n in rows.items():
            for log in logs:
                found[(name, log)] += n
        return found

    check_operator(node, drawn, data.draw(cuts()), meaning)


WINDOWS = {
    Range(4): lambda t, now: now - 4 < t,
    Range(5, 3): lambda t, now: now // 3 * 3 - 5 < t <= now // 3 * 3,
    Range(2, 5): lambda t, now: now // 5 * 5 - 2 < t <= now // 5 * 5,
    Now(): lambda t, now: t == now,
    Unbounded(): lambda t, now: True,
    Period(Bound(offset=-4), Bound(offset=-2)): lambda t, now: now - 4 <= t <= now - 2,
    Period(Bound(instant=3), Bound(offset=0)): lambda t, now: t >= 3,
    Period(Bound(offset=-3), Bound(instant=9)): lambda t, now: now - 3 <= t <= 9,
}


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@CONFORMANCE
@given(st.data())
def test_time_windows(window, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    for node in (TimeWindow(elements(), window), SharedWindow(KeptElements(elements()), window)):
        check_window(
            node,
            data,
            lambda feed, now: [e.row for e in feed if e.at <= now and WINDOWS[window](e.at, now)],
        )


@CONFORMANCE
@given(st.data())
def test_rows_windows(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 4))
    by = data.draw(st.sampled_from(((), (0,), (1,), (0, 1))))

    def held_at(feed, now):  # type: ignore[no-untyped-def]
        successors: Counter = Counter()
        kept = []
        for element in reversed([e for e in feed if e.at <= now]):
            key = tuple("nan" if element.row[p] != element.row[p] else element.row[p] for p in by)
            if successors[key] < count:
                kept.append(element.row)
            successors[key] += 1
        return kept

    check_window(RowsWindow(elements(), count, by), data, held_at)


@CONFORMANCE
@given(st.data())
def test_running_frames(data: st.DataObject) -> None:
    """Each row once, with what its partition held when it came; however the feed is cut."""
    by = data.draw(st.sampled_from(((), (0,))))
    frames = data.draw(st.lists(st.sampled_from(FRAMES), min_size=1, max_size=3, unique=True))
    other = data.draw(st.sampled_from(((), (1,), (0, 1))))
    lag = data.draw(st.integers(1, 3))
    numbers = (pa.int64(), pa.float64())
    calls = (
        *(FramedAggregate(by, numbers[0], f, Count(Argument(), numbers[0])) for f in frames),
        *(
            FramedAggregate(by, numbers[1], f, MinMax(Argument(1, numbers[1]), numbers[1], True))
            for f in frames
        ),
        *(RowNumber(other, numbers[0], name) for name in ("row_number", "rank", "dense_rank")),
        EarlierValue(by, TYPES[0], 0, lag),
        EarlierValue(by, numbers[1], 1, lag, 1),
        EarlierValue(other, TYPES[0], 0, None),
    )
    node = RunningFrames(elements(), 2, calls)
    feed = order_as_cut(data.draw(histories(ROWS, MONOTONIC)))
    cut, instants = [*data.draw(cuts()), 40], [*sorted({life.at for life in feed}), 40]
    for at_once, torn in (([40], False), (cut, False), (instants, True)):
        run = checking.run(node, {"stream": feed}, at_once, through_instants=torn)
        for now in range(-1, 35):
            found = sum_deltas(run.deltas, now)
            there = [life for life in feed if life.at <= now]
            rows = rows_with_frames(there, frames, by, other, lag)
            expected = Counter(tuple(map(normalize, row)) for row in rows)
            assert found == expected, (now, at_once, torn)
        if not torn:
            checking.check_pattern(node, run.deltas)
    checking.check_shards(node, {"stream": feed}, instants, run, (None,))


@CONFORMANCE
@given(st.data())
def test_instants(data: st.DataObject) -> None:
    check_window(
        Instants(elements()),
        data,
        lambda feed, now: [(True,) for at in {e.at for e in feed} if at <= now],
    )


@CONFORMANCE
@given(st.data())
def test_boundaries_of_slides(data: st.DataObject) -> None:
    window = Range(5, 3)

    def ticks(feed, now):  # type: ignore[no-untyped-def]
        """Where the window has rows, or had some until then."""
        has = {b for b in range(0, now + 1, 3) if any(WINDOWS[window](e.at, b) for e in feed)}
        return [(True,) for b in range(0, now + 1, 3) if {b, b - 3} & has]

    check_window(Boundaries(TimeWindow(elements(), window), 3), data, ticks)


@CONFORMANCE
@given(st.data())
def test_rstream(data: st.DataObject) -> None:
    def rows(feed, now):  # type: ignore[no-untyped-def]
        """At every instant at which an element comes, all that the window holds then."""
        instants = {e.at for e in feed if e.at <= now}
        return [e.row for i in instants for e in feed if e.at <= i and WINDOWS[Range(4)](e.at, i)]

    check_window(RStream(TimeWindow(elements(), Range(4)), (Instants(elements()),)), data, rows)


def elements() -> GivenInput:
    return GivenInput("stream", TYPES, MONOTONIC)


def check_window(  # type: ignore[no-untyped-def]
    node: Node, data: st.DataObject, rows, names=("stream",)
) -> None:
    """A window's meaning is a function of the feeds and the instant, not of a bag."""
    given = {name: data.draw(histories(ROWS, MONOTONIC)) for name in names}
    for at_once in ([40], [*data.draw(cuts()), 40]):
        run = checking.run(node, given, at_once)
        for now in range(-1, 35):
            found = rows(*given.values(), now)
            expected = Counter(tuple(map(normalize, row)) for row in found)
            assert sum_deltas(run.deltas, now) == expected, now
        checking.check_pattern(node, run.deltas)


#: Windows that elements enter as they come.
AT_ONCE = st.sampled_from([window for window in WINDOWS if find_length(window) is not None])
