"""A feed of a server: reads its lines as they come, and goes on when the connection breaks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx

from millpond.api import decode, encode
from millpond.api.calls import Calls
from millpond.api.remote_handles import PATIENCE
from millpond.errors import MillpondError
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.results import Change

_PAUSE_SECONDS = 0.25
#: Seconds without a line after which the connection counts as broken: the server sends an empty
#: line every 15 seconds.
_SILENCE_SECONDS = 60.0


def follow_remote(
    calls: Calls, asked: dict[str, Any], follow: bool, patience: float = PATIENCE
) -> Iterator[FeedEvent]:
    """The events of a feed, and with `follow` those to come, for ever.

    When the server goes away, this goes on where it was as soon as it is back.

    Args:
        calls: Calls the server.
        asked: The parameters of `GET /v1/changes`, without `follow`.
        follow: Whether to wait for what is to come.
        patience: Seconds the server may be gone before that is an error.

    Raises:
        MillpondError: what the server answers with; SERVE-705 when it stays away.
    """
    after: str | None = asked.pop("after", None)
    gone_since: float | None = None
    while True:
        params = {**asked, "follow": str(follow).lower()}
        if after is not None:
            params.pop("snapshot", None)
            params["after"] = after
        is_over = False
        try:
            for event in _read_lines(calls, params):
                gone_since = None
                after = event.cursor or after
                is_over = event.kind == "mark"  # nothing more is there now
                yield event
        except MillpondError as error:
            now = time.monotonic()
            gone_since = gone_since or now
            away = error.code in ("SERVE-705", "POND-410") and not calls.http.is_closed
            if not follow or not away or now - gone_since > patience:
                raise
        if not follow and is_over:
            return
        if follow:
            time.sleep(_PAUSE_SECONDS)


def _read_lines(calls: Calls, params: dict[str, Any]) -> Iterator[FeedEvent]:
    """The events of one response, until it ends."""
    headers = {"Accept": encode.NDJSON}
    timeout = httpx.Timeout(_SILENCE_SECONDS)
    try:
        with calls.http.stream(
            "GET", "/v1/changes", params=params, headers=headers, timeout=timeout
        ) as response:
            if not response.is_success:
                response.read()
            calls.check(response)
            for line in response.iter_lines():
                if line:
                    yield _read_event(json.loads(line), response.status_code, line)
    except httpx.TransportError as error:
        raise MillpondError(
            "SERVE-705",
            f"the server at {calls.http.base_url} cannot be reached",
            detail=f"{str(error).rstrip('.') or type(error).__name__}.",
        ) from error


def _read_event(body: dict[str, Any], status: int, line: str) -> FeedEvent:
    """The event of a line. Raises the error if the feed ended with one."""
    kind = body.pop("event", None)
    if kind is None:
        raise decode.error(status, line.encode())
    cursor, query, id = body.pop("cursor"), body.pop("query", None), body.pop("id", None)
    if kind != "change":
        return FeedEvent(kind, cursor, query, id, body)
    change = Change(
        cursor,
        decode.instant(body["timestamp"]) or 0,
        body["change"],
        tuple(body["row"].values()),
        decode.losses(body.get("loss", [])),
    )
    return FeedEvent(kind, cursor, query, id, body, given=change)
