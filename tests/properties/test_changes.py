"""The laws of SEMANTICS section 7 for changes: dataflows against the naive oracle."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.oracle.oracle_pond import OraclePond
from tests.oracle.world import World
from tests.tools.changes_play import SCHEDULINGS, check_changes
from tests.tools.strategies import (
    SECOND,
    Scenario,
    instants_of_elements,
    predicates,
    scenarios,
)

from millpond.engine.dataflow.step import Scheduling
from millpond.errors import MillpondError
from millpond.model.time import to_datetime
from millpond.operators.protocol.cost_model import ColumnEstimate
from millpond.planner.optimize.statistics import GuessedStatistics

LAW = settings(
    max_examples=20,
    # What fails is printed as it is: making it smaller takes minutes.
    phases=[Phase.explicit, Phase.generate],
)

END_OF_PLAY = 30 * SECOND


def world_of(scenario: Scenario) -> World:
    """The history a scenario makes."""
    pond = OraclePond()
    for stream in scenario.streams:
        pond.execute(stream.declaration)
    for name, rows in scenario.batches():
        pond.ingest(name, rows)
    return pond.world


def cuts() -> st.SearchStrategy[list[int]]:
    """Instants a flow is advanced to, the end of play among them."""
    some = st.lists(instants_of_elements(), max_size=5, unique=True)
    return some.map(lambda instants: [*sorted(instants), END_OF_PLAY])


class Contrary(GuessedStatistics):
    """Knows of each stream what chance says, so that plans are chosen nobody would choose."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.steps = self._some("steps", 1e-4, 1e2)

    def rate(self, stream: str) -> float:
        return self._some(stream, 1e-3, 1e7)

    def column(self, stream: str, column: str) -> ColumnEstimate:
        distinct = self._some(stream + column, 1.0, 1e9)
        return ColumnEstimate(distinct, 1 / distinct)

    def _some(self, of: str, low: float, high: float) -> float:
        share = crc32(f"{self._seed} {of}".encode()) / 2**32
        return low * (high / low) ** share


#: Ways to compute the same changes (law 4).
WAYS = (
    {},
    {},
    {"rules": ()},
    {"strategy": "negative"},
    {"strategy": "direct"},
    {"partitions": 2},
    {"known": Contrary(1)},
    {"known": Contrary(2)},
    {"known": Contrary(3)},
    *({"whim": whim} for whim in ("a", "b", "c", "d", "e")),
)


#: How often expired rows are dropped, which does not show either.
LAZY = (None, None, 0, SECOND, 4 * SECOND, 10**12)


def held_to_the_oracle(
    world: World, text: str, data: st.DataObject, turns: Sequence[Scheduling] | None = None
) -> None:
    """Raises AssertionError where a query's changes are not those of the oracle."""
    way = data.draw(st.sampled_from(WAYS))
    when, pickled = data.draw(cuts()), data.draw(st.booleans())
    lazy = data.draw(st.sampled_from(LAZY))
    if turns is None:
        turns = data.draw(st.lists(st.sampled_from(SCHEDULINGS), max_size=3))
    spilled = data.draw(st.booleans())
    options = {"pickled": pickled, "lazy_expiration": lazy, "schedulings": turns}
    options["spilled"] = spilled
    try:
        check_changes(world, text, when, **options, **way)
    except MillpondError as error:
        # Not every plan can do without negative tuples.
        if way.get("strategy") != "direct" or error.code != "CQL-214":
            raise


@LAW
@given(st.data())
def test_law_1_and_4_changes_are_what_the_definition_says_however_cut(data: st.DataObject) -> None:
    scenario = data.draw(scenarios(most_queries=2))
    world = world_of(scenario)
    for query in scenario.queries:
        operator = data.draw(st.sampled_from(("", "", "", "ISTREAM", "DSTREAM", "RSTREAM")))
        text = f"{operator}({query})" if operator else query
        held_to_the_oracle(world, text, data)


