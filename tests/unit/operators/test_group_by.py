"""Group-by held to DuckDB: at every instant, over the bag of that instant."""

from __future__ import annotations

import math
import pickle
import pkgutil
from collections import Counter
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from itertools import pairwise

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engine.dataflow.net_changes import net_changes
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.operators.aggregation import aggregates as aggregates_directory
from millpond.operators.aggregation.aggregate import Aggregate, AggregateCall
from millpond.operators.aggregation.measures import Argument
from millpond.operators.group_by import GroupBy, Grouping
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.source import RelationSource
from millpond.planner.dataflow.aggregate_calls import find_recognizers


class NoScalars:
    def compute(self, rows, sqls):
        table = pa.Table.from_batches([rows])
        with duckdb.connect() as connection:
            connection.register("edge_rows", table)
            answer = connection.sql(f"SELECT {', '.join(sqls)} FROM edge_rows").to_arrow_table()
        return [column.combine_chunks() for column in answer.columns]

    def query(self, sql, tables):
        raise AssertionError


def aggregate(name, gives, column=None, of=None, **more) -> Aggregate:
    chosen, distinct = more.pop("chosen", None), more.pop("distinct", False)
    argument = Argument(column, of, chosen, distinct)
    found = find_recognizers()[name](AggregateCall(name, argument, of, gives, **more))
    assert found is not None
    return found


def group_by(types, by, aggregates) -> GroupBy:
    source = RelationSource("r", tuple(f"c{i}" for i in range(len(types))), tuple(types))
    grouping = Grouping(source, by, tuple(types[i] for i in by))
    return GroupBy(grouping, tuple(range(len(by))), tuple(aggregates))


def delta(changes, types) -> Delta:
    """Changes (at, weight, row) as a delta."""
    columns = [pa.array([c[2][i] for c in changes], t) for i, t in enumerate(types)]
    rows = pa.RecordBatch.from_arrays(columns, schema=positional_schema(types))
    at = np.array([c[0] for c in changes], np.int64)
    return Delta.of(rows, at, None, np.array([c[1] for c in changes], np.int64))


def run(node: GroupBy, changes, types, cuts) -> list[tuple[int, int, tuple]]:
    """What a group-by gives for changes, in batches that end before the instants `cuts`."""
    grouping, grouped = node.input.operator(), node.operator()
    given, edges = [], [-(10**18), *sorted(set(cuts)), 10**18]
    for low, high in pairwise(edges):
        batch = delta([c for c in changes if low <= c[0] < high], types)
        out = grouped.advance([grouping.advance([batch], high - 1, NoScalars())], high, NoScalars())
        assert (np.diff(out.at) >= 0).all()
        check_order(out)
        rows = zip(*[c.to_pylist() for c in out.rows.columns], strict=True)
        given += list(zip(out.at.tolist(), out.weight.tolist(), rows, strict=True))
        grouping = pickle.loads(pickle.dumps(grouping))
    return given


def check_order(given: Delta) -> None:
    """What is said to be in canonical order is: bringing it there alters nothing (INV-EMIT-1)."""
    stamps = [pa.field("__at", pa.int64()), pa.field("__sign", pa.int8())]
    schema = pa.schema([*stamps, *given.rows.schema])
    for to_stream in (None, "dstream"):
        as_given = net_changes(given, schema, to_stream)
        in_order = net_changes(replace(given, is_canonical=False), schema, to_stream)
        assert repr(as_given.to_pylist()) == repr(in_order.to_pylist())


#: What stands for a NaN where rows are counted: NaNs are not equal to themselves.
_NAN = object()


def key(row) -> tuple:
    return tuple(_NAN if isinstance(v, float) and math.isnan(v) else v for v in row)


def same(left, right) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    return type(left) is type(right) and left == right


