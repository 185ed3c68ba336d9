"""Led queries: the same matches as blocks, to the bit, whatever comes and goes."""

from __future__ import annotations

import math
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millpond.engine.matching import led_run
from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import Leading, QuerySteM, snapshot_queries
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.predicates.factors import Factors, factorize
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.engine.values.value_sets import Domain, interval, points
from millpond.model.schema import Field, Schema

STREAM = Schema(
    (
        Field("a", "INTEGER"),
        Field("x", "DOUBLE"),
        Field("s", "VARCHAR"),
        Field("b", "BOOLEAN"),
        Field("t", "TINYINT"),
    )
)
SCALAR = ScalarEvaluator()
NEVER_LED = Leading(least=10**9)
ALWAYS_LED = Leading(least=1, few=1, most_share=2.0)

NUMBERS = [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 127, -128, 2**31 - 1, -(2**31)]
DOUBLES = [0.0, -0.0, 0.5, 3.0, math.nan, math.inf, -math.inf, 1e300]
TEXTS = ["", "a", "ab", "abc", "b", "ü", "prefix-long-1", "prefix-long-2", "prefix-long-20", "a\0"]


def elements(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)

    def column(pool: list[object], kind: pa.DataType) -> pa.Array:
        return pa.array([[*pool, None][i] for i in random.integers(0, len(pool) + 1, rows)], kind)

    return pa.table(
        {
            "a": column(NUMBERS, pa.int32()),
            "x": column(DOUBLES, pa.float64()),
            "s": column(TEXTS, pa.string()),
            "b": column([True, False], pa.bool_()),
            "t": column(NUMBERS[:13], pa.int8()),
        }
    )


TABLE = elements(300, 1)

_WHOLE = st.sampled_from(NUMBERS)
_CONSTANTS = {
    "a": _WHOLE.map(str),
    "t": _WHOLE.map(str),
    "x": st.sampled_from(["0", "0.5", "3", "'nan'::DOUBLE", "'inf'::DOUBLE", "1e300"]),
    "s": st.sampled_from([f"'{t}'" for t in TEXTS if "\0" not in t]),
}


@st.composite
def factors_of_a_kind(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from("atxs"))
    one, two = draw(_CONSTANTS[name]), draw(_CONSTANTS[name])
    kinds = [
        f"{name} = {one}",
        f"{name} <> {one}",
        f"{name} >= {one}",
        f"{name} BETWEEN {one} AND {two}",
        f"{name} IN ({one}, {two})",
        f"{name} NOT IN ({one}, {two})",
        f"{name} IS NULL",
        f"({name} = {one} OR {name} IS NULL)",
        f"({name} = {one} OR b)",
        f"({name} < {one} OR s = 'ab' OR a > 5)",
        "s LIKE 'prefix-long%'",
        "b",
        "b IS NOT TRUE",
        "length(s) > 2",
    ]
    return draw(st.sampled_from(kinds))


PREDICATES = st.lists(factors_of_a_kind(), min_size=1, max_size=3).map(" AND ".join)


def factors(text: str) -> Factors:
    return factorize(sqlglot.parse_one(text, read="duckdb"), STREAM)


def table_of(snapshot: StemSnapshot, table: pa.Table = TABLE) -> pa.Table:
    found = match(table, snapshot, SCALAR)
    assert not found.failed
    return found.to_table().sort_by("slot")


class ComingAndGoing(RuleBasedStateMachine):
    """Whatever is led, and whenever it is looked at, matches are those of blocks."""

    leading = ALWAYS_LED

    def __init__(self) -> None:
        super().__init__()
        self.stem = QuerySteM(STREAM, self.leading)
        self.known: dict[int, Factors] = {}
        self.next_slot = 0

    @rule(texts=st.lists(PREDICATES, min_size=1, max_size=12))
    def add(self, texts: list[str]) -> None:
        for text in texts:
            self.known[self.next_slot] = factors(text)
            self.stem.add(self.next_slot, self.known[self.next_slot])
            self.next_slot += 1

    @precondition(lambda self: self.known)
    @rule(share=st.floats(0, 1), seed=st.integers(0, 99), again=st.booleans())
    def remove_some(self, share: float, seed: int, again: bool) -> None:
        random = np.random.default_rng(seed)
        gone = [s for s in self.known if random.random() < share]
        for slot in gone:
            self.stem.remove(slot)
            assert slot not in self.stem
            del self.known[slot]
        if again and gone:
            self.known[gone[0]] = factors("a = 5")
            self.stem.add(gone[0], self.known[gone[0]])

    @rule(saved=st.booleans())
    def look(self, saved: bool) -> None:
        snapshot = self.stem.snapshot()
        assert snapshot.slots.tolist() == sorted(self.known)
        if saved:
            with tempfile.TemporaryDirectory() as folder:
                files = snapshot.save(Path(folder) / "stem")
                assert sorted(files) == sorted(Path(folder).iterdir())
                snapshot = StemSnapshot.load(Path(folder) / "stem")
                assert snapshot.slots.tolist() == sorted(self.known)
                self.stem.release(Path(folder))
        expected = snapshot_queries(self.known.items(), STREAM, NEVER_LED)
        assert not expected.led
        assert table_of(snapshot).equals(table_of(expected))

    @invariant()
    def count(self) -> None:
        assert len(self.stem) == len(self.known)
        assert all(slot in self.stem for slot in self.known)