@st.composite
def plans(draw: st.DrawFn, operators: int) -> str:
    """A query with columns k and v, of as many operators over windows of s and t."""
    if operators == 0:
        return f"SELECT k, v FROM {draw(st.sampled_from('st'))} {draw(st.sampled_from(WINDOWS))}"
    left = draw(st.integers(0, operators - 1))
    one = f"({draw(plans(left))})"
    other = f"({draw(plans(operators - 1 - left))})"
    alone = f"({draw(plans(operators - 1))}) AS p"
    match draw(st.sampled_from(_SHAPES)):
        case "select":
            return f"SELECT k, v FROM {alone} WHERE {draw(predicates(_KV))}"
        case "project":
            return f"SELECT k, v + 1 AS v FROM {alone}"
        case "distinct":
            return f"SELECT DISTINCT k, v FROM {alone}"
        case "group":
            aggregate = draw(st.sampled_from(("count(*)", "sum(v)::INTEGER", "max(v)")))
            return f"SELECT k, {aggregate} AS v FROM {alone} GROUP BY k"
        case "set":
            words = ("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL")
            return f"{one} {draw(st.sampled_from(words))} {other}"
        case "join":
            on = draw(st.sampled_from(("p.k = q.k", "p.v = q.v AND p.k <= q.k", "p.v < q.v")))
            return f"SELECT p.k, q.v FROM {one} AS p JOIN {other} AS q ON {on}"
        case "outer":
            side = draw(st.sampled_from(("LEFT", "RIGHT", "FULL")))
            return f"SELECT p.k, q.v FROM {one} AS p {side} JOIN {other} AS q ON p.k = q.k"
        case "scalar":
            aggregate = draw(st.sampled_from(("max(q.v)", "count(*) + 1", "min(q.v)")))
            on = draw(st.sampled_from(("", " WHERE q.k = p.k", " WHERE p.v = q.v AND q.k > 'a'")))
            value = f"(SELECT {aggregate} FROM {other} AS q{on})"
            if draw(st.booleans()):
                return f"SELECT k, {value}::INTEGER AS v FROM {one} AS p"
            return f"SELECT k, v FROM {one} AS p WHERE v <= {value}"
        case "windowed":
            value = draw(
                st.sampled_from(
                    (
                        "count(*) OVER (PARTITION BY k)",
                        "max(v) OVER (PARTITION BY k, v)",
                        "rank() OVER (PARTITION BY k ORDER BY v)",
                        "sum(v) OVER (PARTITION BY k ORDER BY v RANGE UNBOUNDED PRECEDING)",
                    )
                )
            )
            least = " QUALIFY min(v) OVER (PARTITION BY k) < 2"
            some = draw(st.sampled_from(("", " QUALIFY p.v > 0", least)))
            return f"SELECT k, ({value})::INTEGER AS v FROM {alone}{some}"
        case "listed":
            value = draw(st.sampled_from(("len(list(v))", "bit_xor(v)", "bit_or(v) + count(*)")))
            return f"SELECT k, ({value})::INTEGER AS v FROM {alone} GROUP BY k"
        case "lookup":
            value = draw(
                st.sampled_from(
                    (
                        f"(SELECT q.v FROM (SELECT k, max(v) AS v FROM {other} AS o GROUP BY k) q"
                        " WHERE q.k = p.k)",
                        f"(SELECT min(v) FROM {other} AS q HAVING count(*) > 1 LIMIT 1)",
                        f"(SELECT v FROM {other} AS q ORDER BY v DESC, k LIMIT 1)",
                        f"(SELECT v FROM (SELECT max(v) AS v FROM {other} AS o) AS q)",
                    )
                )
            )
            if draw(st.booleans()):
                return f"SELECT k, {value}::INTEGER AS v FROM {one} AS p"
            return f"SELECT k, v FROM {one} AS p WHERE v <= {value} OR k IS NULL"
        case "grouping sets":
            sets = draw(
                st.sampled_from(
                    (
                        "ROLLUP (k, v)",
                        "CUBE (k, v)",
                        "GROUPING SETS ((k), (k), ())",
                        "k, ROLLUP (v)",
                        "GROUPING SETS ((v, k), ROLLUP (k))",
                    )
                )
            )
            value = draw(st.sampled_from(("count(*)", "max(v)", "count(*) + 10 * grouping(k)")))
            having = draw(st.sampled_from(("", " HAVING count(*) > 1", " HAVING k IS NULL")))
            return f"SELECT k, ({value})::INTEGER AS v FROM {alone} GROUP BY {sets}{having}"
        case "mark":
            no = draw(st.sampled_from(("", "NOT ")))
            on = draw(st.sampled_from(("", " WHERE q.k = p.k", " WHERE q.k <> p.k")))
            inner = f"(SELECT v FROM {other} AS q{on})"
            told = draw(
                st.sampled_from(
                    (
                        f"EXISTS {inner}",
                        f"v {no}IN {inner}",
                        f"(v + 1 IN {inner}) IS NULL",
                        f"v < ANY {inner}",
                        f"(v >= ALL {inner}) IS NOT FALSE",
                    )
                )
            )
            if draw(st.booleans()):
                return f"SELECT k, ({told})::INTEGER AS v FROM {one} AS p"
            return f"SELECT k, v FROM {one} AS p WHERE {no}(k = 'a' OR {told})"
        case "quantified":
            no = draw(st.sampled_from(("", "NOT ")))
            words = draw(st.sampled_from(("> ALL", "<> ALL", "= ANY", "<= ANY", "< ALL")))
            return f"SELECT k, v FROM {one} AS p WHERE {no}v {words} (SELECT v FROM {other} AS q)"
        case "exists":
            no = draw(st.sampled_from(("", "NOT ")))
            on = draw(st.sampled_from(("q.k = p.k", "q.v = p.v AND q.k <> p.k", "q.v > p.v")))
            inner = f"SELECT 1 FROM {other} AS q WHERE {on}"
            return f"SELECT k, v FROM {one} AS p WHERE {no}EXISTS ({inner})"
        case _:
            no = draw(st.sampled_from(("", "NOT ")))
            return f"SELECT k, v FROM {one} AS p WHERE v {no}IN (SELECT v FROM {other} AS q)"