def check(types, by, aggregates, sqls, changes, cuts) -> None:
    """Every instant's rows against DuckDB's over its bag."""
    given = run(group_by(types, by, aggregates), changes, types, cuts)
    names = [f"c{i}" for i in range(len(types))]
    held: Counter = Counter()
    place = 0
    instants = sorted({c[0] for c in changes})
    with duckdb.connect(config={"threads": "1"}) as connection:
        for instant in instants:
            while place < len(given) and given[place][0] <= instant:
                at, weight, row = given[place]
                assert at == instant or place == 0, "a change between the instants"
                held[key(row)] += weight
                place += 1
            bag: Counter = Counter()
            for at, weight, row in changes:
                if at <= instant:
                    bag[key(row)] += weight
            rows = [row for row, n in bag.items() for _ in range(n)]
            rows = [tuple(math.nan if v is _NAN else v for v in row) for row in rows]
            table = pa.table(
                [pa.array([r[i] for r in rows], t) for i, t in enumerate(types)], names=names
            )
            connection.register("given", table)
            keys = ", ".join(f"c{i}" for i in by)
            items = ", ".join([*([keys] if keys else []), *sqls])
            group = f" GROUP BY {keys}" if keys else ""
            answer = connection.sql(f"SELECT {items} FROM given{group}").to_arrow_table()
            wanted = sorted(zip(*[c.to_pylist() for c in answer.columns], strict=True), key=repr)
            has = [row for row, n in held.items() for _ in range(n)]
            assert all(n >= 0 for n in held.values())
            has = [tuple(math.nan if v is _NAN else v for v in row) for row in has]
            width = len(by)
            has.sort(key=lambda r: repr(r[:width]))
            wanted.sort(key=lambda r: repr(r[:width]))
            assert len(has) == len(wanted)
            for one, other in zip(has, wanted, strict=True):
                assert all(same(a, b) for a, b in zip(one, other, strict=True)), (one, other)
    assert place == len(given)


@st.composite
def histories(draw, values, keys=3, most=25):
    """Changes of (key, value, flag) rows: what goes was there."""
    bag: Counter = Counter()
    changes, at = [], 0
    for _ in range(draw(st.integers(1, most))):
        at += draw(st.integers(0, 2))
        there = sorted((r for r, n in bag.items() if n > 0), key=repr)
        if there and draw(st.booleans()):
            row = draw(st.sampled_from(there))
            weight = -draw(st.integers(1, bag[row]))
        else:
            k = draw(st.none() | st.integers(0, keys - 1))
            row = (k, draw(st.none() | values), draw(st.none() | st.booleans()))
            weight = draw(st.integers(1, 3))
        bag[row] += weight
        changes.append((at, weight, row))
    cuts = draw(st.lists(st.integers(0, at + 1), max_size=4))
    return changes, cuts


HUGEINT = pa.decimal128(38, 0)


@settings(max_examples=20)
@given(histories(st.floats(-3, 3) | st.just(-0.0) | st.just(math.nan)))
def test_group_bys_of_a_grouping_give_what_each_gives_alone(history):
    """Rows of one instant are in canonical order where all keys are shown, and only there."""
    changes, cuts = history
    types = [pa.int64(), pa.float64(), pa.bool_()]
    source = RelationSource("r", ("c0", "c1", "c2"), tuple(types))
    count = aggregate("count", pa.int64())
    some = aggregate("count", pa.int64(), None, None, chosen=2)
    least = aggregate("min", pa.bool_(), 2, pa.bool_())
    grouping = Grouping(source, (0, 1), (pa.int64(), pa.float64()))
    nodes = [
        GroupBy(grouping, shown, aggregates)
        for shown in ((0, 1), (1, 0), (1,), (0, 1, 0))
        for aggregates in ((count,), (some, least), (least,), (least, count), ())
    ]
    kept, operators = grouping.operator(), [node.operator() for node in nodes]
    alone = [(grouping.operator(), node.operator()) for node in nodes]
    for low, high in pairwise([-(10**18), *sorted(set(cuts)), 10**18]):
        batch = delta([c for c in changes if low <= c[0] < high], types)
        together = kept.advance([batch], high - 1, NoScalars())
        for node, operator, (own, by_itself) in zip(nodes, operators, alone, strict=True):
            out = operator.advance([together], high - 1, NoScalars())
            wanted = by_itself.advance(
                [own.advance([batch], high - 1, NoScalars())], high - 1, NoScalars()
            )
            assert listed(out) == listed(wanted)
            assert out.is_canonical == (len(node.shown) > 1 and bool(len(batch)))
            check_order(out)


def listed(given: Delta) -> str:
    """The rows of a delta, so that NaNs are equal."""
    stamps = zip(given.at.tolist(), given.weight.tolist(), given.until.tolist(), strict=True)
    return repr([*zip(stamps, given.rows.to_pylist(), strict=True)])


