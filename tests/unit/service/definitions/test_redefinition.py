"""CREATE OR REPLACE of a followed query: behind the mark its changes add up to the new answer."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from tests.unit.service.conftest import SECOND, OpenPond, components_of, rows

from millpond.errors import MillpondError
from millpond.model.time import to_datetime
from millpond.service.pond import Pond
from millpond.service.queries.query_selection import QuerySelection

SCHEMA = """
CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;
CREATE STREAM t (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts;
CREATE RELATION r (k INTEGER)
"""

#: Definitions that a query goes through, one after the other.
TEXTS = {
    "selection": "SELECT v FROM s WHERE v > 1",
    "other constant": "SELECT v FROM s WHERE v > 2",
    "window": "SELECT v FROM s [RANGE 3 SECONDS]",
    "rows": "SELECT v FROM s [ROWS 2]",
    "another stream": "SELECT v FROM t",
    "join": "SELECT s.v FROM s [RANGE 9 SECONDS], t WHERE s.v = t.v",
    "relation": "SELECT v FROM s, r WHERE v = k",
    "relation alone": "SELECT k AS v FROM r",
    "duplicates": "SELECT v % 2 AS v FROM s [RANGE 5 SECONDS]",
    "distinct": "SELECT DISTINCT v % 2 AS v FROM s",
    "total": "SELECT count(*) AS n, sum(v) AS total FROM s",
    "groups": "SELECT v % 2 AS k, max(v) AS m FROM s GROUP BY v % 2",
    "texts": "SELECT 'é' || v AS v, CAST(NULL AS DOUBLE) AS nothing FROM s",
    "difference": "SELECT v FROM s EXCEPT ALL SELECT v FROM t",
    "again": "SELECT v FROM s WHERE v > 1",
}


class Follower:
    """Adds up what FETCH gives, a page at a time, from the first change on."""

    def __init__(self) -> None:
        self.held: Counter[tuple[Any, ...]] = Counter()
        self.cursor: str | None = None
        self.redefined: list[str] = []

    def read(self, pond: Pond, limit: int | None = None) -> int:
        """Read all changes; return the instant up to which they are complete."""
        while True:
            page = pond.query("q").fetch(self.cursor, limit)
            if page.redefined is not None and len(page):
                self.redefined.append(page.redefined)
            for change in page:
                self.held[change.row] += 1 if change.sign == "+" else -1
            self.cursor = page.cursor
            if page.position >= page.newest:
                return page.as_of

    def check(self, pond: Pond, what: str) -> None:
        """Hold what was added up to the answer at the instant up to which it is complete."""
        at = self.read(pond)
        answer = Counter(tuple(row) for row in pond.query("q").invoke(at).rows())
        assert +self.held == answer, what
        assert not -self.held, what


def push(pond: Pond, *seconds: int) -> None:
    """Push rows to both streams, and bring both to the last second."""
    pond.ingest("s", [{**row, "v": row["v"] + seconds[0]} for row in rows(*seconds)])
    pond.ingest("t", rows(*seconds))
    for name in ("s", "t"):
        pond.execute(f"HEARTBEAT {name} AT TIMESTAMP '{to_datetime((seconds[-1] + 1) * SECOND)}'")
    pond.catch_up()


@pytest.fixture
def pond(pond: Pond) -> Pond:
    pond.execute(SCHEMA)
    pond.execute("INSERT INTO r VALUES (2), (3), (7)")
    push(pond, 1, 2, 3)
    return pond


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 25))]
)
def test_the_changes_add_up_to_every_definition(pond: Pond, open_pond: OpenPond, seed: int) -> None:
    follower, late, at = Follower(), Follower(), 4
    texts = dict(random.Random(seed).sample(list(TEXTS.items()), len(TEXTS))) if seed else TEXTS
    for what, text in texts.items():
        pond.execute(f"CREATE OR REPLACE QUERY q WITH (changes = 'from beginning') AS {text}")
        follower.check(pond, f"{what}, before anything more")
        push(pond, at, at, at + 1)
        at += 3
        if what in ("window", "groups"):
            pond = open_pond()
        if what == "join":
            pond.execute("INSERT INTO r VALUES (5)")
        follower.check(pond, what)
        components_of(pond).maintenance.step()
    late.read(pond, limit=2)
    assert +late.held == +follower.held
    # Of the definitions but the first, those whose answer differed from the one before.
    assert late.redefined == follower.redefined
    others = iter(list(texts.values())[1:])
    assert all(text in others for text in late.redefined)
    assert len(late.redefined) >= len(texts) - 3


def test_the_columns_of_a_page_are_those_of_its_definition(pond: Pond) -> None:
    pond.execute("CREATE QUERY q WITH (changes = 'from beginning') AS SELECT v FROM s")
    query = pond.query("q")
    first = query.fetch()
    pond.execute("CREATE OR REPLACE QUERY q AS SELECT count(*) AS n, 'x' AS x FROM s")
    leaving = query.fetch(first.cursor)
    assert leaving.columns == ["v"]
    assert [c.sign for c in leaving] == ["-"] * 3
    assert leaving.redefined is None
    came = query.fetch(leaving.cursor)
    assert (came.columns, [c.row for c in came]) == (["n", "x"], [(3, "x")])
    assert came.redefined == query.definition.text
    after = query.fetch(came.cursor)
    assert (after.columns, len(after), after.redefined) == (["n", "x"], 0, None)


def test_a_reader_who_found_the_log_before_has_pages_of_one_definition(pond: Pond) -> None:
    query = pond.register("SELECT v FROM s", "q", changes="from beginning")
    first = query.fetch(limit=1)
    parts = components_of(pond)
    found = parts.log.version.change_log(query.id)
    assert found is not None
    pond.execute("CREATE OR REPLACE QUERY q AS SELECT count(*) AS n, 'x' AS x FROM s")
    page = parts.reader.read(found, "q", first.cursor)
    assert (page.columns, [c.sign for c in page]) == (["v"], [*"++---"])
    page = parts.reader.read(found, "q", page.cursor)
    assert (page.columns, [c.row for c in page]) == (["n", "x"], [(3, "x")])
    assert page.redefined is not None


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_definition_is_there_after_a_restart(
    pond: Pond, open_pond: OpenPond, text: str, follow: bool
) -> None:
    before = TEXTS["join" if text != TEXTS["join"] else "window"]
    pond.register(before, "q", follow=follow)
    pond.execute(f"CREATE OR REPLACE QUERY q AS {text}")
    answer = sorted(map(str, pond.query("q").invoke().rows()))
    pond = open_pond()
    assert pond.query("q").definition.suspended is None
    assert sorted(map(str, pond.query("q").invoke().rows())) == answer


def test_a_shared_log_is_left(pond: Pond) -> None:
    for name in ("other", "q"):
        pond.execute(f"CREATE QUERY {name} WITH (follow = true) AS SELECT v FROM s WHERE v > 100")
    pond.execute("CREATE OR REPLACE QUERY q WITH (follow = true) AS SELECT v FROM s WHERE v > 5")
    follower = Follower()
    push(pond, 4, 5, 6, 7, 8)
    follower.check(pond, "behind the mark")
    push(pond, 104, 105)
    follower.check(pond, "later")
    assert [c.row for c in pond.query("other").fetch()] == [(104,), (105,)]


def test_parameters_of_a_followed_query_change(pond: Pond) -> None:
    query = pond.register(
        "SELECT v FROM s WHERE v > $least", name="q", params={"least": 100}, follow=True
    )
    push(pond, 4, 5)
    assert len(query.fetch()) == 0
    query.alter(params={"least": 4})
    (change,) = query.fetch()
    assert (change.sign, change.row) == ("+", (5,))


@pytest.mark.parametrize(
    ("first", "then", "why"),
    [
        ("SELECT v FROM s", "ISTREAM(SELECT v FROM s)", "Of a relation rows come and go"),
        ("SELECT v FROM s", "SELECT v FROM slow", "complete up to"),
    ],
)
def test_what_cannot_go_on_is_refused_and_changes_nothing(
    pond: Pond, first: str, then: str, why: str
) -> None:
    pond.execute("CREATE STREAM slow (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts")
    pond.execute(f"CREATE QUERY q AS {first}")
    before = pond.query("q").fetch().cursor
    with pytest.raises(MillpondError, match="POND-401") as refused:
        pond.execute(f"CREATE OR REPLACE QUERY q AS {then}")
    assert why in (refused.value.detail or "")
    assert refused.value.span is not None
    assert pond.query("q").definition.text == first
    push(pond, 5, 6)
    assert [c.row for c in pond.query("q").fetch(before)] == [(5,), (6,)]


def test_elements_of_a_stream_go_on_as_others(pond: Pond) -> None:
    pond.execute("CREATE QUERY q AS ISTREAM(SELECT v FROM s WHERE v > 4)")
    pond.query("q").fetch()
    push(pond, 4, 5)
    pond.execute("CREATE OR REPLACE QUERY q AS ISTREAM(SELECT v, 1 AS one FROM s)")
    push(pond, 6)
    first = pond.query("q").fetch()
    then = pond.query("q").fetch(first.cursor)
    assert [c.row for page in (first, then) for c in page] == [(5,), (6, 1)]
    assert then.redefined is not None


def test_a_clock_that_goes_back_before_the_mark_begins_the_changes_anew(pond: Pond) -> None:
    pond.execute("CREATE QUERY q AS SELECT v FROM s")
    pond.query("q").fetch()
    push(pond, 9)
    pond.execute("CREATE OR REPLACE QUERY q AS SELECT v FROM s WHERE v > 1")
    cursor = pond.query("q").fetch().cursor
    pond.execute("ALTER STREAM s RESET CLOCK TO TIMESTAMP '1970-01-01 00:00:04'")
    with pytest.raises(MillpondError, match="POND-412"):
        pond.query("q").fetch(cursor)
    pond.ingest("s", [{**row, "v": 6} for row in rows(6)])
    pond.execute("HEARTBEAT s AT TIMESTAMP '1970-01-01 00:00:07'")
    pond.catch_up()
    # The clock is at the second 3 again, whose changes were taken back, too.
    assert [c.row for c in pond.query("q").fetch()] == [(3,), (6,)]


# -- feeds ---------------------------------------------------------------------------------------


def follow(pond: Pond, cursor: str | None, held: Counter[Any], **asked: Any) -> str | None:
    """Read a feed to its end, adding its changes up; return its cursor."""
    for event in pond.subscribe(["q", "p"], after=cursor, follow=False, **asked):
        cursor = event.cursor or cursor
        if event.kind == "answer" and event.query == "q":
            assert event.answer is not None
            held.update(map(tuple, event.answer.rows()))
        if event.kind == "change" and event.query == "q":
            held[event.change.row] += 1 if event.change.sign == "+" else -1
    return cursor


@pytest.mark.parametrize("text", ["SELECT v FROM s WHERE v > 2", "SELECT v, v FROM t"])
def test_feeds_go_on_behind_a_mark(pond: Pond, text: str) -> None:
    pond.execute("CREATE QUERY p AS SELECT v FROM t")
    pond.execute("CREATE QUERY q WITH (changes = 'from beginning') AS SELECT v FROM s")
    held: Counter[Any] = Counter()
    cursor = follow(pond, None, held)
    selection = QuerySelection(names=("q", "p"))
    open_feed = components_of(pond).feeds.open(selection, cursor)  # it stays open meanwhile
    open_feed.read()
    pond.execute(f"CREATE OR REPLACE QUERY q AS {text.replace('v, v', 'v, v AS w')}")
    begun: Counter[Any] = Counter()
    late = follow(pond, None, begun, snapshot=True)
    assert +begun == Counter(map(tuple, pond.query("q").invoke().rows()))
    for at in (5, 8):
        push(pond, at, at + 1)
        answer = Counter(map(tuple, pond.query("q").invoke().rows()))
        cursor, late = follow(pond, cursor, held), follow(pond, late, begun)
        assert +held == +begun == answer
        assert not -held
    events = []
    while found := open_feed.read():
        events += [e for e in found if e.query == "q"]
    redefined = [e for e in events if e.kind == "redefined"]
    assert [e.facts["cql"] for e in redefined] == [pond.query("q").definition.text]
    again: Counter[Any] = Counter()
    follow(pond, redefined[0].cursor, again)
    assert sum(again.values()) == sum(
        1 if e.change.sign == "+" else -1
        for e in events[events.index(redefined[0]) :]
        if e.kind == "change"
    )
