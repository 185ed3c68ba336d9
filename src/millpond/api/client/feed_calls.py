"""A feed of a server: reads its lines as they come, and goes on when the connection breaks."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from millpond.api import decode, encode
from millpond.api.client.handle_calls import PATIENCE, is_away
from millpond.api.client.pond_calls import selection_params
from millpond.api.client.steps import (
    ATTEMPTS,
    Give,
    HttpRequest,
    Items,
    Lines,
    NextLine,
    Pause,
)
from millpond.errors import MillpondError
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.queries.query_selection import QuerySelection
from millpond.service.results import Change

_PAUSE_SECONDS = 0.25
#: Seconds without a line after which the connection counts as broken: the server sends an empty
#: line every 15 seconds.
_SILENCE_SECONDS = 60.0


def subscribe(
    queries: Sequence[str | int] | None = None,
    *,
    owner: str | None = None,
    tag: str | None = None,
    after: str | None = None,
    follow: bool = True,
    snapshot: bool = False,
) -> Items[FeedEvent]:
    """Give the changes of many queries, with one cursor for all of them.

    As `Pond.subscribe`; but values are those JSON has, and what an event says besides a change is
    in its facts, the rows of an answer too. When the server goes away, this goes on where it was as
    soon as it is back; without `follow`, when the connection breaks.
    """
    names = None if queries is None else tuple(str(query) for query in queries)
    asked = selection_params(QuerySelection("", owner, tag, None, names))
    if snapshot and after is None:
        asked["snapshot"] = "true"
    gone_since: float | None = None
    breaks = 0
    while True:
        params = {**asked, "follow": str(follow).lower()}
        if after is not None:
            params.pop("snapshot", None)
            params["after"] = after
        is_over = False
        try:
            headers = {"Accept": encode.NDJSON}
            yield Lines(HttpRequest("GET", "/v1/changes", params, None, headers, _SILENCE_SECONDS))
            while (line := (yield NextLine())) is not None:
                if not line:
                    continue
                event = _read_event(json.loads(line), line)
                gone_since, breaks = None, 0
                after = event.cursor or after
                is_over = event.kind == "mark"  # nothing more is there now
                yield Give(event)
        except MillpondError as error:
            now = time.monotonic()
            gone_since = gone_since or now
            breaks += 1
            is_gone = now - gone_since > PATIENCE if follow else breaks >= ATTEMPTS
            if is_gone or not is_away(error):
                raise
        if not follow and is_over:
            return
        if follow or breaks:
            yield Pause(_PAUSE_SECONDS)


def _read_event(body: dict[str, Any], line: str) -> FeedEvent:
    """The event of a line. Raises the error if the feed ended with one."""
    kind = body.pop("event", None)
    if kind is None:
        raise decode.error(200, line.encode())
    cursor, query, id = body.pop("cursor"), body.pop("query", None), body.pop("id", None)
    if kind == "answer":
        return FeedEvent(kind, cursor, query, id, answer=decode.answer({**body, "query": query}))
    if kind != "change":
        return FeedEvent(kind, cursor, query, id, body)
    change = Change(
        cursor,
        decode.instant(body["timestamp"]) or 0,
        body["change"],
        tuple(body["row"].values()),
        decode.losses(body.get("loss", [])),
        number=body["number"],
    )
    return FeedEvent(kind, cursor, query, id, given=change)