def numeric(of, sum_type, deviation=True):
    """Aggregates of a numeric column c1, filtered by c2 too, and their SQL."""
    f64 = pa.float64()
    pairs = [
        (aggregate("count", pa.int64()), "count(*)"),
        (aggregate("count", pa.int64(), 1, of), "count(c1)"),
        (aggregate("count", pa.int64(), 1, of, distinct=True), "count(DISTINCT c1)"),
        (aggregate("count", pa.int64(), None, None, chosen=2), "count(*) FILTER (c2)"),
        (aggregate("sum", sum_type, 1, of), "sum(c1)"),
        (aggregate("sum", sum_type, 1, of, chosen=2), "sum(c1) FILTER (c2)"),
        (aggregate("sum", sum_type, 1, of, distinct=True), "sum(DISTINCT c1)"),
        (aggregate("avg", f64, 1, of), "avg(c1)"),
        (aggregate("avg", f64, 1, of, distinct=True), "avg(DISTINCT c1)"),
        (aggregate("min", of, 1, of), "min(c1)"),
        (aggregate("max", of, 1, of, chosen=2), "max(c1) FILTER (c2)"),
        (aggregate("quantile_disc", of, 1, of, share=0.3), "quantile_disc(c1, 0.3)"),
        (aggregate("bool_and", pa.bool_(), 2, pa.bool_()), "bool_and(c2)"),
        (aggregate("bool_or", pa.bool_(), 2, pa.bool_()), "bool_or(c2)"),
        (aggregate("count_if", HUGEINT, 2, pa.bool_()), "count_if(c2)"),
    ]
    continuous = of if pa.types.is_decimal(of) or pa.types.is_float32(of) else f64
    pairs.append((aggregate("median", continuous, 1, of), "median(c1)"))
    pairs.append(
        (aggregate("quantile_cont", continuous, 1, of, share=0.9), "quantile_cont(c1, 0.9)")
    )
    if deviation:
        for name in ("var_pop", "var_samp", "stddev_pop", "stddev_samp", "sem"):
            pairs.append((aggregate(name, f64, 1, of), f"{name}(c1)"))
    return pairs


def test_every_file_of_the_aggregates_is_held_to_duckdb():
    """Each function of each other file has a case in `numeric`, and is in one file alone."""
    compared = {sql.partition("(")[0] for _, sql in numeric(pa.float64(), pa.float64())}
    followed = Counter()
    for file in pkgutil.iter_modules(aggregates_directory.__path__):
        if file.name in ("first_last", "value_lists"):  # over rows in an order: `aggregates`
            continue
        names = list(import_module(f"{aggregates_directory.__name__}.{file.name}").NAMES)
        assert names, file.name
        followed.update(names)
    assert followed == Counter(compared)


@settings(max_examples=60)
@given(histories(st.integers(-3, 3) | st.integers(-(2**62), 2**62)), st.booleans())
def test_whole_numbers(history, has_keys):
    pairs = numeric(pa.int64(), HUGEINT, deviation=False)
    types = [pa.int64(), pa.int64(), pa.bool_()]
    by = (0,) if has_keys else ()
    check(types, by, [a for a, _ in pairs], [s for _, s in pairs], *history)


@settings(max_examples=40)
@given(histories(st.decimals(-9999, 9999, places=2, allow_nan=False)))
def test_decimals(history):
    of = pa.decimal128(9, 2)
    pairs = numeric(of, pa.decimal128(38, 2))
    types = [pa.int64(), of, pa.bool_()]
    check(types, (0,), [a for a, _ in pairs], [s for _, s in pairs], *history)


@settings(max_examples=40)
@given(histories(st.decimals(Decimal(-(10**33)), 10**33, places=3, allow_nan=False)))
def test_wide_decimals(history):
    of = pa.decimal128(37, 3)
    pairs = [
        (aggregate("sum", pa.decimal128(38, 3), 1, of), "sum(c1)"),
        (aggregate("avg", pa.float64(), 1, of), "avg(c1)"),
        (aggregate("min", of, 1, of), "min(c1)"),
        (aggregate("count", pa.int64(), 1, of, distinct=True), "count(DISTINCT c1)"),
    ]
    types = [pa.int64(), of, pa.bool_()]
    check(types, (0,), [a for a, _ in pairs], [s for _, s in pairs], *history)


@settings(max_examples=40)
@given(histories(st.floats(-1e6, 1e6) | st.sampled_from([0.0, -0.0, math.inf, math.nan])))
def test_doubles(history):
    pairs = numeric(pa.float64(), pa.float64())
    types = [pa.int64(), pa.float64(), pa.bool_()]
    check(types, (0,), [a for a, _ in pairs], [s for _, s in pairs], *history)


@settings(max_examples=20)
@given(histories(st.floats(-1e6, 1e6, width=32)))
def test_floats(history):
    pairs = numeric(pa.float32(), pa.float64())
    types = [pa.int64(), pa.float32(), pa.bool_()]
    check(types, (0,), [a for a, _ in pairs], [s for _, s in pairs], *history)


