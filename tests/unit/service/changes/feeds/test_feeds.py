"""Following a feed: its events one by one, and its listener gone at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.changes.feeds.feeds import follow_feed


class Feed:
    """Gives these pages one after the other."""

    def __init__(self, *pages: list[FeedEvent]) -> None:
        self.pages = list(pages)

    def read(self) -> list[FeedEvent]:
        return self.pages.pop(0) if self.pages else []


class News:
    """Somebody who says when there may be more, and whom the follower listens to or not."""

    def __init__(self) -> None:
        self.heard: list[Callable[[], None]] = []
        self.listening = threading.Event()

    def listen(self, call: Callable[[], None]) -> Callable[[], None]:
        self.heard.append(call)
        self.listening.set()
        return self.heard.clear


def note(text: str) -> FeedEvent:
    return FeedEvent("note", None, facts={"note": text})


def test_without_following_a_feed_ends_where_nothing_is_new() -> None:
    feed: Any = Feed([note("a"), note("b")], [note("c")])
    news = News()
    assert [e.facts["note"] for e in follow_feed(feed, news.listen, follow=False)] == [*"abc"]
    assert news.heard == []


def test_a_follower_waits_until_it_hears_of_more() -> None:
    pages = Feed([note("a")])
    feed: Any = pages
    news = News()
    events = follow_feed(feed, news.listen)
    assert next(events).facts["note"] == "a"

    def bring() -> None:
        pages.pages.append([note("b")])
        news.heard[0]()

    later = threading.Timer(0.05, bring)
    later.start()
    assert next(events).facts["note"] == "b"
    later.join()
    events.close()
    assert news.heard == []
