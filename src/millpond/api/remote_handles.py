"""Handles of a server's standing queries and derived streams."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond.api import change_forms, decode, encode
from millpond.api.calls import POLL_SECONDS, Calls, in_json, segment
from millpond.errors import MillpondError
from millpond.model.loss import merge_losses
from millpond.service import json_values
from millpond.service.handles import Time, to_instant
from millpond.service.results import Answer, Change, Changes

#: How long a follower waits for a server that is away, and between two attempts, in seconds.
PATIENCE = 60.0
_PAUSE_SECONDS = 0.25


class RemoteFollowable:
    """A standing query or derived stream of a server, whose changes can be followed."""

    _calls: Calls
    _path: str

    def fetch(self, after: str | int | None = None, limit: int | None = None) -> Changes:
        """The changes after a cursor, or from the first on, as far as they are final."""
        pages = [self.page(after, limit)]
        while pages[-1].position < pages[-1].newest and (limit is None or _length(pages) < limit):
            rest = None if limit is None else limit - _length(pages)
            pages.append(self.page(pages[-1].cursor, rest))
        table = pa.concat_tables([page.table for page in pages], promote_options="permissive")
        loss = merge_losses(loss for page in pages for loss in page.loss)
        return replace(pages[-1], table=table, loss=loss)

    def subscribe(
        self, after: str | int | None = None, follow: bool = True, patience: float = PATIENCE
    ) -> Iterator[Change]:
        """The changes after a cursor, one by one, and with `follow` those to come, for ever.

        When the server goes away, this goes on where it was as soon as it is back.

        Args:
            after: The cursor; None for the first change, 'oldest' for the oldest kept.
            follow: Whether to wait for what is to come.
            patience: Seconds the server may be gone before that is an error.
        """
        gone_since: float | None = None
        while True:
            try:
                page = self.page(after, None, POLL_SECONDS if follow else 0.0)
            except MillpondError as error:
                now = time.monotonic()
                gone_since = gone_since or now
                away = error.code in ("SERVE-705", "POND-410")
                if not follow or not away or now - gone_since > patience:
                    raise
                time.sleep(_PAUSE_SECONDS)
                continue
            gone_since = None
            yield from page
            after = page.cursor
            if not follow and page.position >= page.newest:
                return

    def page(self, after: str | int | None, limit: int | None, wait: float = 0.0) -> Changes:
        """As `fetch`, at most one page; an empty one is waited for `wait` seconds."""
        asked = {"after": after, "limit": limit, "wait": wait or None}
        params = {name: value for name, value in asked.items() if value is not None}
        path = f"{self._path}/changes"
        response = self._calls.send("GET", path, accept=encode.ARROW, params=params)
        return change_forms.from_arrow(response.content)


class RemoteHandle(RemoteFollowable):
    """A standing query of a server."""

    def __init__(self, calls: Calls, id: int, name: str) -> None:
        self._calls = calls
        self._path = f"/v1/queries/{id}"
        self.id = id
        self.name = name

    def __repr__(self) -> str:
        return f"<RemoteHandle {self.id} {self.name!r}>"

    def invoke(
        self,
        at: Time | None = None,
        budget: str | None = None,
        after: str | None = None,
    ) -> Answer:
        """The query's answer as of now or of a kept instant; with a budget, a part of it.

        Args:
            at: Microseconds since 1970 UTC, ISO text, a datetime, a date, or a time of NumPy or
                pandas.
            budget: '20 ms' or '5000 probes'.
            after: The cursor of an earlier part, to go on behind it.

        Raises:
            MillpondError: CQL-103 for anything else.
        """
        asked = {"budget": budget, "after": after}
        params = {name: value for name, value in asked.items() if value is not None}
        if at is not None:
            params["at"] = json_values.instant_text(to_instant(at)) or ""
        path = f"{self._path}/result"
        response = self._calls.send("GET", path, accept=encode.ARROW, params=params)
        return decode.arrow_answer(response.content)

    def describe(self) -> dict[str, Any]:
        """What the query is and how it does."""
        return self._calls.get(self._path)

    def plan(self, level: str = "logical") -> str:
        """The query's plan."""
        plan: str = self._calls.get(f"{self._path}/plan", level=level)["plan"]
        return plan

    def alter(self, **options: Any) -> None:
        """Sets options of the query."""
        self._calls.send("PATCH", self._path, in_json(options))

    def unregister(self) -> None:
        """Unregisters the query."""
        self._calls.send("DELETE", self._path)


class RemoteStream(RemoteFollowable):
    """The handle of a derived stream of a server."""

    def __init__(self, calls: Calls, name: str) -> None:
        self._calls = calls
        self._path = f"/v1/streams/{segment(name)}"
        self.name = name

    def __repr__(self) -> str:
        return f"<RemoteStream {self.name!r}>"

    def plan(self, level: str = "logical") -> str:
        """The plan of what computes its elements."""
        plan: str = self._calls.get("/v1/plan", query=self.name, level=level)["plan"]
        return plan

    def alter(self, **options: Any) -> None:
        """`active=True`: a stream that has stopped goes on."""
        self._calls.send("PATCH", self._path, options)


def _length(pages: Sequence[Changes]) -> int:
    return sum(len(page) for page in pages)
