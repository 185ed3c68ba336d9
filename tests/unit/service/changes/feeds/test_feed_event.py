"""Events of feeds: a change has its number and its row, wherever it came from."""

from __future__ import annotations

import pyarrow as pa

from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.results import Changes


def test_a_change_is_the_row_of_its_page() -> None:
    table = pa.table(
        {
            "cursor": pa.array([8, 9], pa.int64()),
            "timestamp": pa.array([1, 2], pa.int64()),
            "change": ["+", "-"],
            "v": pa.array([5, 6], pa.int64()),
        }
    )
    page = Changes(table, "q", "3f2a9c.17.9", 12, 0)
    event = FeedEvent("change", "3f2a9c.feed", "q", 11, changes=page, index=1)
    assert event.number == 9
    assert (event.change.at, event.change.sign, event.change.row) == (2, "-", (6,))
    given = FeedEvent("change", "3f2a9c.feed", "q", 11, given=event.change)
    assert given.change == event.change
