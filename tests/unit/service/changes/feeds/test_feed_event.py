"""Events of feeds: a change has its number and its row, wherever it came from."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.unit.service.conftest import rows

from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.pond import Pond
from millpond.service.queries.query_selection import QuerySelection
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


def test_events_of_other_kinds_have_no_change() -> None:
    with pytest.raises(ValueError, match='"mark" has no change'):
        _ = FeedEvent("mark", "3f2a9c.feed").change


def test_the_columns_of_a_new_definition_have_the_types_of_cql(pond: Pond) -> None:
    pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
    pond.register("SELECT v FROM s", "q", changes="from beginning", follow=True)
    pond.ingest("s", rows(1, 2))
    pond.catch_up()
    feed = pond.open_feed(QuerySelection("q"))
    feed.read()
    pond.execute("CREATE OR REPLACE QUERY q AS SELECT v, 1.5 :: DOUBLE AS x FROM s")
    pond.ingest("s", rows(3, 4, 5))
    pond.catch_up()
    [redefined] = [event for event in feed.read() if event.kind == "redefined"]
    assert redefined.facts["columns"] == [
        {"name": "v", "type": "INTEGER"},
        {"name": "x", "type": "DOUBLE"},
    ]
