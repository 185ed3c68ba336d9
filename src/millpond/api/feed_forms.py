"""Feeds on the wire: events as JSON lines, as server-sent events, and as one Arrow table.

An event is one object. It has `event`, `cursor` and, unless it is about the feed itself, `query`
and `id`. A change also has what a change of one query has (`change_forms.py`), and its `number`
among the changes of its query, which the cursor of a feed does not tell. The id of a
server-sent event is its cursor, so a browser that lost its connection goes on by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond.api import encode
from millpond.api.change_forms import EVENTS, change_objects
from millpond.service import json_values
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.results import Changes

_ARROW = pa.schema(
    [
        ("event", pa.string()),
        ("cursor", pa.string()),
        ("query", pa.string()),
        ("id", pa.int64()),
        ("timestamp", pa.int64()),
        ("change", pa.string()),
        ("number", pa.int64()),
        ("data", pa.string()),
    ]
)


def to_objects(events: Sequence[FeedEvent]) -> list[dict[str, Any]]:
    """The events as JSON values."""
    pages = _write_pages(events)
    found = []
    for event in events:
        body: dict[str, Any] = {"event": event.kind}
        if event.query is not None:
            body |= {"query": event.query, "id": event.id}
        if event.changes is not None:
            page, first = pages[id(event.changes)]
            body |= {**page[first + event.index], "cursor": event.cursor, "number": event.number}
        elif event.answer is not None:
            body |= {"cursor": event.cursor, **encode.answer_body(event.answer)}
            body["query"] = event.query
        else:
            body |= {"cursor": event.cursor, **json_values.to_json_value(event.facts)}
        found.append(body)
    return found


def _write_pages(events: Sequence[FeedEvent]) -> dict[int, tuple[list[dict[str, Any]], int]]:
    """The changes of the events' pages as JSON values, by the ids of the pages.

    Thousands of queries of one shape give pages of a change or two. To convert a column takes as
    long for one row as for a hundred, so exact pages with equal columns are converted together.

    Returns:
        For each page the values that its given changes are among, and where its first would be.
    """
    pages: dict[int, Changes] = {}
    given: dict[int, tuple[int, int]] = {}
    for event in events:
        if event.changes is not None:
            key, index = id(event.changes), event.index
            pages[key] = event.changes
            begin, end = given.get(key, (index, index))
            given[key] = min(begin, index), max(end, index)
    found: dict[int, tuple[list[dict[str, Any]], int]] = {}
    alike: dict[object, list[tuple[int, pa.Table]]] = {}
    for key, page in pages.items():
        begin, end = given[key]
        # A page of many queries gives a part of what was read of each.
        part = page.table.slice(begin, end + 1 - begin)
        if page.exact:
            alike.setdefault(part.schema, []).append((key, part))
        else:
            found[key] = list(change_objects(replace(page, table=part))), -begin
    for group in alike.values():
        rows = pa.concat_tables([part for _, part in group]).combine_chunks()
        objects, first = list(change_objects(replace(pages[group[0][0]], table=rows))), 0
        for key, part in group:
            found[key] = objects, first - given[key][0]
            first += len(part)
    return found


def encode_events(events: Sequence[FeedEvent], form: str) -> bytes:
    """Encode events as lines or as server-sent events."""
    objects = to_objects(events)
    if form == encode.NDJSON:
        return b"".join(json_values.dumps(body) + b"\n" for body in objects)
    return b"".join(_write_event(body) for body in objects)


def _write_event(body: dict[str, Any]) -> bytes:
    cursor = body["cursor"]
    name = b"" if cursor is None else b"id: %s\n" % cursor.encode()
    return name + b"event: %s\ndata: %s\n\n" % (body["event"].encode(), json_values.dumps(body))


def encode_page(events: Sequence[FeedEvent], cursor: str, form: str) -> bytes:
    """Encode a page of events in JSON, NDJSON or Arrow, or as server-sent events."""
    if form == encode.JSON:
        return json_values.dumps({"events": to_objects(events), "cursor": cursor})
    if form in (encode.NDJSON, EVENTS):
        return encode_events(events, form)
    rows = [
        {
            "event": body["event"],
            "cursor": body["cursor"],
            "query": body.get("query"),
            "id": body.get("id"),
            "timestamp": event.changes.table["timestamp"][event.index].as_py()
            if event.changes is not None
            else None,
            "change": body.get("change"),
            "number": body["number"] if event.changes is not None else None,
            "data": json_values.dumps(body["row"] if event.changes is not None else body).decode(),
        }
        for event, body in zip(events, to_objects(events), strict=True)
    ]
    return encode.table_arrow(pa.Table.from_pylist(rows, schema=_ARROW))
