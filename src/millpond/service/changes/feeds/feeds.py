"""Opens feeds, and follows them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from millpond.catalog.objects import QueryDef
from millpond.service.changes.feeds.feed import Feed
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.changes.feeds.feed_parts import FeedParts
from millpond.service.queries.query_selection import QuerySelection


class Feeds:
    """Opens feeds; safe to use from any thread."""

    def __init__(self, parts: FeedParts) -> None:
        self._parts = parts

    def open(
        self,
        selection: QuerySelection,
        after: str | None = None,
        snapshot: bool = False,
        admits: Callable[[QueryDef], bool] | None = None,
    ) -> Feed:
        """Begin a feed of the selected queries.

        Args:
            selection: The queries.
            after: The cursor after which the feed begins; None for the first change of each query.
            snapshot: Whether to begin with the answers, and the changes after them.
            admits: Says of a selected query whether the feed may have it; None: of all.

        Raises:
            MillpondError: CQL-201 for a query that is named and not there, unless the feed goes on
                after a cursor; POND-412 for the cursor.
        """
        feed = Feed(self._parts, selection, after, admits)
        if snapshot:
            feed.begin_with_answers()
        return feed


def follow_feed(
    feed: Feed, listen: Callable[[Callable[[], None]], Callable[[], None]], follow: bool = True
) -> Iterator[FeedEvent]:
    """The events of a feed one by one; with `follow`, waiting for more for ever.

    Args:
        feed: The feed.
        listen: Registers a function that is called when there may be more changes.
        follow: Whether to wait.
    """
    news = threading.Event()
    end = listen(news.set)
    try:
        while True:
            news.clear()
            events = feed.read()
            yield from events
            if not events:
                if not follow:
                    return
                news.wait()
    finally:
        end()
