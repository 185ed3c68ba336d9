"""A pond behind HTTP: `connect(url)` gives the pond's own surface.

Answers come as Arrow, so they keep the server's types. An error is raised as the `MillpondError`
the server raised, with its place in the text that was sent. The client gives a push without an
idempotency key one of its own, and can send the push again if the connection breaks before the
receipt comes.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import httpx

from millpond.api import decode, encode
from millpond.api.calls import POLL_SECONDS, Calls, in_json, segment
from millpond.api.remote_feed import follow_remote
from millpond.api.remote_handles import RemoteHandle, RemoteStream
from millpond.api.surface import RowFormat
from millpond.catalog.objects import QueryDef, RelationDef, StreamDef
from millpond.cql import parse_statement
from millpond.cql.tree import statements
from millpond.errors import MillpondError
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.handles import Time, to_instant
from millpond.service.ingest.row_formats import from_rows, unknown_format_error
from millpond.service.json_values import instant_text
from millpond.service.queries.query_directory import QuerySelection
from millpond.service.queries.registration_request import Registration, parts
from millpond.service.results import Answer, IngestReceipt, StatementResult

#: Seconds to wait for a connection; for an answer there is no limit but the server's own.
CONNECT_TIMEOUT = 5.0

#: How often a push is sent before the server counts as gone.
_ATTEMPTS = 3

_MEDIA: dict[RowFormat, str] = {"ndjson": encode.NDJSON, "csv": "text/csv", "arrow": encode.ARROW}


def connect(url: str, token: str | None = None, *, http: httpx.Client | None = None) -> RemotePond:
    """The pond served at a URL.

    Args:
        url: The server's URL, such as http://127.0.0.1:6455.
        token: The server's token, if it has one.
        http: A client of your own (for proxies, certificates, timeouts) with its `base_url` set.

    Raises:
        MillpondError: SERVE-705, no Millpond server answers at the URL.
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
        self._calls = Calls(http)

    def __enter__(self) -> RemotePond:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> None:
        """Raises SERVE-705 unless a Millpond server answers, SERVE-706 if not to this token."""
        if self._calls.get("/healthz").get("status") != "alive":
            raise MillpondError("SERVE-705", f"no Millpond server at {self._http.base_url}")
        self._calls.get("/v1/queries", limit=1)

    # Statements and queries

    def execute(self, text: str) -> list[StatementResult]:
        """Runs statements in order."""
        body = self._calls.send("POST", "/v1/statements", {"text": text}, text=text).json()
        return [decode.result(result) for result in body["results"]]

    def ask(self, cql: str) -> Answer:
        """Asks a query once.

        Raises:
            MillpondError: CQL-216, the text is a statement of another kind.
        """
        # The server's call runs any statement, so refuse other statements before sending the text.
        if not isinstance(parse_statement(cql), statements.Ask):
            raise MillpondError("CQL-216", "not a query", hint="Statements go to execute().")
        response = self._calls.send(
            "POST", "/v1/statements", {"text": cql}, text=cql, accept=encode.ARROW
        )
        return decode.arrow_answer(response.content)

    def register(self, cql: str, name: str | None = None, **options: Any) -> RemoteHandle:
        """Registers a query."""
        body = _registration(cql, name, options)
        return self._handle(self._calls.send("POST", "/v1/queries", body, text=cql).json())

    def register_many(self, queries: Sequence[Registration]) -> list[RemoteHandle]:
        """Registers queries all together or not at all."""
        body = [_registration(*parts(query)) for query in queries]
        return [self._handle(item) for item in self._calls.send("POST", "/v1/queries", body).json()]

    def query(self, name_or_id: str | int) -> RemoteHandle:
        """The handle of a registered query."""
        return self._handle(self._calls.get(f"/v1/queries/{segment(name_or_id)}"))

    def derived(self, name: str) -> RemoteStream:
        """The handle of a derived stream."""
        found = RemoteStream(self._calls, name)
        found.page(None, 0)  # raises CQL-201 if there is none
        return found

    def subscribe(
        self,
        queries: Sequence[str | int] | None = None,
        *,
        owner: str | None = None,
        tag: str | None = None,
        after: str | None = None,
        follow: bool = True,
        snapshot: bool = False,
    ) -> Iterator[FeedEvent]:
        """Yields the changes of many queries, with one cursor for all of them.

        As `Pond.subscribe`; but values are those JSON has, and what an event says besides a change
        is in its facts, the rows of an answer too. It goes on when the server was away.
        """
        names = None if queries is None else tuple(str(query) for query in queries)
        asked = _selection_params(QuerySelection("", owner, tag, None, names))
        asked |= {"after": after} if after is not None else {}
        asked |= {"snapshot": "true"} if snapshot else {}
        return follow_remote(self._calls, asked, follow)

    def explain(self, text_or_name: str, level: str = "logical") -> str:
        """The plan of a query, registered or not."""
        plan: str = self._calls.get("/v1/plan", query=text_or_name, level=level)["plan"]
        return plan

    # Rows

    def ingest(
        self,
        stream: str,
        rows: Any,
        idempotency_key: str | None = None,
    ) -> IngestReceipt:
        """Pushes rows into a stream; they are durable once this returns.

        Rows are dictionaries, or a table of pyarrow, pandas or polars. The client converts them to
        columns before it sends them, as an embedded pond does.
        """
        table = encode.table_arrow(from_rows(rows))
        return self.ingest_text(stream, table, "arrow", idempotency_key)

    def ingest_text(
        self,
        stream: str,
        data: bytes | str,
        format: RowFormat,
        idempotency_key: str | None = None,
    ) -> IngestReceipt:
        """Pushes rows that are written already."""
        if format not in _MEDIA:
            raise unknown_format_error(format)
        headers = {
            "Content-Type": _MEDIA[format],
            "Idempotency-Key": idempotency_key or str(uuid.uuid4()),
        }
        path = f"/v1/streams/{segment(stream)}/tuples"
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                response = self._calls.request("POST", path, content=data, headers=headers)
            except MillpondError as error:
                if error.code != "SERVE-705" or attempt == _ATTEMPTS:
                    raise
            else:
                return decode.receipt(self._calls.check(response).json())
        raise AssertionError("unreachable")

    # What there is

    def streams(self) -> list[StreamDef]:
        """The streams; their sources' options stay on the server."""
        return [decode.stream(body) for body in self._calls.get("/v1/streams")["streams"]]

    def relations(self) -> list[RelationDef]:
        """The relations."""
        return [decode.relation(body) for body in self._calls.get("/v1/relations")["relations"]]

    def queries(self, **selection: Any) -> list[QueryDef]:
        """The registered queries; of a selection only (`owner`, `tag`, `state`, …), if given."""
        return [decode.query(body) for page in self._pages(selection) for body in page]

    def alter_queries(self, selection: QuerySelection, **options: Any) -> int:
        """Changes options of the selected queries in one epoch; returns how many there are."""
        asked = _selection_params(selection)
        response = self._calls.send("PATCH", "/v1/queries", in_json(options), params=asked)
        return int(response.json()["queries"])

    def drop_queries(self, selection: QuerySelection) -> int:
        """Drops the selected queries in one epoch; returns how many they were."""
        asked = _selection_params(selection)
        return int(self._calls.send("DELETE", "/v1/queries", params=asked).json()["queries"])

    def functions(self) -> list[dict[str, Any]]:
        """The user-defined functions; they are defined where the pond is open."""
        functions: list[dict[str, Any]] = self._calls.get("/v1/functions")["functions"]
        return functions

    def status(self) -> dict[str, Any]:
        """The pond at a glance."""
        return self._calls.get("/v1/status")

    @property
    def ready(self) -> bool:
        """Whether the pond answers queries and takes rows."""
        return self._calls.request("GET", "/readyz").status_code == 200

    def alter_stream(self, name: str, **options: Any) -> None:
        """Set `delay`, `idle_after`, `ahead`, `retain` or `overload` of a stream.

        Of a derived stream, `active=True` has it go on.
        """
        self._calls.send("PATCH", f"/v1/streams/{segment(name)}", in_json(options))

    def reset_clock(self, stream: str, to: Time) -> dict[str, Any]:
        """Sets the clock of a stream back; says how many elements were `rejected`, and of what
        changes were `taken_back`."""
        path = f"/v1/streams/{segment(stream)}/reset-clock"
        told: dict[str, Any] = self._calls.send(
            "POST", path, params={"to": instant_text(to_instant(to))}
        ).json()
        return told

    def catch_up(self, timeout: float | None = None) -> None:
        """Returns when everything acknowledged, and everything sources hold now, is visible.

        Raises:
            MillpondError: POND-405 when it took longer than `timeout` seconds.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            piece = min(POLL_SECONDS, max(until - time.monotonic(), 0.001))
            try:
                self._calls.send("POST", "/v1/catch-up", params={"timeout": piece})
                return
            except MillpondError as error:
                if error.code != "POND-405" or time.monotonic() >= until:
                    raise

    def close(self) -> None:
        """Closes the connections; the pond is the server's."""
        self._http.close()

    def _pages(self, selection: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
        asked = _selection_params(QuerySelection(**selection))
        after: int | None = -1
        while after is not None:
            body = self._calls.get("/v1/queries", limit=10_000, after=after, **asked)
            yield body["queries"]
            after = body["next"]

    def _handle(self, body: dict[str, Any]) -> RemoteHandle:
        return RemoteHandle(self._calls, body["id"], body["name"])


def _registration(cql: str, name: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """A registration as JSON; times among the values of parameters become texts."""
    body: dict[str, Any] = {"cql": cql, "name": name}
    if "params" in options:
        given = options["params"].items()
        body["params"] = {k: str(v) if isinstance(v, date | Decimal) else v for k, v in given}
    rest = {key: value for key, value in options.items() if key != "params"}
    return {**body, "options": in_json(rest)}


def _selection_params(selection: QuerySelection) -> dict[str, Any]:
    """A selection as the parameters of a URL."""
    asked = {
        "containing": selection.containing or None,
        "owner": selection.owner,
        "tag": selection.tag,
        "state": selection.state,
        "queries": None if selection.names is None else ",".join(selection.names),
    }
    return {name: value for name, value in asked.items() if value is not None}
