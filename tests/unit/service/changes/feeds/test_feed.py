"""Feeds: the changes of many queries through one cursor, wherever the reader was cut."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.service.changes import derivations
from millpond.service.changes.change_log import ChangeReader
from millpond.service.changes.feeds.feed import Feed
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.json_values import instant_text
from millpond.service.pond import Pond
from millpond.service.queries.query_selection import QuerySelection
from millpond.state import epoch_log
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

SECOND = 1_000_000
SCHEMA = """
CREATE STREAM s (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts;
CREATE STREAM r (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts;
"""
TAGGED = QuerySelection(tag="fed")


def open_pond(store: Path) -> Pond:
    return open_local(store, clock=ManualClock(10_000 * SECOND))


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_pond(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        yield pond


def register(pond: Pond, name: str, stream: str = "s", least: int = 0, **options: Any) -> None:
    text = f"SELECT v FROM {stream} [RANGE 3 SECONDS] WHERE v >= {least}"
    pond.register(text, name, tags="fed", **options)


def push(pond: Pond, stream: str, *elements: tuple[int, int]) -> None:
    rows = [{"ts": f"1970-01-01 00:{t // 60:02}:{t % 60:02}", "v": v} for t, v in elements]
    pond.ingest(stream, rows)
    pond.catch_up()


def advance(pond: Pond) -> None:
    """Have everything computed that is final."""
    for query in pond.queries(state="active"):
        pond.query(query.id).fetch("oldest")


def read_all(feed: Feed, limit: int = 1_000) -> list[FeedEvent]:
    found: list[FeedEvent] = []
    while events := feed.read(limit):
        found += events
    return found


def changes_by_query(events: list[FeedEvent]) -> dict[str, list[tuple[int, int, str, Any]]]:
    found: defaultdict[str, list[tuple[int, int, str, Any]]] = defaultdict(list)
    for event in events:
        if event.kind == "change":
            change = event.change
            assert event.query is not None
            found[event.query].append((change.number, change.at, change.sign, change.row))
    return found


def fetch_all(pond: Pond) -> dict[str, list[tuple[int, int, str, Any]]]:
    found = {}
    for query in pond.queries(tag="fed"):
        changes = [(c.number, c.at, c.sign, c.row) for c in pond.query(query.id).fetch()]
        if changes:
            found[query.name] = changes
    return found


def test_a_feed_gives_what_each_query_s_fetch_gives(pond: Pond) -> None:
    for number in range(5):
        register(pond, f"q{number}", "s", number)
    register(pond, "other", "r")
    feed = pond.open_feed(TAGGED)
    push(pond, "s", (1, 1), (2, 3), (9, 2))
    push(pond, "r", (4, 7), (5, 7))
    advance(pond)
    events = read_all(feed)
    assert changes_by_query(events) == fetch_all(pond)
    changes = [event.change.at for event in events if event.kind == "change"]
    assert changes == sorted(changes)
    mark = events[-1]
    assert mark.kind == "mark"
    progress = {p["streams"][0]: p for p in mark.facts["progress"]}
    assert (progress["s"]["queries"], progress["s"]["awaits"]) == (5, ["s"])
    assert progress["s"]["up_to"] == instant_text(9 * SECOND - 1)
    assert progress["r"]["up_to"] == instant_text(5 * SECOND - 1)


def test_many_queries_are_followed_in_one_epoch(pond: Pond) -> None:
    for number in range(20):
        register(pond, f"q{number}")
    before = pond.status()["epoch"]
    pond.open_feed(TAGGED)
    kinds = pond.status()["epoch"] - before
    assert kinds == 1


def test_the_cursor_of_many_queries_is_short(pond: Pond) -> None:
    for number in range(60):
        register(pond, f"q{number}", "s", number % 7)
    feed = pond.open_feed(TAGGED)
    push(pond, "s", (1, 1), (2, 3), (9, 2))
    advance(pond)
    events = read_all(feed)
    assert len(events) > 60
    assert max(len(event.cursor or "") for event in events) < 120


@pytest.mark.parametrize("seed", range(4))
def test_a_feed_that_is_cut_anywhere_goes_on_where_it_was(tmp_path: Path, seed: int) -> None:
    """INV-FEED-1, across restarts, with queries that come in between."""
    chance = random.Random(seed)
    seen: list[FeedEvent] = []
    cursor: str | None = None
    moments = {"s": 0, "r": 0}
    with open_pond(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
    for life in range(4):
        with open_pond(tmp_path / "store") as pond:
            for number in range(chance.randint(1, 3)):
                name = f"q{life}_{number}"
                register(pond, name, chance.choice("sr"), chance.randint(0, 4), follow=True)
            feed = pond.open_feed(TAGGED, cursor)
            for _ in range(6):
                stream = chance.choice("sr")
                elements = []
                for _ in range(chance.randint(1, 4)):
                    moments[stream] += chance.randint(0, 2)
                    elements.append((moments[stream], chance.randint(0, 5)))
                push(pond, stream, *elements)
                if chance.random() < 0.7:
                    advance(pond)
                events = feed.read(chance.randint(1, 5))
                if chance.random() < 0.5:
                    events = events[: chance.randint(0, len(events))]
                    named = [event.cursor for event in events if event.cursor]
                    cursor = named[-1] if named else cursor
                    feed = pond.open_feed(TAGGED, cursor)
                else:
                    cursor = feed.cursor
                seen += events
    with open_pond(tmp_path / "store") as pond:
        advance(pond)
        seen += read_all(pond.open_feed(TAGGED, cursor), chance.randint(1, 9))
        assert changes_by_query(seen) == fetch_all(pond)


def test_a_query_that_was_followed_before_begins_where_the_feed_is(tmp_path: Path) -> None:
    with open_pond(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        register(pond, "first")
        pond.register("SELECT v FROM s [RANGE 3 SECONDS]", "between", tags="no", follow=True)
        register(pond, "last")
        feed = pond.open_feed(TAGGED)
        push(pond, "s", (1, 1), (2, 3), (9, 2))
        advance(pond)
        read_all(feed)
        cursor = feed.cursor
        pond.query("between").alter(tags="fed")
        came = read_all(feed)
        assert [(event.kind, event.query) for event in came][:1] == [("came", "between")]
        assert changes_by_query(came) == {}
        push(pond, "s", (10, 4), (20, 5))
        advance(pond)
        running = changes_by_query(read_all(feed))
    with open_pond(tmp_path / "store") as pond:
        resumed = changes_by_query(read_all(pond.open_feed(TAGGED, cursor)))
        every = [(c.number, c.at, c.sign, c.row) for c in pond.query("between").fetch()]
    assert running == resumed
    assert running["between"] == [change for change in every if change[1] >= 9 * SECOND]


def test_a_feed_is_opened_at_a_cursor_without_reading_each_log(
    pond: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        register(pond, f"q{number}", "s", number % 3)
    first = pond.open_feed(TAGGED)
    push(pond, "s", (1, 1), (2, 3), (9, 2))
    advance(pond)
    seen = first.read(40)
    push(pond, "s", (20, 7), (30, 1))
    advance(pond)
    read: list[str] = []
    read_log = ChangeReader.read

    def count(self: ChangeReader, log: StreamDef, name: str, *given: Any, **named: Any) -> Any:
        read.append(name)
        return read_log(self, log, name, *given, **named)

    monkeypatch.setattr(ChangeReader, "read", count)
    feed = pond.open_feed(TAGGED, seen[-1].cursor)
    assert len(read) <= 1  # that of the query in whose changes the reader was cut
    rest = read_all(feed)
    assert changes_by_query([*seen, *rest]) == fetch_all(pond)


def test_what_happens_to_queries_is_told_and_the_feed_goes_on(pond: Pond) -> None:
    register(pond, "a")
    register(pond, "b")
    feed = pond.open_feed(TAGGED)
    read_all(feed)
    register(pond, "late")
    pond.query("a").alter(comment="more of it")
    pond.query("b").alter(active=False)
    events = {(e.kind, e.query): e.facts for e in read_all(feed) if e.query}
    assert events.keys() == {
        ("came", "late"),
        ("altered", "a"),
        ("altered", "b"),
        ("deactivated", "b"),
    }
    assert events["deactivated", "b"] == {
        "state": "inactive",
        "reason": "somebody set active = false",
    }
    assert events["altered", "a"]["options"]["comment"] == "more of it"
    pond.query("b").alter(active=True)
    pond.query("a").alter(tags="other")
    pond.query("late").unregister()
    push(pond, "s", (1, 1), (5, 1))
    advance(pond)
    found = read_all(feed)
    kinds = {(e.kind, e.query): e.facts for e in found if e.query and e.kind != "change"}
    assert kinds["resumed", "b"]["state"] == "active"
    assert kinds["ended", "a"] == {"dropped": False}
    assert kinds["ended", "late"] == {"dropped": True}
    assert changes_by_query(found).keys() == {"b"}


def test_a_feed_by_names_goes_on_when_one_was_dropped(pond: Pond) -> None:
    register(pond, "a")
    register(pond, "b")
    named = QuerySelection(names=("a", "b"))
    feed = pond.open_feed(named)
    push(pond, "s", (1, 1), (5, 1))
    advance(pond)
    read_all(feed)
    pond.query("b").unregister()
    push(pond, "s", (9, 7))
    advance(pond)
    with pytest.raises(MillpondError, match="CQL-201"):
        pond.open_feed(named)
    again = read_all(pond.open_feed(named, feed.cursor))
    assert [(e.query, e.facts) for e in again if e.kind == "ended"] == [("b", {"dropped": True})]
    assert changes_by_query(again).keys() == {"a"}
    assert changes_by_query(again) == changes_by_query(read_all(feed))


def tell_of_queries(events: list[FeedEvent]) -> list[tuple[str, str | None, dict[str, Any]]]:
    """What a feed tells of queries, besides their changes; the order is that of the queries."""
    told = [e for e in events if e.query and e.kind != "change"]
    return sorted(((e.kind, e.query, e.facts) for e in told), key=lambda t: (str(t[1]), t[0]))


def read_page(pond: Pond, selection: QuerySelection, after: str) -> tuple[list[FeedEvent], str]:
    feed = pond.open_feed(selection, after)
    return feed.read(), feed.cursor


EACH_WAY = [
    TAGGED,
    QuerySelection(owner="ann"),
    QuerySelection(names=("a", "B", "c", "d")),
    QuerySelection(tag="fed", containing="v >="),
]


@pytest.mark.parametrize("selection", EACH_WAY)
def test_who_reads_pages_is_told_what_who_follows_is(pond: Pond, selection: QuerySelection) -> None:
    for name in ("a", "b", "c", "d"):
        register(pond, name, owner="ann")
    other_definition = (
        "CREATE OR REPLACE QUERY a WITH (owner = 'ann', tags = 'fed')"
        " AS SELECT v + 1 AS w FROM s [RANGE 3 SECONDS] WHERE v >= 0"
    )
    followed = pond.open_feed(selection)
    followed.read()
    cursor = followed.cursor
    steps: list[Callable[[], object]] = [
        lambda: pond.query("b").unregister(),
        lambda: pond.query("a").alter(comment="more"),
        lambda: pond.query("c").alter(active=False),
        lambda: pond.query("c").alter(active=True),
        lambda: register(pond, "late", owner="ann"),
        lambda: pond.query("d").alter(owner="bob", tags="other"),
        lambda: pond.execute(other_definition),
        lambda: None,
    ]
    everything = set()
    for at, step in enumerate(steps):
        step()
        push(pond, "s", (5 * at, at))
        advance(pond)
        live = tell_of_queries(followed.read())
        page, cursor = read_page(pond, selection, cursor)
        paged = tell_of_queries(page)
        if at and selection.names is not None:  # each page tells which names no query has
            assert ("ended", "B", {"dropped": True}) in paged
            paged = [told for told in paged if told[1] != "B"]
        assert paged == live
        everything |= {kind for kind, _, _ in live}
    common = {"ended", "altered", "deactivated", "resumed", "redefined"}
    assert everything == common | ({"came"} if selection.names is None else set())


def test_a_page_tells_all_that_happened_since_its_cursor(pond: Pond) -> None:
    for name in ("a", "b"):
        register(pond, name)
    feed = pond.open_feed(TAGGED)
    feed.read()
    cursor = feed.cursor
    pond.query("a").alter(comment="one")
    pond.query("a").alter(tags="other")
    pond.query("a").unregister()
    register(pond, "new")
    pond.query("new").alter(comment="two")
    register(pond, "short")
    pond.query("short").unregister()
    pond.query("b").unregister()
    register(pond, "b")
    page, cursor = read_page(pond, TAGGED, cursor)
    assert [(kind, name) for kind, name, _ in tell_of_queries(page)] == [
        ("ended", "a"),
        ("came", "b"),
        ("ended", "b"),
        ("came", "new"),
    ]
    assert page[-1].kind == "mark"
    assert tell_of_queries(read_page(pond, TAGGED, cursor)[0]) == []


def test_what_happened_is_told_after_a_restart_and_as_long_as_it_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_pond(tmp_path / "store") as pond:
        pond.execute(SCHEMA)
        for name in ("a", "b"):
            register(pond, name)
        feed = pond.open_feed(TAGGED)
        feed.read()
        pond.query("a").unregister()
    with open_pond(tmp_path / "store") as pond:
        page, _ = read_page(pond, TAGGED, feed.cursor)
        assert [(kind, name) for kind, name, _ in tell_of_queries(page)] == [("ended", "a")]
        assert not any("than is known" in str(e.facts) for e in page)
        monkeypatch.setattr(epoch_log, "_REMEMBERED_QUERIES", 2)
        for at in range(3):
            pond.query("b").alter(comment=str(at))
        page, _ = read_page(pond, TAGGED, feed.cursor)
        assert [(kind, name) for kind, name, _ in tell_of_queries(page)] == [("altered", "b")]
        assert any("than is known" in str(e.facts) for e in page)


def test_trimmed_changes_are_told(pond: Pond) -> None:
    register(pond, "a", keep_changes=2)
    pond.query("a").fetch()
    for at in range(1, 30):
        push(pond, "s", (at, at))
    advance(pond)
    pond.wait_until_matched()
    oldest = pond.query("a").fetch("oldest")
    gone = oldest.position - len(oldest)
    assert gone > 0
    events = read_all(pond.open_feed(TAGGED))
    (trimmed,) = [event for event in events if event.kind == "trimmed"]
    assert trimmed.facts == {"from": 1, "to": gone}
    assert changes_by_query(events)["a"][0][0] == gone + 1


def test_a_snapshot_begins_with_the_answers(pond: Pond) -> None:
    register(pond, "a")
    pond.query("a").fetch()
    push(pond, "s", (1, 1), (2, 2), (3, 9))
    advance(pond)
    feed = pond.open_feed(TAGGED, snapshot=True)
    push(pond, "s", (9, 4))
    advance(pond)
    events = [event for event in read_all(feed) if event.kind != "note"]
    assert events[0].kind == "answer"
    assert events[0].answer is not None
    rows = [row[0] for row in events[0].answer.rows()]
    for at, sign, row in [(c[1], c[2], c[3]) for c in changes_by_query(events)["a"]]:
        assert at > 2 * SECOND
        rows.append(row[0]) if sign == "+" else rows.remove(row[0])
    assert rows == []


def test_a_stream_that_may_fall_silent_is_noted(pond: Pond) -> None:
    register(pond, "a")
    (note,) = [event for event in pond.open_feed(TAGGED).read() if event.kind == "note"]
    assert "s is pushed and has no IDLE AFTER" in note.facts["note"]


def test_what_cannot_be_opened(pond: Pond) -> None:
    register(pond, "a")
    with pytest.raises(MillpondError, match='CQL-201: no query "none"'):
        pond.open_feed(QuerySelection(names=("a", "none")))
    with pytest.raises(MillpondError, match="POND-412"):
        pond.open_feed(TAGGED, "7")


def test_subscribing_without_following_ends(pond: Pond) -> None:
    register(pond, "a")
    push(pond, "s", (1, 1), (5, 1))
    pond.query("a").fetch()
    events = list(pond.subscribe(["a"], follow=False))
    assert changes_by_query(events) == fetch_all(pond)


def test_queries_of_one_shape_are_planned_once(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []
    plan = derivations.plan_shared_log

    def count(bound: Any, *given: Any, **named: Any) -> Any:
        planned.append(bound.text)
        return plan(bound, *given, **named)

    monkeypatch.setattr(derivations, "plan_shared_log", count)
    for number in range(6):
        register(pond, f"q{number}", "s", number)
    feed = pond.open_feed(TAGGED)
    push(pond, "s", (1, 9), (5, 9))
    advance(pond)
    assert len(changes_by_query(read_all(feed))) == 6
    assert len(planned) == 1


def test_the_last_change_before_silence_is_computed_when_the_stream_is_idle(pond: Pond) -> None:
    pond.execute(
        "CREATE STREAM i (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts IDLE AFTER INTERVAL 2 SECONDS"
    )
    pond.register("ISTREAM(SELECT v FROM i [NOW])", "alerts", follow=True)
    push(pond, "i", (1, 1))
    advancer = pond._components.advancer
    assert advancer.wait(lambda: True, 1)
    advancer.step()
    seconds = advancer._wait_seconds()
    assert seconds is not None
    assert seconds <= 2
