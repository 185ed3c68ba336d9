"""What a pond's calls ask of a server, and how its answers are read.

Answers come as Arrow, so they keep the server's types. An error is raised as the `MillpondError`
the server raised, with its place in the text that was sent. Calls that read are made again if the
connection breaks before their answer comes. So is a push: if it has no idempotency key, it gets one
here, so it counts once. No other call that changes anything is made twice.
"""

from __future__ import annotations

import base64
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from millpond.api import decode, encode
from millpond.api.client.steps import (
    POLL_SECONDS,
    HttpRequest,
    Steps,
    check,
    get,
    given,
    in_json,
    repeat,
    segment,
    send,
)
from millpond.catalog.objects import QueryDef, RelationDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.time import Time, to_instant
from millpond.service.ingest.given_rows import RowFormat, from_rows, unknown_format_error
from millpond.service.json_values import instant_text
from millpond.service.queries.given_registration import Registration, parts, table_of_parameters
from millpond.service.queries.query_selection import QuerySelection, write_names
from millpond.service.results import Answer, IngestReceipt, StatementResult

_MEDIA: dict[RowFormat, str] = {
    "ndjson": encode.NDJSON,
    "json": encode.JSON,
    "csv": "text/csv",
    "arrow": encode.ARROW,
}

#: A query's id and name.
IdAndName = tuple[int, str]


def check_server() -> Steps[None]:
    """Raises SERVE-705 unless a Millpond server answers, SERVE-706 if not to this token.

    One that waits while another leads answers, too; what is asked then leads on, or is STORE-607.
    """
    response = check((yield HttpRequest("GET", "/healthz")))
    try:
        is_there = response.json().get("status") in ("alive", "waiting")
    except (ValueError, AttributeError):
        is_there = False
    if not is_there:
        raise MillpondError("SERVE-705", f"no Millpond server at {response.url.host}")
    yield from get("/v1/queries", limit=1)


# Statements and queries


def execute(text: str) -> Steps[list[StatementResult]]:
    """Runs statements in order."""
    response = yield from send("POST", "/v1/statements", {"text": text}, text=text)
    return [decode.result(result) for result in response.json()["results"]]


def ask(cql: str) -> Steps[Answer]:
    """Asks a query once.

    Raises:
        MillpondError: CQL-216, the text is a statement of another kind.
    """
    body = {"text": cql, "only": "query"}
    response = yield from send(
        "POST", "/v1/statements", body, text=cql, accept=encode.ARROW, again=True
    )
    return decode.arrow_answer(response.content)


def register(cql: str, name: str | None, options: Mapping[str, Any]) -> Steps[IdAndName]:
    """Registers a query."""
    body = _registration(cql, name, options)
    return _read_name((yield from send("POST", "/v1/queries", body, text=cql)).json())


def register_many(queries: Sequence[Registration]) -> Steps[list[IdAndName]]:
    """Registers queries all together or not at all."""
    body = [_registration(*parts(query)) for query in queries]
    return [_read_name(item) for item in (yield from send("POST", "/v1/queries", body)).json()]


def register_table(cql: str, rows: Any, options: Mapping[str, Any]) -> Steps[list[IdAndName]]:
    """Registers one text with parameters once for each row of a table."""
    sent = base64.b64encode(encode.table_arrow(table_of_parameters(rows))).decode()
    body = {"cql": cql, "table": {"arrow": sent}, "options": in_json(options)}
    response = yield from send("POST", "/v1/queries", body, text=cql)
    return [_read_name(item) for item in response.json()]


def query(name_or_id: str | int) -> Steps[IdAndName]:
    """The handle of a registered query."""
    return _read_name((yield from get(f"/v1/queries/{segment(name_or_id)}")))


def explain(text_or_name: str, level: str = "logical") -> Steps[str]:
    """The plan of a query, registered or not."""
    return str((yield from get("/v1/plan", query=text_or_name, level=level))["plan"])


# Plans as documents


def export_plan(queries: Sequence[str] | None = None) -> Steps[dict[str, Any]]:
    """The plans by which changes are computed as a document; of all queries by default."""
    return (yield from get("/v1/plan/document", **given(queries=queries)))


