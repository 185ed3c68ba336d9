"""A pond behind HTTP: `connect(url)` gives the pond's own surface.

Answers come as Arrow, so their types are the server's; errors come back as the `MillpondError` they
were, with their place in the text that was sent. A push is given an idempotency key if it has none,
so that it can be sent again when the connection breaks before the receipt is in.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa

from millpond.api import change_forms, decode, encode
from millpond.api.surface import Registration, RowFormat
from millpond.catalog.objects import QueryDef, RelationDef, StreamDef
from millpond.cql import parse_statement, statements
from millpond.cql.durations import timedelta_text
from millpond.errors import MillpondError
from millpond.model.time import from_datetime, parse_instant
from millpond.service.results import Answer, Change, Changes, IngestReceipt, StatementResult

#: Seconds to wait for a connection; for an answer there is no limit but the server's own.
CONNECT_TIMEOUT = 5.0

#: How often a push is sent before the server counts as gone.
_ATTEMPTS = 3

#: Seconds a follower is patient with a server that is away, and pauses between two attempts.
PATIENCE = 60.0
_PAUSE_SECONDS = 0.25
#: Seconds a page that would be empty is waited for.
_POLL_SECONDS = 25.0

_MEDIA: dict[RowFormat, str] = {"ndjson": encode.NDJSON, "csv": "text/csv", "arrow": encode.ARROW}


def connect(url: str, token: str | None = None, *, http: httpx.Client | None = None) -> RemotePond:
    """The pond served at a URL.

    Args:
        url: The server's, such as http://127.0.0.1:6455.
        token: The server's token, if it has one.
        http: A client of your own (for proxies, certificates, timeouts) with its `base_url` set.

    Raises:
        MillpondError: SERVE-705, nothing of Millpond's answers there.
    """
    if http is None:
        timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT)
        try:
            http = httpx.Client(base_url=url.rstrip("/"), timeout=timeout)
        except httpx.InvalidURL as error:
            raise MillpondError("SERVE-705", f'"{url}" is not a URL') from error
    if token:
        http.headers["Authorization"] = f"Bearer {token}"
    pond = RemotePond(http)
    try:
        pond.check()
    except MillpondError:
        pond.close()
        raise
    return pond


class RemotePond:
    """The pond's surface over HTTP; safe to use from several threads."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def __enter__(self) -> RemotePond:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> None:
        """Raises SERVE-705 unless a Millpond server answers, SERVE-706 if not to this token."""
        if self._get("/healthz").get("status") != "alive":
            raise MillpondError("SERVE-705", f"no Millpond server at {self._http.base_url}")
        self._get("/v1/queries", limit=1)

    # Statements and queries

    def execute(self, text: str) -> list[StatementResult]:
        """Runs statements in order."""
        body = self._send("POST", "/v1/statements", {"text": text}, text=text).json()
        return [decode.result(result) for result in body["results"]]

    def ask(self, cql: str) -> Answer:
        """Asks a query once.

        Raises:
            MillpondError: CQL-216, the text is a statement of another kind.
        """
        # The call runs any statement, so what only asks must be told apart before it is sent.
        if not isinstance(parse_statement(cql), statements.Ask):
            raise MillpondError("CQL-216", "not a query", hint="Statements go to execute().")
        response = self._send(
            "POST", "/v1/statements", {"text": cql}, text=cql, accept=encode.ARROW
        )
        return decode.arrow_answer(response.content)

    def register(self, cql: str, name: str | None = None, **options: Any) -> RemoteHandle:
        """Registers a query."""
        body = {"cql": cql, "name": name, "options": _in_json(options)}
        return self._handle(self._send("POST", "/v1/queries", body, text=cql).json())

    def register_many(self, queries: Sequence[Registration]) -> list[RemoteHandle]:
        """Registers queries all together or not at all."""
        body = [{"cql": c, "name": n, "options": _in_json(options)} for c, n, options in queries]
        return [self._handle(item) for item in self._send("POST", "/v1/queries", body).json()]

    def query(self, name_or_id: str | int) -> RemoteHandle:
        """The handle of a registered query."""
        return self._handle(self._get(f"/v1/queries/{_segment(name_or_id)}"))

    def derived(self, name: str) -> RemoteStream:
        """The handle of a derived stream."""
        found = RemoteStream(self, name)
        found._page(None, 0)
        return found

    def explain(self, text_or_name: str, level: str = "logical") -> str:
        """The plan of a query, registered or not."""
        plan: str = self._get("/v1/plan", query=text_or_name, level=level)["plan"]
        return plan

    # Rows

    def ingest(
        self,
        stream: str,
        rows: pa.Table | list[dict[str, Any]],
        idempotency_key: str | None = None,
    ) -> IngestReceipt:
        """Pushes rows into a stream; they are durable once this returns."""
        if isinstance(rows, list):
            lines = [encode.dumps(encode.plain(row)) for row in rows]
            return self.ingest_text(stream, b"\n".join(lines), "ndjson", idempotency_key)
        return self.ingest_text(stream, encode.table_arrow(rows), "arrow", idempotency_key)

    def ingest_text(
        self,
        stream: str,
        data: bytes,
        format: RowFormat,
        idempotency_key: str | None = None,
    ) -> IngestReceipt:
        """Pushes rows that are written already."""
        headers = {
            "Content-Type": _MEDIA[format],
            "Idempotency-Key": idempotency_key or str(uuid.uuid4()),
        }
        path = f"/v1/streams/{_segment(stream)}/tuples"
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                response = self._request("POST", path, content=data, headers=headers)
            except MillpondError as error:
                if error.code != "SERVE-705" or attempt == _ATTEMPTS:
                    raise
            else:
                return decode.receipt(self._checked(response).json())
        raise AssertionError("unreachable")

    # What there is

    def streams(self) -> list[StreamDef]:
        """The streams; their sources' options stay on the server."""
        return [decode.stream(body) for body in self._get("/v1/streams")["streams"]]

    def relations(self) -> list[RelationDef]:
        """The relations."""
        return [decode.relation(body) for body in self._get("/v1/relations")["relations"]]

    def queries(self) -> list[QueryDef]:
        """The registered queries."""
        return [decode.query(body) for page in self._pages() for body in page]

    def functions(self) -> list[dict[str, Any]]:
        """The user-defined functions; they are defined where the pond is open."""
        functions: list[dict[str, Any]] = self._get("/v1/functions")["functions"]
        return functions

    def status(self) -> dict[str, Any]:
        """The pond at a glance."""
        return self._get("/v1/status")

    @property
    def ready(self) -> bool:
        """Whether the pond answers queries and takes rows."""
        return self._request("GET", "/readyz").status_code == 200

    def catch_up(self, timeout: float | None = None) -> None:
        """Returns when everything acknowledged, and everything sources hold now, is visible.

        Raises:
            MillpondError: POND-405 when it took longer than `timeout` seconds.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            piece = min(_POLL_SECONDS, max(until - time.monotonic(), 0.001))
            try:
                self._send("POST", "/v1/catch-up", params={"timeout": piece})
                return
            except MillpondError as error:
                if error.code != "POND-405" or time.monotonic() >= until:
                    raise

    def close(self) -> None:
        """Closes the connections; the pond is the server's."""
        self._http.close()

    def _pages(self) -> Iterator[list[dict[str, Any]]]:
        after: int | None = -1
        while after is not None:
            body = self._get("/v1/queries", limit=10_000, after=after)
            yield body["queries"]
            after = body["next"]

    def _handle(self, body: dict[str, Any]) -> RemoteHandle:
        return RemoteHandle(self, body["id"], body["name"])

    def _get(self, path: str, **params: Any) -> dict[str, Any]:
        response = self._checked(self._request("GET", path, params=params))
        try:
            body: dict[str, Any] = response.json()
        except json.JSONDecodeError:
            raise decode.error(response.status_code, response.content) from None
        return body

    def _send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        text: str | None = None,
        accept: str = encode.JSON,
        params: dict[str, Any] | None = None,
    ) -> httpx.Response:
        """A call with a JSON body; an error's place is shown in `text`."""
        content = None if body is None else encode.dumps(encode.plain(body))
        headers = {"Accept": accept, "Content-Type": encode.JSON}
        response = self._request(method, path, content=content, headers=headers, params=params)
        return self._checked(response, text)

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            if self._http.is_closed:
                raise MillpondError(
                    "POND-410", "the connection is closed", hint="Call millpond.connect() again."
                )
            return self._http.request(method, path, **arguments)
        except (httpx.TransportError, httpx.UnsupportedProtocol) as error:
            raise MillpondError(
                "SERVE-705",
                f"the server at {self._http.base_url} cannot be reached",
                detail=f"{str(error).rstrip('.') or type(error).__name__}.",
                hint="Check the URL, and start a server with `millpond serve`.",
            ) from error

    @staticmethod
    def _checked(response: httpx.Response, text: str | None = None) -> httpx.Response:
        if response.is_success:
            return response
        raise decode.error(response.status_code, response.content, text)