def test_floats_are_interpolated_by_their_difference():
    """As DuckDB does it: any other way rounds to the float beside."""
    of = pa.float32()
    aggregates = [aggregate("quantile_cont", of, 1, of, share=0.9)]
    changes = [(0, 2, (None, 144.515625, None)), (0, 1, (None, 605299.125, None))]
    types = [pa.int64(), of, pa.bool_()]
    ((_, _, row),) = run(group_by(types, (0,), aggregates), changes, types, [])
    assert row == (None, 484268.1875)


_WORDS = st.text("abz", max_size=2) | st.text(max_size=3).filter(lambda t: "\0" not in t)
_TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))
_DATES = st.dates(date(1900, 1, 1), date(2100, 1, 1))
#: Columns: type, values, type of the continuous median if there is one.
_ORDERED = {
    "words": (pa.string(), _WORDS, None),
    "times": (pa.timestamp("us"), _TIMES, pa.timestamp("us")),
    "dates": (pa.date32(), _DATES, pa.timestamp("us")),
    "truths": (pa.bool_(), st.booleans(), None),
    "bytes": (pa.binary(), st.binary(max_size=2), None),
}


@pytest.mark.parametrize("kind", _ORDERED)
@settings(max_examples=25)
@given(data=st.data())
def test_what_has_an_order(kind, data):
    of, values, continuous = _ORDERED[kind]
    history = data.draw(histories(values))
    pairs = [
        (aggregate("count", pa.int64(), 1, of, distinct=True), "count(DISTINCT c1)"),
        (aggregate("min", of, 1, of), "min(c1)"),
        (aggregate("max", of, 1, of), "max(c1)"),
        (aggregate("quantile_disc", of, 1, of, share=0.75), "quantile_disc(c1, 0.75)"),
        (aggregate("median", continuous or of, 1, of), "median(c1)"),
    ]
    types = [pa.int64(), of, pa.bool_()]
    check(types, (0,), [a for a, _ in pairs], [s for _, s in pairs], *history)


@settings(max_examples=25)
@given(histories(_WORDS))
def test_keys_of_several_columns(history):
    types = [pa.int64(), pa.string(), pa.bool_()]
    pairs = [(aggregate("count", pa.int64()), "count(*)")]
    check(types, (1, 2, 0), [a for a, _ in pairs], [s for _, s in pairs], *history)


def test_a_group_appears_with_its_first_row_and_disappears_with_its_last():
    types = [pa.string(), pa.int64()]
    node = group_by(types, (0,), [aggregate("sum", HUGEINT, 1, pa.int64())])
    changes = [(1, 1, ("a", 5)), (1, 1, ("a", 2)), (4, -1, ("a", 5)), (9, -1, ("a", 2))]
    assert run(node, changes, types, [2, 5]) == [
        (1, 1, ("a", 7)),
        (4, -1, ("a", 7)),
        (4, 1, ("a", 2)),
        (9, -1, ("a", 2)),
    ]


def test_without_keys_there_is_one_row_from_the_beginning_of_time_on():
    types = [pa.int64()]
    aggregates = [aggregate("count", pa.int64()), aggregate("max", pa.int64(), 0, pa.int64())]
    node = group_by(types, (), aggregates)
    assert run(node, [(1, 1, (5,)), (3, -1, (5,))], types, [0]) == [
        (BEGINNING, 1, (0, None)),
        (1, -1, (0, None)),
        (1, 1, (1, 5)),
        (3, -1, (1, 5)),
        (3, 1, (0, None)),
    ]


def test_a_row_that_comes_out_the_same_is_no_change():
    types = [pa.int64(), pa.int64()]
    node = group_by(types, (0,), [aggregate("max", pa.int64(), 1, pa.int64())])
    changes = [(1, 1, (0, 5)), (2, 1, (0, 3)), (3, 1, (0, 4)), (3, -1, (0, 3))]
    assert run(node, changes, types, []) == [(1, 1, (0, 5))]


@settings(max_examples=60)
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=12),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=12),
    st.randoms(use_true_random=False),
)
def test_a_sum_of_doubles_knows_neither_order_nor_history(stay, pass_by, random):
    """What came and went, of whatever magnitude, leaves the sum as if it had not been there."""
    types = [pa.int64(), pa.float64()]
    coming = [(0, v) for v in [*stay, *pass_by]]
    random.shuffle(coming)
    changes = [(at, 1, row) for at, row in enumerate(coming)]
    going = [(0, v) for v in pass_by]
    random.shuffle(going)
    changes += [(100 + at, -1, row) for at, row in enumerate(going)]
    names = ("sum", "avg", "var_pop")
    aggregates = [aggregate(n, pa.float64(), 1, pa.float64()) for n in names]
    given = run(group_by(types, (0,), aggregates), changes, types, [3, 50, 104])
    plain = run(
        group_by(types, (0,), aggregates), [(at, 1, (0, v)) for at, v in enumerate(stay)], types, []
    )
    assert repr(given[-1][2]) == repr(plain[-1][2])
    total = sum((Fraction(v) for v in stay), Fraction(0))
    try:
        exact = float(total)
    except OverflowError:
        exact = math.inf if total > 0 else -math.inf
    assert given[-1][2][1] == exact