def compare_plan(document: Mapping[str, Any]) -> Steps[dict[str, Any]]:
    """What would be other if a document were adopted."""
    response = yield from send("POST", "/v1/plan/compare", dict(document), again=True)
    return dict(response.json())


def adopt_plan(document: Mapping[str, Any], *, base: str | None = None) -> Steps[dict[str, Any]]:
    """Adopts a document while queries run; returns what it made other, and its number.

    With the `base` of `compare_plan`, nothing is adopted if something has changed since.
    """
    asked = send("POST", "/v1/plan/adopt", dict(document), params=given(base=base))
    return dict((yield from asked).json())


def adopted_plans() -> Steps[list[dict[str, Any]]]:
    """The adopted plans that can be taken back, the last one first."""
    return list((yield from get("/v1/plan/adopted"))["plans"])


def undo_plan(plan: int | None = None) -> Steps[dict[str, Any]]:
    """Takes the plan back that was adopted last, if it is that one; returns which one that was."""
    return dict((yield from send("POST", "/v1/plan/undo", params=given(plan=plan))).json())


# Backups


def begin_backup(directory: str, copy: bool = False) -> Steps[dict[str, Any]]:
    """Begins a backup into a directory of the server's that its operator allows; describes it.

    It is made in the background, one at a time. `copy` has files copied that could be links.
    """
    body = {"to": str(directory), "copy": copy}
    return dict((yield from send("POST", "/v1/backups", body)).json())


def backups() -> Steps[list[dict[str, Any]]]:
    """The last backups that were begun since the server started, the newest first."""
    return list((yield from get("/v1/backups"))["backups"])


def backup(number: int) -> Steps[dict[str, Any]]:
    """The state of a backup, and how far it is."""
    return (yield from get(f"/v1/backups/{segment(number)}"))


def cancel_backup(number: int) -> Steps[dict[str, Any]]:
    """Cancels a backup that is being made; the backups there were stay."""
    asked = send("DELETE", f"/v1/backups/{segment(number)}", again=True)
    return dict((yield from asked).json())


# Rows


def ingest(stream: str, rows: Any, idempotency_key: str | None = None) -> Steps[IngestReceipt]:
    """Pushes rows into a stream; they are durable once this returns.

    Rows are dictionaries, or a table of pyarrow, pandas or polars. The client converts them to
    columns before it sends them, as an embedded pond does.
    """
    table = encode.table_arrow(from_rows(rows))
    return (yield from ingest_text(stream, table, "arrow", idempotency_key))


def ingest_text(
    stream: str, data: bytes | str, format: RowFormat, idempotency_key: str | None = None
) -> Steps[IngestReceipt]:
    """Pushes rows that are written already."""
    if format not in _MEDIA:
        raise unknown_format_error(format)
    headers = {
        "Content-Type": _MEDIA[format],
        "Idempotency-Key": idempotency_key or str(uuid.uuid4()),
    }
    path = f"/v1/streams/{segment(stream)}/tuples"
    response = yield from repeat(HttpRequest("POST", path, {}, data, headers))
    return decode.receipt(check(response).json())


def stage(stream: str, part: str, rows: Any) -> Steps[int]:
    """Keeps rows on the server as a part of a batch that comes later; gives how many they are."""
    headers = {"Content-Type": encode.ARROW}
    path = f"/v1/streams/{segment(stream)}/parts/{segment(part)}"
    table = encode.table_arrow(from_rows(rows))
    response = check((yield from repeat(HttpRequest("PUT", path, {}, table, headers))))
    return int(response.json()["rows"])


def unstage(stream: str, parts: Sequence[str]) -> Steps[None]:
    """Removes parts of a batch that does not come."""
    for part in parts:
        path = f"/v1/streams/{segment(stream)}/parts/{segment(part)}"
        yield from send("DELETE", path, again=True)


def ingest_batch(
    stream: str, writer: str, batch: int | None, parts: Sequence[str]
) -> Steps[IngestReceipt]:
    """Pushes parts that were staged as a batch of a writer, all or none, exactly once."""
    body = {"writer": writer, "batch": batch, "parts": list(parts)}
    path = f"/v1/streams/{segment(stream)}/batches"
    return decode.receipt((yield from send("POST", path, body, again=True)).json())