class SomeLed(ComingAndGoing):
    """Some queries are led and others not, and which of them changes as they come and go."""

    leading = Leading(least=7, few=1, most_share=0.2)


TestComingAndGoing = ComingAndGoing.TestCase
TestComingAndGoing.settings = settings(max_examples=8, stateful_step_count=7)
TestSomeLed = SomeLed.TestCase
TestSomeLed.settings = settings(max_examples=8, stateful_step_count=7)


def equalities(count: int, first: int = 0) -> list[tuple[int, Factors]]:
    return [
        (first + i, Factors(sets=(("a", points(Domain.INT32, [first + i])),))) for i in range(count)
    ]


def wide_ranges(count: int, first: int) -> list[tuple[int, Factors]]:
    sets = (("b", interval(Domain.INT32, 0, 1_000_000)),)
    return [(first + i, Factors(sets=sets)) for i in range(count)]


def test_few_queries_are_led_where_that_saves_a_block() -> None:
    def count(equal: int, wide: int) -> tuple[int, int]:
        queries = [*equalities(equal), *wide_ranges(wide, equal)]
        found = snapshot_queries(queries, STREAM)
        return sum(map(len, found.led)), len(found.blocks)

    assert count(511, 0) == (0, 1)
    assert count(512, 0) == (512, 0)
    assert count(300, 600) == (0, 2)
    assert count(400, 600) == (0, 2)
    assert count(500, 1024) == (500, 2)
    # From 2,048 on, all are led that can be.
    assert count(300, 2000) == (300, 4)


def test_whether_few_are_led_is_looked_at_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    divide = QuerySteM._divide

    def note(self: QuerySteM, columns: Any) -> Any:
        looked.append(len(columns.slots))
        return divide(self, columns)

    monkeypatch.setattr(QuerySteM, "_divide", note)
    stem = QuerySteM(STREAM)
    for slot, query in wide_ranges(2100, 0):
        stem.add(slot, query)
        stem.snapshot()
    assert looked == [512, 1024, 1536, 2048]


def test_selective_equalities_are_led_and_wide_ranges_are_not() -> None:
    wide = [
        (10_000 + i, Factors(sets=(("x", interval(Domain.FLOAT, i, 10**18 + i)),)))
        for i in range(600)
    ]
    snapshot = snapshot_queries([*equalities(3000), *wide], STREAM)
    assert [len(led) for led in snapshot.led] == [3000]
    assert sum(int((block.slots >= 0).sum()) for block in snapshot.blocks) == 600


