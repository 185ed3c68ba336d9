"""Streams that subqueries stand for are made for their first reader, and go with the last."""

from __future__ import annotations

import pytest
from tests.unit.service.conftest import components_of

from millpond.errors import MillpondError
from millpond.planner.resolve.inner_streams import PREFIX
from millpond.service.changes.inner_streams import selects_from_streams
from millpond.service.pond import Pond

COUNTS = "(ISTREAM(SELECT count(*) AS n FROM s [RANGE 1 HOUR]))"
NESTED = f"ISTREAM(SELECT max(n) AS m FROM {COUNTS} [ROWS 2])"


@pytest.fixture
def s(pond: Pond) -> Pond:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
    pond.execute("CREATE RELATION r (k STRING, kind STRING)")
    return pond


def made(pond: Pond) -> list[str]:
    """The texts of the streams that subqueries stand for."""
    streams = components_of(pond).log.version.named_streams()
    return [s.derived.text for s in streams if s.name.startswith(PREFIX) and s.derived]


def test_equal_subqueries_are_one_stream_and_go_with_the_last_reader(s: Pond) -> None:
    one = s.register(f"SELECT n FROM {COUNTS} [RANGE 1 MINUTE]")
    other = s.register(f"SELECT max(n) AS n FROM {COUNTS} t [ROWS 3]")
    assert len(made(s)) == 1
    one.unregister()
    assert len(made(s)) == 1
    other.unregister()
    assert made(s) == []


def test_nested_ones_are_made_and_dropped_together(s: Pond) -> None:
    handle = s.register(f"SELECT * FROM {NESTED} [NOW]")
    assert len(made(s)) == 2
    s.execute(f"DROP QUERY {handle.name}")
    assert made(s) == []


def test_what_is_asked_once_leaves_nothing(s: Pond) -> None:
    s.ask(f"SELECT n FROM {COUNTS} [ROWS 1]")
    assert made(s) == []


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT n FROM {COUNTS} [ROWS 1]",
        f"EXPLAIN SELECT n FROM {COUNTS} [ROWS 1]",
        f"INSERT INTO r (k) SELECT CAST(m AS STRING) FROM {NESTED} [ROWS 1]",
        f"DELETE FROM r WHERE k IN (SELECT CAST(n AS STRING) FROM {COUNTS} [ROWS 1])",
        f"DELETE FROM r WHERE EXISTS (SELECT 1 FROM {COUNTS} [ROWS 1] c WHERE c.n > length(r.k))",
    ],
)
def test_every_statement_that_asks_may_have_one(s: Pond, statement: str) -> None:
    s.execute("INSERT INTO r VALUES ('a', 'x'), ('0', 'y')")
    s.execute(statement)
    assert made(s) == []


@pytest.mark.parametrize("fault", ["missing", "n, count(*)"])
def test_a_registration_that_fails_leaves_nothing(s: Pond, fault: str) -> None:
    with pytest.raises(MillpondError):
        s.register(f"SELECT {fault} FROM {COUNTS} [RANGE 1 MINUTE]")
    assert made(s) == []


def test_derived_objects_are_readers(s: Pond) -> None:
    s.execute(f"CREATE RELATION v AS SELECT n FROM {COUNTS} [ROWS 1]")
    s.execute(f"CREATE STREAM t AS ISTREAM(SELECT n FROM {COUNTS} [ROWS 1])")
    assert len(made(s)) == 1
    s.execute("DROP RELATION v")
    assert len(made(s)) == 1
    s.execute("DROP STREAM t")
    assert made(s) == []


def test_it_keeps_what_its_stream_keeps(s: Pond) -> None:
    s.execute("CREATE STREAM u (v INTEGER) RETAIN INTERVAL 1 DAY")
    s.register("SELECT n FROM (ISTREAM(SELECT count(*) AS n FROM u [NOW])) [ROWS 1]")
    s.register(f"SELECT n FROM {COUNTS} [ROWS 1]")
    streams = components_of(s).log.version.named_streams()
    kept = [stream.retain for stream in streams if stream.name.startswith(PREFIX)]
    assert sorted(kept, key=str) == [86_400_000_000, None]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT v FROM s, r WHERE s.k = r.k", True),
        ("SELECT v FROM s JOIN r ON s.k = r.k WHERE kind = 'x'", True),
        ("SELECT v FROM s [RANGE 1 HOUR], r", False),
        ("SELECT kind FROM r", False),
        ("SELECT count(*) AS n FROM s, r", False),
        ("SELECT v FROM s LEFT JOIN r ON s.k = r.k", False),
        ("SELECT v FROM s, r WHERE v IN (SELECT v FROM s)", False),
        ("SELECT DISTINCT v FROM s, r", False),
        ("SELECT v FROM s LIMIT 1", False),
    ],
)
def test_where_istream_is_implied(s: Pond, query: str, expected: bool) -> None:
    assert selects_from_streams(components_of(s).registrar.bind(query)) is expected


def test_samples_depend_on_neither_the_cut_nor_the_reader(s: Pond) -> None:
    text = "SELECT t.v FROM (SELECT s.k, v FROM s, r WHERE s.k = r.k) t SAMPLE(40)"
    s.execute("INSERT INTO r VALUES ('a', 'x'), ('b', 'y')")
    before = s.register(text)
    rows = [{"ts": f"2026-01-01 00:00:{n:02}", "k": "abc"[n % 3], "v": n} for n in range(60)]
    for start in range(0, 30, 3):
        s.ingest("s", rows[start : start + 3])
        s.catch_up()
    s.ingest("s", rows[30:])
    s.catch_up()
    kept = sorted(before.invoke().rows())
    after = s.register(text)
    assert sorted(after.invoke().rows()) == kept == sorted(s.ask(text).rows())
    assert 5 < len(kept) < 35
    assert all(n % 3 < 2 for (n,) in kept)