_KV = (("k", "VARCHAR"), ("v", "INTEGER"))
_SHAPES = (
    *("select", "project", "distinct", "group", "set", "set", "join", "join", "outer"),
    *("exists", "in", "scalar", "quantified", "lookup", "grouping sets", "mark"),
    *("windowed", "listed"),
)


def make_pond_of_two(data: st.DataObject, most: int) -> OraclePond:
    """A pond of streams s and t with at most so many elements each."""
    pond = OraclePond()
    for name in "st":
        pond.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k VARCHAR, v INTEGER) TIMESTAMP BY ts")
        element = st.tuples(
            st.integers(0, 9), st.sampled_from((None, "a", "b")), st.sampled_from((None, 0, 1, 2))
        )
        feed = data.draw(st.lists(element, max_size=most))
        feed.sort(key=lambda e: e[0])
        pond.ingest(name, [{"ts": to_datetime(at * SECOND), "k": k, "v": v} for at, k, v in feed])
    return pond


@LAW
@given(st.data())
def test_law_1_and_4_of_random_plans(data: st.DataObject) -> None:
    pond = make_pond_of_two(data, 8)
    held_to_the_oracle(pond.world, data.draw(plans(data.draw(st.integers(1, 5)))), data)


#: Queries over streams s and t and a relation r, non-retroactive or not.
WITH_A_RELATION = (
    "SELECT s.k, s.v, r.n FROM s {w} s, r WHERE s.k = r.k",
    "SELECT s.v, r.n FROM s {w} s LEFT JOIN r ON s.k = r.k AND r.n > s.v",
    "SELECT * FROM r, s {w} s WHERE s.k = r.k AND s.v > 0",
    "SELECT s.*, r.n FROM s {w} s JOIN t {w} t ON s.k = t.k JOIN r ON r.k = t.k AND r.n <> s.v",
    "SELECT r.n, count(*) AS c FROM s {w} s, r WHERE s.k = r.k GROUP BY r.n",
    "SELECT a.n, b.n AS m FROM r a, s {w} s, r b WHERE a.k = s.k AND b.n = a.n",
    "SELECT DISTINCT r.n FROM s {w} s, r WHERE r.k >= s.k",
    "SELECT k FROM (SELECT s.k, r.n FROM s {w} s, r WHERE r.k = s.k) AS j WHERE n > 1",
)
WINDOWS = (
    "",
    "[RANGE 3 SECONDS]",
    "[RANGE 3 SECONDS]",
    "[NOW]",
    "[ROWS 2]",
    "[RANGE 4 SECONDS SLIDE 2 SECONDS]",
    "[PARTITION BY k ROWS 1]",
)