class RemoteFollowed:
    """Whatever of a server has changes to be followed."""

    _pond: RemotePond
    _path: str

    def fetch(self, after: str | int | None = None, limit: int | None = None) -> Changes:
        """The changes after a cursor, or from the oldest kept on, as far as they are final."""
        pages = [self._page(after, limit)]
        while pages[-1].cursor < pages[-1].newest and (limit is None or _length(pages) < limit):
            rest = None if limit is None else limit - _length(pages)
            pages.append(self._page(pages[-1].cursor, rest))
        table = pa.concat_tables([page.table for page in pages], promote_options="permissive")
        return replace(pages[-1], table=table)

    def subscribe(
        self, after: str | int | None = None, follow: bool = True, patience: float = PATIENCE
    ) -> Iterator[Change]:
        """The changes after a cursor, one by one, and with `follow` those to come, for ever.

        When the server goes away, this goes on where it was as soon as it is back.

        Args:
            after: The cursor; None for the oldest change that is kept.
            follow: Whether to wait for what is to come.
            patience: Seconds the server may be gone before that is an error.
        """
        gone_since: float | None = None
        while True:
            try:
                page = self._page(after, None, _POLL_SECONDS if follow else 0.0)
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
            if not follow and page.cursor >= page.newest:
                return

    def _page(self, after: str | int | None, limit: int | None, wait: float = 0.0) -> Changes:
        asked = {"after": after, "limit": limit, "wait": wait or None}
        params = {name: value for name, value in asked.items() if value is not None}
        path = f"{self._path}/changes"
        response = self._pond._send("GET", path, accept=encode.ARROW, params=params)
        return change_forms.from_arrow(response.content)