# What there is


def streams() -> Steps[list[StreamDef]]:
    """The streams; their sources' options stay on the server."""
    return [decode.stream(body) for body in (yield from get("/v1/streams"))["streams"]]


def relations() -> Steps[list[RelationDef]]:
    """The relations."""
    return [decode.relation(body) for body in (yield from get("/v1/relations"))["relations"]]


def queries(**selection: Any) -> Steps[list[QueryDef]]:
    """The registered queries; of a selection only (`owner`, `tag`, `state`, …), if given."""
    asked = selection_params(QuerySelection.of(None, selection))
    found: list[QueryDef] = []
    after: int | None = -1
    while after is not None:
        body = yield from get("/v1/queries", limit=PAGE_OF_QUERIES, after=after, **asked)
        found += [decode.query(item) for item in body["queries"]]
        after = body["next"]
    return found


#: How many queries are listed with one request.
PAGE_OF_QUERIES = 10_000


def alter_queries(selection: QuerySelection | Mapping[str, Any], **options: Any) -> Steps[int]:
    """Changes options of the selected queries in one epoch; returns how many there are."""
    asked = selection_params(QuerySelection.of_some(selection, {}))
    response = yield from send("PATCH", "/v1/queries", in_json(options), params=asked)
    return int(response.json()["queries"])


def drop_queries(
    selection: QuerySelection | Mapping[str, Any] | None = None, **conditions: Any
) -> Steps[int]:
    """Drops the selected queries in one epoch; returns how many they were."""
    asked = selection_params(QuerySelection.of_some(selection, conditions))
    response = yield from send("DELETE", "/v1/queries", params=asked)
    return int(response.json()["queries"])


def functions() -> Steps[list[dict[str, Any]]]:
    """The user-defined functions; they are defined where the pond is open."""
    return list((yield from get("/v1/functions"))["functions"])


def status() -> Steps[dict[str, Any]]:
    """The pond at a glance."""
    return (yield from get("/v1/status"))


def ready() -> Steps[bool]:
    """Whether the pond answers queries and takes rows."""
    return bool((yield from repeat(HttpRequest("GET", "/readyz"))).status_code == 200)


def alter_stream(name: str, **options: Any) -> Steps[None]:
    """Set `delay`, `idle_after`, `ahead`, `retain` or `overload` of a stream.

    Of a derived stream, `active=True` has it go on.
    """
    yield from send("PATCH", f"/v1/streams/{segment(name)}", in_json(options))


def reset_clock(stream: str, to: Time) -> Steps[dict[str, Any]]:
    """Sets the clock of a stream back; says how many elements were `rejected`, and of what
    changes were `taken_back`."""
    path = f"/v1/streams/{segment(stream)}/reset-clock"
    params = {"to": instant_text(to_instant(to))}
    return dict((yield from send("POST", path, params=params)).json())


def catch_up(timeout: float | None = None) -> Steps[None]:
    """Returns when everything acknowledged, and everything sources hold now, is visible.

    Raises:
        MillpondError: POND-405 when it took longer than `timeout` seconds.
    """
    until = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        piece = min(POLL_SECONDS, max(until - time.monotonic(), 0.001))
        try:
            yield from send("POST", "/v1/catch-up", params={"timeout": piece}, again=True)
            return
        except MillpondError as error:
            if error.code != "POND-405" or time.monotonic() >= until:
                raise


def selection_params(selection: QuerySelection) -> dict[str, Any]:
    """A selection as the parameters of a URL."""
    return given(
        containing=selection.containing or None,
        owner=selection.owner,
        tag=selection.tag,
        state=selection.state,
        queries=None if selection.names is None else write_names(selection.names),
    )


def _registration(cql: str, name: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """A registration as JSON."""
    encoded = in_json(options)
    params = {"params": encoded.pop("params")} if "params" in encoded else {}
    return {"cql": cql, "name": name, **params, "options": encoded}


def _read_name(body: Mapping[str, Any]) -> IdAndName:
    return int(body["id"]), str(body["name"])
