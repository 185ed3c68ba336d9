"""The laws of SEMANTICS section 7 for changes: dataflows against the naive oracle."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from millpond.algebra.denotation import World
from millpond.testing.changes_play import check_changes
from millpond.testing.oracle_pond import OraclePond
from millpond.testing.strategies import SECOND, Scenario, instants_of_elements, scenarios

LAW = settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
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


@LAW
@given(st.data())
def test_law_1_and_4_changes_are_what_the_definition_says_however_cut(data: st.DataObject) -> None:
    scenario = data.draw(scenarios(most_queries=2))
    world = world_of(scenario)
    for query in scenario.queries:
        operator = data.draw(st.sampled_from(("", "", "", "ISTREAM", "DSTREAM", "RSTREAM")))
        text = f"{operator}({query})" if operator else query
        check_changes(world, text, data.draw(cuts()), pickled=data.draw(st.booleans()))


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
    check_changes(pond.world, text, data.draw(cuts()), pickled=data.draw(st.booleans()))


NEGATIONS = (
    "SELECT k, v FROM s {w} EXCEPT ALL SELECT k, v FROM t {w} BY (k)",
    "SELECT s.k, s.v, t.v AS u FROM s {w} s, t {w} t WHERE s.k = t.k"
    " EXCEPT ALL SELECT v, k FROM t BY (k, v)",
    "SELECT * FROM s {w} EXCEPT ALL SELECT k FROM (SELECT DISTINCT k FROM t {w}) AS d BY (k)",
    "SELECT k, count(*) AS n FROM (SELECT k, v FROM s {w} EXCEPT ALL SELECT v FROM t BY (v)) AS x"
    " GROUP BY k",
)


@settings(LAW, max_examples=20)
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
    check_changes(pond.world, text, data.draw(cuts()), pickled=data.draw(st.booleans()))