class RemoteHandle(RemoteFollowed):
    """A standing query of a server."""

    def __init__(self, pond: RemotePond, id: int, name: str) -> None:
        self._pond = pond
        self._path = f"/v1/queries/{id}"
        self.id = id
        self.name = name

    def __repr__(self) -> str:
        return f"<RemoteHandle {self.id} {self.name!r}>"

    def invoke(self, at: int | str | datetime | None = None) -> Answer:
        """The query's answer as of now or of a kept instant (microseconds, ISO text, datetime)."""
        params = {} if at is None else {"at": _instant(at)}
        path = f"{self._path}/result"
        response = self._pond._send("GET", path, accept=encode.ARROW, params=params)
        return decode.arrow_answer(response.content)

    def describe(self) -> dict[str, Any]:
        """What the query is and how it does."""
        return self._pond._get(self._path)

    def plan(self, level: str = "logical") -> str:
        """The query's plan."""
        plan: str = self._pond._get(f"{self._path}/plan", level=level)["plan"]
        return plan

    def alter(self, **options: Any) -> None:
        """Sets options of the query."""
        self._pond._send("PATCH", self._path, _in_json(options))

    def unregister(self) -> None:
        """Unregisters the query."""
        self._pond._send("DELETE", self._path)


class RemoteStream(RemoteFollowed):
    """The handle of a derived stream of a server."""

    def __init__(self, pond: RemotePond, name: str) -> None:
        self._pond = pond
        self._path = f"/v1/streams/{_segment(name)}"
        self.name = name

    def __repr__(self) -> str:
        return f"<RemoteStream {self.name!r}>"

    def plan(self, level: str = "logical") -> str:
        """The plan of what computes its elements."""
        return self._pond.explain(self.name, level)

    def alter(self, **options: Any) -> None:
        """`active=True`: a stream that has stopped goes on."""
        self._pond._send("PATCH", self._path, options)


def _in_json(options: Mapping[str, Any]) -> dict[str, Any]:
    """A query's options as JSON has them; lengths of time are texts there."""
    return {k: timedelta_text(v) if isinstance(v, timedelta) else v for k, v in options.items()}


def _length(pages: Sequence[Changes]) -> int:
    return sum(len(page) for page in pages)


def _segment(name: str | int) -> str:
    return quote(str(name), safe="")


def _instant(at: int | str | datetime) -> str:
    match at:
        case datetime():
            at = from_datetime(at)
        case str():
            at = parse_instant(at)
    return encode.instant_text(at) or ""
