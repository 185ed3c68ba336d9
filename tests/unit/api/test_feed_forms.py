"""Events of a feed on the wire: lines, server-sent events, Arrow."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from millpond.api import encode, feed_forms
from millpond.api.change_forms import EVENTS
from millpond.api.feed_forms import encode_events, encode_page, to_objects
from millpond.model.loss import Cause, Loss
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.results import Answer, Changes

TABLE = pa.table(
    {"cursor": [6, 7], "timestamp": [1_000_000, 2_000_000], "change": ["+", "-"], "v": [3, 4]}
)
PAGE = Changes(TABLE, "q", "3f2a9c.5.7", 7, 2_000_000)
FEED = [
    FeedEvent("change", "c1", "q", 9, changes=PAGE, index=0),
    FeedEvent("change", "c2", "q", 9, changes=PAGE, index=1),
    FeedEvent("note", None, facts={"note": "nothing comes"}),
    FeedEvent(
        "mark",
        "c3",
        facts={"progress": [{"streams": ["s"], "queries": 1, "up_to": "1970-01-01T00:00:02"}]},
    ),
]


def test_an_event_is_an_object() -> None:
    first, second, note, mark = to_objects(FEED)
    assert (first["event"], first["query"], first["id"], first["cursor"]) == (
        "change",
        "q",
        9,
        "c1",
    )
    assert (first["change"], second["change"]) == ("+", "-")
    assert second["row"] != first["row"]
    assert note == {"event": "note", "cursor": None, "note": "nothing comes"}
    assert mark["progress"][0]["up_to"].startswith("1970-01-01")


def test_only_the_changes_that_are_given_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 500
    columns = {"cursor": range(count), "timestamp": range(count), "change": ["+"] * count}
    read = pa.table({**columns, "v": range(count)})
    pages = [Changes(read, name, f"3f2a9c.{name}.{count}", count, count) for name in "ab"]
    loss = (Loss("s", Cause.SHED, 0, count, 1),)
    pages.append(Changes(read, "c", f"3f2a9c.c.{count}", count, count, loss))
    written: list[int] = []
    real = feed_forms.change_objects
    monkeypatch.setattr(
        feed_forms, "change_objects", lambda page: (written.append(len(page)), real(page))[1]
    )
    given = [(0, 3), (0, 4), (1, 0), (2, 7), (2, 8)]
    events = [FeedEvent("change", "x", "q", 1, changes=pages[n], index=i) for n, i in given]
    assert [body["row"]["v"] for body in to_objects(events)] == [i for _, i in given]
    assert sum(written) == len(given)


def test_lines_and_server_sent_events_have_the_same_objects() -> None:
    lines = encode_events(FEED, encode.NDJSON).splitlines()
    assert [json.loads(line)["event"] for line in lines] == [event.kind for event in FEED]
    parts = encode_events(FEED, EVENTS).decode().strip().split("\n\n")
    assert [part.startswith("id: ") for part in parts] == [True, True, False, True]
    data = [part.split("data: ", 1)[1] for part in parts]
    assert [json.loads(text) for text in data] == [json.loads(line) for line in lines]


@pytest.mark.parametrize("form", [encode.JSON, encode.NDJSON, EVENTS])
def test_a_wide_row_of_a_snapshot_or_a_change_is_what_a_narrow_one_is(form: str) -> None:
    def page(values: int) -> bytes:
        row = pa.array([["a"] * values], pa.list_(pa.string()))
        answer = Answer(pa.table({"l": row, "n": [1]}), 0, final=True, query="q")
        columns = {"cursor": [7], "timestamp": [0], "change": ["+"], "l": row}
        changes = Changes(pa.table(columns), "q", "i.1.7", 7, 0)
        events = [
            FeedEvent("answer", None, "q", 9, answer=answer),
            FeedEvent("change", "c1", "q", 9, changes=changes),
        ]
        return encode_page(events, "c1", form)

    wide = page(200_000)
    assert wide.count(b'"a"') == 400_000
    assert wide == page(3).replace(b'"a","a","a"', b",".join([b'"a"'] * 200_000))


@pytest.mark.parametrize("form", [encode.NDJSON, EVENTS])
def test_a_page_of_events_is_its_events(form: str) -> None:
    assert encode_page(FEED, "c3", form) == encode_events(FEED, form)


def test_a_page_in_arrow_has_a_row_an_event() -> None:
    with pa.ipc.open_stream(encode_page(FEED, "c3", encode.ARROW)) as reader:
        rows = reader.read_all().to_pylist()
    assert [row["timestamp"] for row in rows] == [1_000_000, 2_000_000, None, None]
    assert [row["change"] for row in rows] == ["+", "-", None, None]
    assert json.loads(encode_page(FEED, "c3", encode.JSON))["cursor"] == "c3"


def test_pages_of_many_queries_are_each_theirs() -> None:
    """Pages with equal columns are converted together, others apart; each change stays its own."""
    loss = (Loss("s", Cause.SHED, 0, 10**6, 3),)
    other = TABLE.rename_columns(["cursor", "timestamp", "change", "w"])
    tables = [TABLE.slice(0, 1), other, TABLE.slice(1), TABLE, TABLE.slice(0, 1)]
    pages = [
        Changes(table, f"q{n}", f"3f2a9c.{n}.7", 7, 2_000_000, loss if n == 3 else ())
        for n, table in enumerate(tables)
    ]
    events = [
        FeedEvent("change", f"c{n}.{row}", f"q{n}", n, changes=page, index=row)
        for n, page in reversed(list(enumerate(pages)))
        for row in range(len(page))
    ]
    together = to_objects(events)
    assert together == [body for event in events for body in to_objects([event])]
    assert {(body["query"], body["exact"]) for body in together if not body["exact"]} == {
        ("q3", False)
    }
    assert [body["row"] for body in together if body["query"] == "q1"] == [{"w": 3}, {"w": 4}]
