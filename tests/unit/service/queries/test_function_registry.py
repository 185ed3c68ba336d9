"""User-defined functions: what they answer, who may use them when, and what happens when they fail.

Every answer here is the oracle's too, to which a function is one more function of DuckDB's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.unit.service.conftest import SECOND, OpenPond, rows, values

from millpond.engine.eddy.routing import POLICIES
from millpond.errors import MillpondError
from millpond.model.time import to_datetime
from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.pond import Pond

STREAM = "CREATE STREAM s (ts TIMESTAMP, v INTEGER, k VARCHAR) TIMESTAMP BY ts"


def twice(x: pa.Array) -> pa.Array:
    return pc.multiply(x, 2.0)


def repeated(k: pa.Array, n: pa.Array) -> pa.Array:
    pairs = zip(k.to_pylist(), n.to_pylist(), strict=True)
    return pa.array([None if None in pair else pair[0] * pair[1] for pair in pairs], pa.string())


def error_of(act: Callable[[], Any]) -> MillpondError:
    with pytest.raises(MillpondError) as caught:
        act()
    return caught.value


@pytest.fixture
def pond(pond: Pond) -> Pond:
    pond.execute(STREAM)
    return pond


# -- what they answer ------------------------------------------------------------------------------

QUERIES = (
    "SELECT v FROM s WHERE twice(v) > 3",
    "SELECT v FROM s WHERE NOT twice(v) > 3",
    "SELECT v, TWICE(v) AS t, repeated(k, v) AS r FROM s",
    "SELECT repeated(k, 2) AS r, count(*) AS n FROM s GROUP BY repeated(k, 2)",
    "SELECT v FROM s WHERE repeated(k, 2) IS NULL",
    "SELECT v FROM s WHERE twice(v) > 1 OR k = 'a'",
    "SELECT v FROM s [ROWS 2 WHERE twice(v) < 5]",
    "SELECT a.v, b.v AS w FROM s a, s b WHERE twice(a.v) = b.v",
    "SELECT v FROM s WHERE v IN (SELECT twice(v) FROM s)",
    "SELECT sum(twice(v)) AS n FROM s [RANGE 2 SECONDS]",
    "SELECT v FROM s WHERE twice(v) > (SELECT avg(twice(v)) FROM s)",
    "SELECT v FROM s WHERE CASE WHEN v < 3 THEN twice(v) = 4 ELSE twice(v) = 6 END",
)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("first", ["queries", "data"])
def test_answers_are_those_of_the_oracle(pond: Pond, query: str, first: str) -> None:
    oracle = OraclePond()
    oracle.execute(STREAM)
    ponds: list[Any] = [pond, oracle]
    for either in ponds:
        either.function("twice", twice, arguments=["DOUBLE"], returns="DOUBLE")
        either.function("repeated", repeated, arguments=["VARCHAR", "INT"], returns="STRING")
    if first == "queries":
        pond.register(query, "q")
    for either in ponds:
        for k in ("a", "bc", None):
            either.ingest("s", rows(1, 2, 3, 4, k=k))
    pond.wait_until_matched()
    handle = pond.query("q") if first == "queries" else pond.register(query)
    expected = sorted(oracle.ask(query).rows(), key=repr)
    assert expected
    assert sorted(handle.invoke().rows(), key=repr) == expected
    assert sorted(pond.ask(query).rows(), key=repr) == expected


def test_a_projection_has_the_name_that_was_written(pond: Pond) -> None:
    pond.function("twice", twice, arguments=["DOUBLE"], returns="DOUBLE")
    assert pond.ask("SELECT Twice(v), twice(v) FROM s").columns == ["twice(v)", "twice(v)_1"]
    handle = pond.register("SELECT twice(v) FROM s WHERE twice(v) > 1")
    for level in ("logical", "rewritten", "shared", "runtime"):
        assert "twice(v) > 1" in handle.plan(level)
        assert "__udf" not in handle.plan(level)


def test_a_decorated_function_is_named_after_itself(pond: Pond) -> None:
    @pond.function(arguments=["DOUBLE"], returns="DOUBLE")
    def Half(x: pa.Array) -> pa.Array:
        return pc.divide(x, 2.0)

    @pond.function("third", arguments=["DOUBLE"], returns="DOUBLE", cost=3)
    def anything(x: pa.Array) -> pa.Array:
        return pc.divide(x, 3.0)

    assert Half(pa.array([3.0])).to_pylist() == [1.5]
    assert pond.ask("SELECT half(3) AS h, third(6) AS t").rows() == [(1.5, 2.0)]
    assert [f["name"] for f in pond.functions()] == ["half", "third"]


def test_relations_are_changed_with_them(pond: Pond) -> None:
    pond.function("twice", twice, arguments=["DOUBLE"], returns="DOUBLE")
    pond.execute("CREATE RELATION r (v DOUBLE); INSERT INTO r VALUES (1), (2), (3)")
    pond.execute("UPDATE r SET v = twice(v) WHERE twice(v) > 3; DELETE FROM r WHERE twice(v) = 8")
    assert values(pond.ask("SELECT v FROM r")) == [1, 6]


def test_numbers_may_come_in_another_width(pond: Pond) -> None:
    pond.function("length_of", lambda k: pc.utf8_length(k), arguments=["VARCHAR"], returns="BIGINT")
    pond.function("nothing", lambda k: pa.nulls(len(k)), arguments=["VARCHAR"], returns="DOUBLE")
    assert pond.ask("SELECT length_of('abc') AS n, nothing('x') AS o").rows() == [(3, None)]


# -- the catalog -----------------------------------------------------------------------------------


def test_a_restart_knows_them(open_pond: OpenPond) -> None:
    factor = 10
    pond = open_pond()
    pond.execute(STREAM)
    pond.function(
        "scaled", lambda x: pc.multiply(x, factor), arguments=["BIGINT"], returns="BIGINT"
    )
    pond.register("SELECT scaled(v) AS v FROM s WHERE scaled(v) > 5", "q")
    pond.ingest("s", rows(1, 2, 3))
    pond = open_pond()
    assert values(pond.query("q").invoke()) == [10, 20]
    assert pond.functions()[0]["arguments"] == ["BIGINT"]
    assert error_of(lambda: pond.drop_function("scaled")).code == "POND-401"


def test_dropping(pond: Pond) -> None:
    pond.function("twice", twice, arguments=["DOUBLE"], returns="DOUBLE")
    query = pond.register("SELECT v FROM s WHERE twice(v) > 3", "q")
    refused = error_of(lambda: pond.drop_function("Twice"))
    assert (refused.code, refused.detail) == ("POND-401", "1 standing query calls it: q.")
    query.alter(active=False)
    assert error_of(lambda: pond.drop_function("twice")).code == "POND-401"
    query.unregister()
    pond.drop_function("TWICE")
    assert pond.functions() == []
    assert error_of(lambda: pond.drop_function("twice")).code == "CQL-212"
    assert error_of(lambda: pond.ask("SELECT twice(v) FROM s")).code == "CQL-212"


def test_what_is_derived_uses_them_too(pond: Pond) -> None:
    for name in ("f", "g"):
        pond.function(name, twice, arguments=["DOUBLE"], returns="DOUBLE")
    pond.execute(
        "CREATE STREAM d AS ISTREAM(SELECT f(v) AS w FROM s WHERE f(v) > 3);"
        "CREATE RELATION r AS SELECT g(v) AS w FROM s WHERE g(v) > 3"
    )
    query = pond.register("SELECT max(w) AS m FROM r")
    pond.ingest("s", rows(1, 2, 3, 4))
    pond.wait_until_matched()
    assert values(pond.ask("SELECT w FROM d")) == [4]
    assert query.invoke().rows() == [(6,)]
    for name in ("f", "g"):
        assert error_of(lambda name=name: pond.drop_function(name)).code == "POND-401"
    query.unregister()
    pond.execute("DROP RELATION r; DROP STREAM d")
    pond.drop_function("f")
    pond.drop_function("g")


def test_changes_are_computed_with_them(pond: Pond) -> None:
    pond.function("f", twice, arguments=["DOUBLE"], returns="DOUBLE")
    pond.register("SELECT f(v) AS w FROM s [RANGE 2 SECONDS] WHERE f(v) > 1", "q")
    pond.ingest("s", rows(1, 2, 3, 9))
    pond.wait_until_matched()
    (fetched,) = pond.execute("FETCH q")
    assert [(sign, w) for _, _, sign, w in fetched.changes.rows()] == [
        ("+", 2),
        ("+", 4),
        ("-", 2),
        ("-", 4),
    ]


def test_defining_anew(pond: Pond) -> None:
    pond.function("f", twice, arguments=["DOUBLE"], returns="DOUBLE")
    text = "SELECT f(v) AS v FROM s WHERE f(v) > 3"
    query = pond.register(text)
    pond.ingest("s", rows(1, 2, 3))
    assert values(query.invoke()) == [4]

    def thrice(x: pa.Array) -> pa.Array:
        return pc.multiply(x, 3.0)

    def anew(**more: Any) -> Any:
        return pond.function("f", thrice, **{"arguments": ["DOUBLE"], "returns": "DOUBLE", **more})

    refused = error_of(anew)
    assert refused.code == "POND-401"
    query.alter(active=False)
    refused = error_of(lambda: anew(returns="VARCHAR"))
    assert (refused.code, refused.primary) == (
        "POND-401",
        'function "f" is in use with another signature',
    )
    anew()
    query.alter(active=True)
    assert values(query.invoke()) == [6]
    query.unregister()
    pond.function("f", repeated, arguments=["VARCHAR", "INT"], returns="VARCHAR")
    assert pond.ask("SELECT f('ab', 2) AS v").rows() == [("abab",)]


def test_the_same_again_is_nothing_new(pond: Pond) -> None:
    first = pond.function("twice", twice, arguments=["DOUBLE"], returns="DOUBLE")
    pond.register("SELECT v FROM s WHERE twice(v) > 3")
    assert pond.function("twice", twice, arguments=["DOUBLE"], returns="DOUBLE") == first


@pytest.mark.parametrize(
    ("name", "function", "arguments", "returns", "code"),
    [
        ("abs", twice, ["DOUBLE"], "DOUBLE", "CQL-208"),
        ("sum", twice, ["DOUBLE"], "DOUBLE", "CQL-208"),
        ("now", twice, ["DOUBLE"], "DOUBLE", "CQL-208"),
        ("a b", twice, ["DOUBLE"], "DOUBLE", "CQL-221"),
        ("_f", twice, ["DOUBLE"], "DOUBLE", "CQL-221"),
        ("f", twice, [], "DOUBLE", "CQL-221"),
        ("f", twice, "DOUBLE", "DOUBLE", "CQL-221"),
        ("f", twice, ["DOUBLE", "DOUBLE"], "DOUBLE", "CQL-221"),
        ("f", 7, ["DOUBLE"], "DOUBLE", "CQL-221"),
        ("f", twice, ["DUBLE"], "DOUBLE", "CQL-210"),
        ("f", twice, ["DOUBLE"], "UUID", "CQL-210"),
        ("f", twice, ["DOUBLE"], "JSON", "CQL-210"),
        ("f", twice, ["STRUCT(a JSON)"], "DOUBLE", "CQL-210"),
        ("f", threading.Lock().acquire, ["DOUBLE"], "DOUBLE", "CQL-221"),
    ],
)
def test_what_cannot_be_defined(
    pond: Pond, name: str, function: Any, arguments: Any, returns: str, code: str
) -> None:
    refused = error_of(lambda: pond.function(name, function, arguments=arguments, returns=returns))
    assert (refused.code, pond.functions()) == (code, [])
    assert refused.hint


@pytest.mark.parametrize("promise", [{"cost": -1}, {"max_seconds": 0}, {"max_seconds": "soon"}])
def test_promises_that_are_none(pond: Pond, promise: dict[str, Any]) -> None:
    def define() -> None:
        pond.function("f", twice, arguments=["DOUBLE"], returns="DOUBLE", **promise)

    assert error_of(define).code == "CQL-221"


@pytest.mark.parametrize(
    ("query", "code", "primary"),
    [
        ("SELECT twic(v) FROM s", "CQL-212", 'no function "twic"'),
        ("SELECT twice(k) FROM s", "CQL-220", 'function "twice" does not take (VARCHAR)'),
        ("SELECT v FROM s WHERE twice(v, v) > 1", "CQL-220", "does not take (INTEGER, INTEGER)"),
        ("SELECT v FROM s [ROWS 1 WHERE twice(k) > 1]", "CQL-220", "does not take (VARCHAR)"),
        ("SELECT v FROM s WHERE twice(v)", "CQL-205", "WHERE needs a BOOLEAN, and this is DOUBLE"),
    ],
)
def test_calls_are_checked_where_the_query_is_bound(
    pond: Pond, query: str, code: str, primary: str
) -> None:
    pond.function("twice", twice, arguments=["DOUBLE"], returns="DOUBLE")
    refused = error_of(lambda: pond.register(query))
    assert refused.code == code
    assert primary in refused.primary
    if code == "CQL-220":
        assert refused.detail == "It takes: twice(DOUBLE) -> DOUBLE."


# -- what goes wrong -------------------------------------------------------------------------------


REASONS = {
    "raises": 'Function "f" raised ValueError: seven',
    "short": 'Function "f" gave 1 value for 2 rows',
    "type": 'Function "f" gave values of type string where DOUBLE was promised',
    "nothing": 'Function "f" gave a NoneType instead of an Arrow array',
    "slow": 'Function "f" took longer than 0.2 seconds for one call',
}


def define_spoilt(pond: Pond, kind: str, seconds: float = 0.2) -> None:
    """A function that works until a value is 7."""

    @pond.function("f", arguments=["DOUBLE"], returns="DOUBLE", max_seconds=seconds)
    def spoilt(x: pa.Array) -> Any:
        if 7 not in x.to_pylist():
            return x
        if kind == "raises":
            raise ValueError("seven\nof all numbers")
        if kind == "short":
            return x.slice(1)
        if kind == "type":
            return x.cast(pa.string())
        if kind == "nothing":
            return None
        while True:
            pass


@pytest.mark.parametrize("kind", REASONS)
def test_a_failing_predicate_suspends_its_queries_alone(pond: Pond, kind: str) -> None:
    define_spoilt(pond, kind)
    failing = pond.register("SELECT v FROM s WHERE v > 5 AND f(v) > 1")
    guarded = pond.register("SELECT v FROM s WHERE v < 7 AND f(v) > 1")
    other = pond.register("SELECT v FROM s WHERE v > 1")
    pond.ingest("s", [{"ts": "2024-01-01", "v": v} for v in (2, 6, 7)])
    pond.wait_until_matched()
    assert values(other.invoke()) == [2, 6, 7]
    assert failing.describe()["suspended"].endswith(REASONS[kind][1:])
    assert error_of(failing.invoke).code == "POND-402"
    if kind != "slow":  # a function that was too slow rests for a while, for all its queries
        assert values(guarded.invoke()) == [2, 6]
        assert guarded.describe()["suspended"] is None


@pytest.mark.parametrize("kind", REASONS)
def test_a_failing_projection_suspends_at_invocation(pond: Pond, kind: str) -> None:
    define_spoilt(pond, kind, 0.3)
    query = pond.register("SELECT f(v) AS v FROM s")
    pond.ingest("s", [{"ts": "2024-01-01", "v": 6}])
    assert values(query.invoke()) == [6]
    pond.ingest("s", [{"ts": "2024-01-02", "v": 7}])
    failed = error_of(lambda: query.invoke(at="2024-01-02"))
    assert failed.code == "POND-411"
    shown = failed.detail or ""
    assert shown.split()[:3] == REASONS[kind].split()[:3]
    assert query.describe()["suspended"] == shown
    assert error_of(query.invoke).code == "POND-402"


def test_mended_and_activated_it_answers_again(pond: Pond) -> None:
    define_spoilt(pond, "raises")
    query = pond.register("SELECT v FROM s WHERE f(v) > 1", "q")
    pond.ingest("s", [{"ts": "2024-01-01", "v": v} for v in (2, 7)])
    pond.wait_until_matched()
    assert not query.definition.active
    pond.function("f", twice, arguments=["DOUBLE"], returns="DOUBLE")
    pond.execute("ALTER QUERY q SET (active = true)")
    assert values(query.invoke()) == [2, 7]
    pond.wait_until_matched()
    assert values(query.invoke()) == [2, 7]
    assert query.describe()["suspended"] is None


def test_activated_without_repair_it_is_suspended_again(pond: Pond) -> None:
    define_spoilt(pond, "raises")
    query = pond.register("SELECT v FROM s WHERE f(v) > 1")
    pond.ingest("s", [{"ts": "2024-01-01", "v": 7}])
    pond.wait_until_matched()
    query.alter(active=True)
    pond.wait_until_matched()
    assert not query.definition.active


def test_asking_fails_and_suspends_nothing(pond: Pond) -> None:
    define_spoilt(pond, "raises")
    pond.ingest("s", [{"ts": "2024-01-01", "v": 7}])
    for query in ("SELECT f(v) AS v FROM s", "SELECT v FROM s WHERE f(v) > 1"):
        assert error_of(lambda query=query: pond.ask(query)).code == "POND-411"


# -- cost ------------------------------------------------------------------------------------------


def test_only_what_survives_the_other_factors_is_given_to_it(pond: Pond) -> None:
    pond.function("probed", twice, arguments=["DOUBLE"], returns="DOUBLE")
    for _ in range(3):
        pond.register("SELECT v FROM s WHERE probed(v) > 1 AND v >= 90 AND k LIKE '%x%'")
    pond.register("SELECT k FROM s WHERE probed(v) > 1 AND v >= 95")
    pond.ingest("s", [{"ts": "2024-01-01", "v": v, "k": "xy"[v % 2]} for v in range(100)])
    pond.wait_until_matched()
    (figures,) = pond.functions()
    # One call for the distinct expression, over the rows left to any of the predicates.
    assert (figures["calls"], figures["rows"]) == (1, 8)


def test_what_calls_cost_is_shown(pond: Pond) -> None:
    pond.function("shown", twice, arguments=["DOUBLE"], returns="DOUBLE", cost=2.5)
    query = pond.register("SELECT v FROM s WHERE shown(v) > 1")
    assert "shown: not called yet" in query.plan("runtime")
    pond.ingest("s", rows(1, 2, 3))
    assert "shown: 1 call, 3 rows" in query.plan("runtime")
    assert pond.metrics.get_sample_value("millpond_function_rows_total", {"function": "shown"}) == 3
    (table,) = (r.table for r in pond.execute("SHOW FUNCTIONS"))
    assert table is not None
    shown = {"name": "shown", "arguments": "DOUBLE", "returns": "DOUBLE", "trusted": True}
    assert table.to_pylist() == [{**shown, "calls": 1, "rows": 3}]


def test_a_call_sees_no_rows_of_other_calls(pond: Pond) -> None:
    pond.function("seen", twice, arguments=["DOUBLE"], returns="DOUBLE")
    for least in (1, 3, 5):
        pond.register(f"SELECT v FROM s WHERE v < 5 AND seen(v) > {least}")
    pond.register("SELECT v FROM s WHERE v >= 90 AND seen(v + 1) > 1")
    pond.register("SELECT v FROM s WHERE length(k) + v > 7")
    pond.ingest("s", [{"ts": "2024-01-01", "v": v, "k": "x"} for v in range(100)])
    pond.wait_until_matched()
    (figures,) = pond.functions()
    assert (figures["calls"], figures["rows"]) == (2, 15)


# -- routing ---------------------------------------------------------------------------------------

ROUTED = (
    "SELECT v FROM s WHERE checked(k) > 1 AND k LIKE '%1%'",
    "SELECT v FROM s WHERE checked(k) > 1 AND CAST(k AS INTEGER) < 60"
    " AND regexp_full_match(k, '[0-9]+')",
    "SELECT v FROM s WHERE CAST(k AS INTEGER) > 7 AND twice(v) < 40 AND k <> 'none' AND k <> 'x1'",
    "SELECT a.v, b.v AS w FROM s a, s b WHERE a.v = b.v AND checked(a.k) > 1 AND twice(b.v) < 30"
    " AND a.k LIKE '%1%'",
    "SELECT v FROM s WHERE checked(k) > 0",
)


@pytest.mark.parametrize("routing", sorted(POLICIES))
def test_no_policy_shows_where_predicates_can_fail(pond: Pond, routing: str) -> None:
    def checked(k: pa.Array) -> pa.Array:
        if "none" in k.to_pylist():
            raise ValueError("none")
        return pc.utf8_length(k).cast("float64")

    oracle = OraclePond()
    pond._components.set_join_settings(JoinSettings(routing=routing))
    oracle.execute(STREAM)
    ponds: list[Any] = [pond, oracle]
    for either in ponds:
        either.function("twice", twice, arguments=["DOUBLE"], returns="DOUBLE")
        either.function("checked", checked, arguments=["VARCHAR"], returns="DOUBLE")
    queries = [pond.register(text) for text in ROUTED]
    for start in range(0, 120, 20):
        texts = ["none" if v % 13 == 5 else "x1" if v % 13 == 4 else str(v) for v in range(120)]
        batch = [
            {"ts": to_datetime((1 + v) * SECOND), "v": v, "k": texts[v]}
            for v in range(start, start + 20)
        ]
        for either in ponds:
            either.ingest("s", batch)
    pond.wait_until_matched()
    for text, query in zip(ROUTED[:-1], queries, strict=False):
        expected = sorted(oracle.ask(text).rows())
        assert expected
        assert sorted(query.invoke().rows()) == expected
        assert sorted(pond.ask(text).rows()) == expected
    suspended = queries[-1].describe()["suspended"]
    assert suspended.endswith('function "checked" raised ValueError: none')


def test_what_is_routed_is_shown(pond: Pond) -> None:
    pond.function("shown", twice, arguments=["DOUBLE"], returns="DOUBLE")
    query = pond.register("SELECT v FROM s WHERE shown(v) > 1 AND CAST(k AS INTEGER) < 5")
    pond.ingest("s", [{"ts": "2024-01-01", "v": v, "k": str(v)} for v in range(100)])
    pond.wait_until_matched()
    plan = query.plan("runtime")
    assert "other factor shown(v) > 1: " in plan.replace('"', "")
    assert "5.9% come back, 1 predicate, " in plan
    assert "__udf" not in plan
    (figures,) = pond.functions()
    assert figures["rows"] == 5, "CAST is tried first, and takes 95 away"
    assert pond.metrics.get_sample_value(
        "millpond_tickets", {"stream": "s", "module": 'CAST("k" AS INT) < 5'}
    )


def test_accounts_of_dropped_queries_are_forgotten(pond: Pond) -> None:
    for number in range(400):
        query = pond.register(f"SELECT v FROM s WHERE v % 7 = {number} AND v % 5 = {number}")
        if number % 40 == 39:
            pond.ingest("s", [{"ts": to_datetime((1 + number) * SECOND), "v": number, "k": "x"}])
        query.unregister()
    assert len(pond._components.stems.accounts(pond._components.log.version.find("s").id)) <= 256
