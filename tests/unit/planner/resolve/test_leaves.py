"""Occurrences of streams and relations: windows, samples, columns, slices' names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millpond.cql.print.dialect import to_duckdb
from millpond.model.windows import Bound, Now, Period, Range, Rows, Unbounded, Window
from millpond.planner.bind.bound_query import BoundQuery

Binding = Callable[[str], BoundQuery]
HOUR = 3_600_000_000

WINDOWS: list[tuple[str, Window]] = [
    ("", Unbounded()),
    ("[RANGE UNBOUNDED]", Unbounded()),
    ("[NOW]", Now()),
    ("[RANGE 1 HOUR]", Range(HOUR)),
    ("[RANGE 2 HOURS SLIDE 1 HOUR]", Range(2 * HOUR, HOUR)),
    ("[ROWS 3]", Rows(3)),
    ("[PARTITION BY CARRIER, origin ROWS 3]", Rows(3, ("carrier", "origin"))),
]


@pytest.mark.parametrize(("written", "window"), WINDOWS)
def test_windows(binding: Binding, written: str, window: Window) -> None:
    assert binding(f"SELECT * FROM flights {written}").streams[0].window == window


def test_every_occurrence_is_a_leaf_of_its_own(binding: Binding) -> None:
    bound = binding(
        "SELECT a.carrier FROM flights a, Flights [NOW] b, planes p, planes q "
        "WHERE a.tailnum = p.tailnum AND q.seats = b.distance AND p.seats > q.seats"
    )
    assert [(s.table, s.stream) for s in bound.streams] == [
        ("leaf_0", "flights"),
        ("leaf_1", "flights"),
    ]
    assert [(r.table, r.relation) for r in bound.relations] == [
        ("rel_0", "planes"),
        ("rel_1", "planes"),
    ]
    assert "leaf_0 AS a, leaf_1 AS b, rel_0 AS p, rel_1 AS q" in bound.residual_sql


def test_leaves_are_numbered_as_they_stand_in_the_text(binding: Binding) -> None:
    bound = binding(
        "WITH c AS (SELECT origin FROM weather [NOW]) SELECT f.carrier FROM flights f "
        "WHERE EXISTS (SELECT 1 FROM c WHERE c.origin = f.origin)"
    )
    assert [(s.table, s.stream) for s in bound.streams] == [
        ("leaf_0", "weather"),
        ("leaf_1", "flights"),
    ]


def test_a_cte_of_a_slices_name_hides_no_slice(binding: Binding) -> None:
    bound = binding("WITH leaf_0 AS (SELECT carrier FROM flights) SELECT * FROM leaf_0")
    assert bound.streams[0].table == "leaf_1"
    assert bound.residual_sql == (
        "WITH leaf_0 AS (SELECT carrier FROM leaf_1 AS flights) SELECT * FROM leaf_0"
    )


def test_unaliased_names_still_qualify(binding: Binding) -> None:
    bound = binding("SELECT Flights.Delay FROM flights WHERE FLIGHTS.origin = 'JFK'")
    assert bound.residual_sql == (
        "SELECT flights.delay FROM leaf_0 AS flights WHERE flights.origin = 'JFK'"
    )


def test_rejects_are_a_stream(binding: Binding) -> None:
    bound = binding("SELECT reason FROM flights$rejects [RANGE 1 HOUR]")
    assert bound.streams[0].stream == "flights$rejects"
    assert bound.streams[0].columns == ("reason",)


def test_columns_are_those_the_residual_needs(binding: Binding) -> None:
    bound = binding(
        "SELECT f.carrier, (SELECT max(temp) FROM weather w WHERE w.origin = f.dest) AS t "
        "FROM flights [PARTITION BY tailnum ROWS 3 WHERE distance > 100] f ORDER BY f.ts"
    )
    assert [(s.stream, s.columns) for s in bound.streams] == [
        ("weather", ("origin", "temp")),
        ("flights", ("ts", "carrier", "dest")),
    ]


def test_a_slice_without_columns_keeps_one(binding: Binding) -> None:
    assert binding("SELECT count(*) FROM flights").streams[0].columns == ("ts",)
    assert binding("SELECT 1 FROM planes").relations[0].columns == ("tailnum",)


def test_star_needs_every_column_of_its_source_only(binding: Binding) -> None:
    bound = binding("SELECT p.* FROM flights f JOIN planes p ON f.tailnum = p.tailnum")
    assert bound.streams[0].columns == ("tailnum",)
    assert bound.relations[0].columns == ("tailnum", "model", "seats")


def test_columns_that_join_are_needed_on_both_sides(binding: Binding) -> None:
    for join in ("JOIN planes USING (tailnum)", "NATURAL JOIN planes"):
        bound = binding(f"SELECT carrier FROM flights {join}")
        assert bound.streams[0].columns == ("carrier", "tailnum")
        assert bound.relations[0].columns == ("tailnum",)


def test_renamed_columns_keep_their_places(binding: Binding) -> None:
    bound = binding("SELECT b FROM weather AS w(a, b, c) WHERE b = 'JFK' AND c > 3")
    leaf = bound.streams[0]
    assert leaf.columns == ("ts", "origin", "wind", "temp")
    assert leaf.pushed is not None
    assert to_duckdb(leaf.pushed) == "origin = 'JFK' AND wind > 3"
    assert bound.projection == (("origin", "b"),)


def test_before_is_over_bare_columns(binding: Binding) -> None:
    leaf = binding("SELECT * FROM flights [ROWS 3 WHERE F.Dest = 'SFO'] AS f").streams[0]
    assert leaf.before is not None
    assert to_duckdb(leaf.before) == "dest = 'SFO'"
    assert leaf.predicate == leaf.before


def test_samples(binding: Binding) -> None:
    assert binding("SELECT * FROM flights [RANGE 1 HOUR] SAMPLE(2.5)").streams[0].sample == 2.5
    bound = binding("SELECT c FROM (SELECT carrier AS c FROM flights WHERE delay > 3) t SAMPLE(10)")
    assert bound.streams[0].sample == 10
    assert "SAMPLE" not in bound.residual_sql


PERIOD = Period(Bound(offset=-3 * HOUR), Bound(offset=0))


def test_a_period_is_the_window_of_the_from_clause(binding: Binding) -> None:
    bound = binding(
        "WITH c AS (SELECT * FROM weather) "
        "SELECT f.carrier FROM flights f, (SELECT origin FROM weather) w, "
        "(SELECT origin FROM weather [NOW]) n, c "
        "WHERE f.origin = w.origin AND EXISTS (SELECT 1 FROM weather v) "
        "BEGIN NOW - INTERVAL 3 HOURS END NOW"
    )
    windows = [s.window for s in bound.streams]
    # The CTE, the FROM clause itself, its subquery; a nearer window; a subquery outside FROM.
    assert windows == [PERIOD, PERIOD, PERIOD, Now(), Unbounded()]
    assert "BEGIN" not in bound.residual_sql


def test_a_constant_period(binding: Binding) -> None:
    window = binding(
        "SELECT * FROM flights BEGIN '1970-01-01 00:00:01' END NOW - INTERVAL 1 HOUR"
    ).streams[0]
    assert window.window == Period(Bound(instant=1_000_000), Bound(offset=-HOUR))


def test_to_stream_and_order(binding: Binding) -> None:
    bound = binding("ISTREAM(SELECT * FROM flights [ROWS 1])")
    assert bound.to_stream == "istream"
    assert bound.residual_sql == "SELECT * FROM leaf_0 AS flights"
    assert bound.canonical == "ISTREAM(SELECT * FROM flights [ROWS 1])"
    assert binding("SELECT ts FROM flights").to_stream is None
    assert binding("SELECT ts FROM flights ORDER BY ts").ordered
    assert not binding("SELECT * FROM (SELECT ts FROM flights ORDER BY ts) t").ordered


def test_canonical_texts_of_equal_queries_are_equal(binding: Binding) -> None:
    texts = [
        "SELECT carrier, delay FROM flights [RANGE 1 HOUR] WHERE delay > 60",
        "select  Carrier, DELAY from FLIGHTS [range 60 minutes] where Delay > 60 -- same",
        'SELECT "carrier", flights."delay" FROM "flights" [RANGE 3600 SECONDS] WHERE delay > 60',
    ]
    first, second, third = (binding(t).canonical for t in texts)
    assert first == second
    assert third == first.replace(", delay", ", flights.delay")
    assert binding(first).canonical == first


def test_binding_leaves_the_tree_alone(names: object) -> None:
    from millpond.cql.print.dialect import parse_query
    from millpond.planner.bind.bind import bind

    text = "SELECT Carrier FROM FLIGHTS [NOW] WHERE DELAY > 3"
    tree = parse_query(text)
    before = repr(tree)
    bind(tree, text, names)  # type: ignore[arg-type]
    assert repr(tree) == before
