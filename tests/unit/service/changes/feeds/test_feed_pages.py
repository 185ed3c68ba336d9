"""Pages of a feed's members: read where they begin, and put in one order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.service.conftest import components_of, rows

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.schema import Schema
from millpond.service.changes import shared_pages
from millpond.service.changes.cursor import OLDEST
from millpond.service.changes.feeds import feed_pages
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.changes.feeds.feed_member import Member
from millpond.service.changes.feeds.feed_pages import read_page, sort_changes
from millpond.service.pond import Pond
from millpond.service.queries.query_selection import QuerySelection
from millpond.service.results import Changes


def member(log: int) -> Member:
    made = Member(QueryDef(log + 100, f"q{log}", "SELECT 1"), "active")
    made.log = StreamDef(log, f"changes of q{log}", Schema(()))
    return made


def page(*stamps: int, last: int | None = None) -> Changes:
    """A page of changes at these instants; `last` is the number of the last of them."""
    number = len(stamps) if last is None else last
    return Changes(pa.table({"timestamp": stamps}), "q", f"3f2a9c.1.{number}", number, 0)


class Reader:
    """Keeps the changes from number 8 on, as a reader of change logs does."""

    def read(self, log: StreamDef, name: str, after: Any, most: int, size: int) -> Changes:
        if after != OLDEST and after < 7:
            raise MillpondError("POND-412", "the changes are not kept any more")
        return page(50, 51, 52, last=10)


def test_changes_are_ordered_by_instant_then_member_then_number() -> None:
    pages = [(member(1), page(3, 5, 5)), (member(2), page(3, 4))]
    found = sort_changes(pages, [3, 2])
    assert found.stamp.tolist() == [3, 3, 4, 5, 5]
    assert found.page.tolist() == [0, 1, 1, 0, 0]
    assert found.row.tolist() == [0, 0, 1, 1, 2]
    assert found.is_all


def test_what_lies_behind_the_horizon_waits() -> None:
    pages = [(member(1), page(3, 5)), (member(2), page(3, 5)), (member(3), page(5, 6))]
    found = sort_changes(pages, [2, 2, 2], horizon=(5, 1))
    assert list(zip(found.stamp.tolist(), found.page.tolist(), strict=True)) == [
        (3, 0),
        (3, 1),
        (5, 0),
        (5, 1),
    ]
    assert not found.is_all


def test_only_as_many_as_are_complete_are_given() -> None:
    found = sort_changes([(member(1), page(3, 5, 7))], [1])
    assert found.stamp.tolist() == [3]
    assert len(sort_changes([], []).row) == 0


@pytest.mark.parametrize(("number", "noted"), [(8, []), (2, [7])])
def test_changes_that_are_not_kept_are_noted_and_the_oldest_are_read(
    number: int, noted: list[int]
) -> None:
    behind = member(1)
    behind.number = number
    trimmed: list[tuple[Member, int]] = []
    found = read_page(Reader(), behind, 3, trimmed)  # type: ignore[arg-type]
    assert found.position == 10
    assert trimmed == [(behind, oldest) for oldest in noted]


def test_one_query_with_most_of_the_changes_does_not_make_pages_small(pond: Pond) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
    for n in range(10):
        text = "SELECT v FROM s" if n == 3 else f"SELECT v FROM s WHERE v % 100 = {n}"
        pond.register(text, f"q{n}", changes="from beginning", follow=True)
    pond.ingest("s", rows(*range(1000)))
    pond.catch_up()
    every = pond.open_feed(QuerySelection("q")).read(100_000)
    feed, pages = pond.open_feed(QuerySelection("q")), []
    while not pages or any(event.kind == "change" for event in pages[-1]):
        pages.append(feed.read(400))
    told = [[e for e in events if e.kind == "change"] for events in pages]
    sizes = [len(events) for events in told]
    assert min(sizes[:-2]) >= 200  # half of what was asked for; it was some forty
    assert max(sizes) <= 400
    together = [event for events in told for event in events]
    expected = [event for event in every if event.kind == "change"]
    assert list(map(_shown, together)) == list(map(_shown, expected))
    assert len({_shown(event) for event in together}) == len(together) > 1000


def test_a_page_is_as_large_as_it_has_to_be_read(pond: Pond) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
    texts = [(f"SELECT v FROM s WHERE v >= {n % 5}", f"q{n}") for n in range(300)]
    for text, name in texts:
        pond.register(text, name, changes="from beginning", follow=True)
    pond.ingest("s", rows(*range(20)))
    pond.catch_up()
    feed, sizes = pond.open_feed(QuerySelection("q")), []
    while changes := [event for event in feed.read() if event.kind == "change"]:
        sizes.append(len(changes))
    # Sixteen changes of each query are read; a thousand of them were given, again and again.
    assert len(sizes) <= 4
    assert sum(sizes) == sum(19 - n % 5 for n in range(300))


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_page_of_a_feed_is_bounded_in_bytes(
    pond: Pond, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    """Also where a query has few changes and another many, which are read on with."""
    monkeypatch.setattr(feed_pages, "PAGE_BYTES", 30_000)
    monkeypatch.setattr(shared_pages, "PAGE_BYTES", 30_000)
    pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
    selected = "k, v" if is_shared else "k, v + 0 AS v"
    wheres = ["v < 100", "v >= 300", "v = 2"]
    for n, where in enumerate(wheres):
        text = f"SELECT {selected} FROM s WHERE {where}"
        pond.register(text, f"q{n}", changes="from beginning", follow=True)
    pond.ingest("s", rows(*range(400), k="x" * 1000))
    pond.catch_up()
    streams = components_of(pond).log.version.streams.values()
    assert sum(s.derived is not None and s.shared_log is not None for s in streams) == (
        3 if is_shared else 0
    )
    feed, pages = pond.open_feed(QuerySelection("q")), []
    while not pages or any(event.kind == "change" for event in pages[-1]):
        pages.append(feed.read(100_000))
    told = [_shown(event) for events in pages for event in events if event.kind == "change"]
    assert len(set(told)) == len(told)
    # The newest element is not final.
    assert Counter(query for query, *_ in told) == {"q0": 100, "q1": 99, "q2": 1}
    held = [
        sum(c.table.nbytes for c in {id(e.changes): e.changes for e in p if e.changes}.values())
        for p in pages
    ]
    assert max(held) < 3 * 30_000


def _shown(event: FeedEvent) -> tuple[object, ...]:
    assert event.changes is not None
    return event.query, *event.changes.table.slice(event.index, 1).to_pylist()[0].values()