def test_the_rarer_of_two_constants_leads() -> None:
    queries = []
    for i in range(4000):
        text = points(Domain.TEXT, [b"a" if i % 2 else b"b"])
        number = points(Domain.INT32, [i // 2])
        queries.append((i, Factors(sets=(("a", number), ("s", text)))))
    (led,) = snapshot_queries(queries, STREAM).led
    names = {led.columns.axes[axis].attribute for axis in led.arrays["lead_axis"]}
    assert names == {"a"}


def test_a_constant_that_many_queries_name_does_not_lead() -> None:
    hot = [
        (
            10_000 + i,
            Factors(
                sets=(
                    ("a", points(Domain.INT32, [7])),
                    ("x", interval(Domain.FLOAT, i, 10**18 + i)),
                )
            ),
        )
        for i in range(1000)
    ]
    snapshot = snapshot_queries([*equalities(3000), *hot], STREAM)
    assert [len(led) for led in snapshot.led] == [2999]
    assert sum(int((block.slots >= 0).sum()) for block in snapshot.blocks) == 1001


def test_narrow_ranges_lead_and_take_few_entries() -> None:
    random = np.random.default_rng(4)
    queries = []
    for slot in range(5_000):
        low, width = int(random.integers(0, 10**6)), int(random.integers(1, 900))
        queries.append((slot, Factors(sets=(("a", interval(Domain.INT32, low, low + width)),))))
    snapshot = snapshot_queries(queries, STREAM)
    assert sum(map(len, snapshot.led)) > 4_000
    for led in snapshot.led:
        assert len(led.arrays["entries"]) <= 2 * len(led)
        assert led.nbytes < 300 * len(led)
    table = pa.table({"a": random.integers(0, 10**6, 500).astype(np.int32)})
    expected = snapshot_queries(queries, STREAM, NEVER_LED)
    assert table_of(snapshot, table).equals(table_of(expected, table))


def test_more_tests_than_are_beside_an_entry() -> None:
    """Some tests of a query are beside its entry; the others, alternatives, are asked for after."""
    kinds = [
        "a = {k}",
        "a = {k} AND t > 1",
        "a = {k} AND t > 1 AND x < 4 AND s >= 'a'",
        "a = {k} AND t > 1 AND x < 4 AND s >= 'a' AND b",
        "a = {k} AND t <> 5 AND x < 4",
        "a = {k} AND (t > 1 OR b) AND x IS NULL",
        "a BETWEEN {k} AND {k} + 1 AND t > 1 AND x < 4 AND s < 'b' AND b",
    ]
    queries = [
        (slot, factors(kinds[slot % len(kinds)].format(k=NUMBERS[slot % 11])))
        for slot in range(7 * 11)
    ]
    led = snapshot_queries(queries, STREAM, ALWAYS_LED)
    assert [len(index) for index in led.led] == [len(queries)]
    table = elements(3000, 5)
    expected = table_of(snapshot_queries(queries, STREAM, NEVER_LED), table)
    assert len(expected) > 50
    assert table_of(led, table).equals(expected)


def test_queries_that_come_one_by_one_are_in_few_indexes() -> None:
    stem = QuerySteM(STREAM, Leading(least=4, few=1, most_share=2.0))
    for slot, query in equalities(600):
        stem.add(slot, query)
        stem.snapshot()
    sizes = [len(led) for led in stem.snapshot().led]
    assert sum(sizes) >= 597
    assert all(one >= 4 * two for one, two in pairwise(sizes))


def test_one_more_query_leaves_the_indexes_as_they_are() -> None:
    stem = QuerySteM(STREAM)
    for slot, query in equalities(5000):
        stem.add(slot, query)
    (before,) = stem.snapshot().led
    stem.add(9000, equalities(1, 9000)[0][1])
    stem.remove(3)
    after = stem.snapshot()
    assert after.led[0] is before
    assert after.gone[0].tolist() == [3]


def test_an_index_that_half_of_its_queries_left_is_made_anew() -> None:
    stem = QuerySteM(STREAM)
    for slot, query in equalities(5000):
        stem.add(slot, query)
    stem.snapshot()
    for slot in range(2600):
        stem.remove(slot)
    after = stem.snapshot()
    assert [len(led) for led in after.led] == [2400]
    assert [len(gone) for gone in after.gone] == [0]
    for slot in range(2600, 5000):
        stem.remove(slot)
    assert stem.snapshot().led == ()


@pytest.mark.parametrize("most_pairs", [1, 50, 3000])
def test_more_pairs_than_are_held_at_a_time(
    monkeypatch: pytest.MonkeyPatch, most_pairs: int
) -> None:
    monkeypatch.setattr(led_run, "MOST_PAIRS", most_pairs)
    table = pa.table({"a": pa.array(np.arange(40) % 5, pa.int32())})
    queries = [
        (i, Factors(sets=(("a", interval(Domain.INT32, i % 3, 9 + i)),))) for i in range(200)
    ]
    led = snapshot_queries(queries, STREAM, ALWAYS_LED)
    assert [len(index) for index in led.led] == [200]
    expected = snapshot_queries(queries, STREAM, NEVER_LED)
    assert table_of(led, table).equals(table_of(expected, table))


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (led,) = snapshot_queries(equalities(3000), STREAM).led
    name = led.save(tmp_path)
    (tmp_path / "other.leads").write_bytes(b"something else entirely")
    with pytest.raises(ValueError, match="is not a file of led queries"):
        type(led).load(tmp_path / "other.leads")
    whole = (tmp_path / name).read_bytes()
    (tmp_path / "short.leads").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is cut short"):
        type(led).load(tmp_path / "short.leads")