@LAW
@given(st.data(), st.sampled_from(("RELATION", "NON RETROACTIVE RELATION")))
def test_law_1_and_4_of_joins_with_relations(data: st.DataObject, kind: str) -> None:
    scenario = data.draw(scenarios(most_queries=1))
    pond = OraclePond()
    pond.execute(f"CREATE {kind} r (k VARCHAR, n INTEGER)")
    for stream in scenario.streams:
        pond.execute(stream.declaration)
    if len(scenario.streams) < 2:
        pond.execute("CREATE STREAM t (ts TIMESTAMP, k VARCHAR, v INTEGER) TIMESTAMP BY ts")
    keys, numbers = st.sampled_from(("a", "b", "")), st.integers(0, 3)
    for _ in range(data.draw(st.integers(0, 4))):
        pond.execute(f"INSERT INTO r VALUES ('{data.draw(keys)}', {data.draw(numbers)})")
    for name, rows in scenario.batches():
        pond.ingest(name, rows)
    for _ in range(data.draw(st.integers(0, 6))):
        at = f"AT TIMESTAMP '1970-01-01 00:00:{data.draw(st.integers(0, 13)):02}'"
        key, number = data.draw(keys), data.draw(numbers)
        pond.execute(
            data.draw(
                st.sampled_from(
                    (
                        f"INSERT INTO r VALUES ('{key}', {number}) {at}",
                        f"DELETE FROM r WHERE k = '{key}' {at}",
                        f"UPDATE r SET n = {number} WHERE k = '{key}' {at}",
                    )
                )
            )
        )
    query = data.draw(st.sampled_from(WITH_A_RELATION)).format(
        w=data.draw(st.sampled_from(WINDOWS))
    )
    operator = data.draw(st.sampled_from(("", "", "", "ISTREAM", "DSTREAM", "RSTREAM")))
    text = f"{operator}({query})" if operator else query
    held_to_the_oracle(pond.world, text, data)


NEGATIONS = (
    "SELECT k, v FROM s {w} EXCEPT ALL SELECT k, v FROM t {w} BY (k)",
    "SELECT s.k, s.v, t.v AS u FROM s {w} s, t {w} t WHERE s.k = t.k"
    " EXCEPT ALL SELECT v, k FROM t BY (k, v)",
    "SELECT * FROM s {w} EXCEPT ALL SELECT k FROM (SELECT DISTINCT k FROM t {w}) AS d BY (k)",
    "SELECT k, count(*) AS n FROM (SELECT k, v FROM s {w} EXCEPT ALL SELECT v FROM t BY (v)) AS x"
    " GROUP BY k",
)


@settings(LAW, max_examples=10)
@given(st.data())
def test_law_1_and_4_of_negations_by_attributes(data: st.DataObject) -> None:
    scenario = data.draw(scenarios(most_queries=1))
    pond = OraclePond()
    for stream in scenario.streams:
        pond.execute(stream.declaration)
    if len(scenario.streams) < 2:
        pond.execute("CREATE STREAM t (ts TIMESTAMP, k VARCHAR, v INTEGER) TIMESTAMP BY ts")
    for name, rows in scenario.batches():
        pond.ingest(name, rows)
    text = data.draw(st.sampled_from(NEGATIONS)).format(w=data.draw(st.sampled_from(WINDOWS)))
    held_to_the_oracle(pond.world, text, data)


@pytest.mark.slow
@settings(LAW, max_examples=600)
@given(st.data())
def test_law_1_and_4_by_random_schedulers(data: st.DataObject) -> None:
    pond = make_pond_of_two(data, 14)
    text = data.draw(plans(data.draw(st.integers(1, 5))))
    turns = data.draw(st.lists(st.sampled_from(SCHEDULINGS), min_size=1, max_size=3))
    held_to_the_oracle(pond.world, text, data, turns)