def test_groups_that_are_gone_are_forgotten():
    types = [pa.int64(), pa.string()]
    aggregates = [
        aggregate("sum", HUGEINT, 0, pa.int64()),
        aggregate("max", pa.string(), 1, pa.string()),
    ]
    node = group_by(types, (1,), aggregates)
    grouping, grouped = node.input.operator(), node.operator()
    sizes = []
    for step in range(60):
        rows = [(step, 1, (n, f"{step}-{n}")) for n in range(50)]
        if step:
            rows += [(step, -1, (n, f"{step - 1}-{n}")) for n in range(50)]
        out = grouping.advance([delta(rows, types)], step, NoScalars())
        given = grouped.advance([out], step, NoScalars())
        assert given.weight.sum() == (50 if step == 0 else 0)
        sizes.append(grouping.bytes())
        assert grouping.size() == 50
    assert max(sizes[30:]) <= max(sizes[:30])


def test_two_groupings_become_one():
    """An operator that is folded into another hands over what the other does not measure."""
    types = [pa.string(), pa.int64()]
    total, greatest = (
        aggregate("sum", HUGEINT, 1, pa.int64()),
        aggregate("max", pa.int64(), 1, pa.int64()),
    )
    one, two = group_by(types, (0,), [total]), group_by(types, (0,), [greatest])
    assert one.input.key == two.input.key
    first, second = one.input.operator(), two.input.operator()
    by_one, by_two = one.operator(), two.operator()
    before = [(0, 1, ("gone", 1)), (1, -1, ("gone", 1)), (2, 1, ("a", 5)), (3, 1, ("b", 7))]
    by_one.advance([first.advance([delta(before, types)], 3, NoScalars())], 3, NoScalars())
    # The other was made later, from what still matters, and numbers the groups differently.
    later = [(0, 1, ("b", 7)), (0, 1, ("a", 5))]
    by_two.advance([second.advance([delta(later, types)], 3, NoScalars())], 3, NoScalars())
    first.absorb(second)
    step = [(4, 1, ("a", 6)), (4, -1, ("b", 7))]
    out = first.advance([delta(step, types)], 4, NoScalars())
    sums, greatests = by_one.advance([out], 4, NoScalars()), by_two.advance([out], 4, NoScalars())
    assert sums.rows.to_pylist()[-1] == {"c0": "a", "c1": 11}
    assert sorted(
        (w, tuple(r.values()))
        for w, r in zip(greatests.weight.tolist(), greatests.rows.to_pylist(), strict=True)
    ) == [(-1, ("a", 5)), (-1, ("b", 7)), (1, ("a", 6))]


def test_equal_measures_are_kept_once():
    types = [pa.int64(), pa.float64()]
    names = ("sum", "avg", "count")
    aggregates = [
        aggregate(n, pa.int64() if n == "count" else pa.float64(), 1, pa.float64()) for n in names
    ]
    node = group_by(types, (0,), aggregates)
    grouping, grouped = node.input.operator(), node.operator()
    changes = delta([(0, 1, (1, 2.5))], types)
    grouped.advance([grouping.advance([changes], 0, NoScalars())], 0, NoScalars())
    # How many rows, how many values, and their sum.
    assert len(grouping._measures._kept) == 3


def test_a_sum_beyond_hugeint_is_an_error():
    of = pa.decimal128(38, 0)
    node = group_by([pa.int64(), of], (0,), [aggregate("sum", HUGEINT, 1, of)])
    most, least = Decimal(10**38 - 1), Decimal(1 - 10**38)
    with pytest.raises(MillpondError, match="POND-404"):
        run(node, [(0, 1, (0, most)), (0, 1, (0, most))], [pa.int64(), of], [])
    # But only the sum counts, not what it passes through.
    changes = [(0, 1, (0, most)), (0, 1, (0, most)), (0, 1, (0, least))]
    assert run(node, changes, [pa.int64(), of], []) == [(0, 1, (0, most))]
