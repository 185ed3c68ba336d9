"""Changes on the wire: pages as JSON, NDJSON and Arrow, and as server-sent events.

A change in NDJSON and in an event is one object, `{"cursor", "timestamp", "change", "row",
"exact"}` and, where `exact` is false, `loss`. Its row has the query's columns by name; `exact` and
`loss` are those of the changes it was read with. The id of an event is its cursor, so a browser
that lost its connection sends the last cursor by itself (`Last-Event-ID`). Before the first change
of a query's new definition stands `{"redefined", "columns"}`, or an event `redefined`.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from millpond.api import decode, encode
from millpond.errors import MillpondError
from millpond.service import json_values
from millpond.service.results import Changes

EVENTS = "text/event-stream"

#: The key of an Arrow schema's metadata that holds a page's facts besides its rows.
CHANGES_KEY = b"millpond.changes"

#: Sent while there is no change, so that no proxy takes the connection for dead.
IDLE = {EVENTS: b": nothing new\n\n", encode.NDJSON: b"\n"}


def encode_page(changes: Changes, form: str) -> bytes:
    """Encode a page in JSON, NDJSON or Arrow."""
    if form == encode.ARROW:
        return _arrow(changes)
    if form == encode.JSON:
        return json_values.dumps(encode.changes_json(changes))
    return b"".join(encode_piece(changes, form))


def encode_piece(changes: Changes, form: str) -> list[bytes]:
    """Encode changes one by one: as lines, or as events."""
    objects = json_values.change_objects(changes)
    before = [] if changes.redefined is None else [_describe_redefined(changes)]
    if form == encode.NDJSON:
        return [json_values.dumps(body) + b"\n" for body in (*before, *objects)]
    return [
        *(b"event: redefined\ndata: %s\n\n" % json_values.dumps(body) for body in before),
        *(
            b"id: %s\nevent: change\ndata: %s\n\n"
            % (body["cursor"].encode(), json_values.dumps(body))
            for body in objects
        ),
    ]


def _describe_redefined(changes: Changes) -> dict[str, Any]:
    """What stands before the first change of a query's new definition."""
    columns = [f for f in changes.table.schema if f.name in changes.columns]
    return {
        "redefined": changes.redefined,
        "columns": [{"name": f.name, "type": str(f.type)} for f in columns],
    }


def encode_failure(error: MillpondError, form: str) -> bytes:
    """Encode the error with which a stream of changes ends."""
    body = json_values.dumps(error.to_json())
    return b"event: error\ndata: %s\n\n" % body if form == EVENTS else body + b"\n"


def _arrow(changes: Changes) -> bytes:
    facts = {
        "query": changes.query,
        "cursor": changes.cursor,
        "newest": changes.newest,
        "as_of_us": changes.as_of,
        "redefined": changes.redefined,
        **encode.promise_facts(changes),
    }
    metadata = {**(changes.table.schema.metadata or {}), CHANGES_KEY: json.dumps(facts)}
    return encode.table_arrow(changes.table.replace_schema_metadata(metadata))


def from_arrow(data: bytes) -> Changes:
    """The page `page` wrote as Arrow."""
    with pa.ipc.open_stream(data) as reader:
        rows = reader.read_all()
    metadata = dict(rows.schema.metadata or {})
    facts = json.loads(metadata.pop(CHANGES_KEY))
    table = rows.replace_schema_metadata(metadata or None)
    return Changes(
        table,
        facts["query"],
        facts["cursor"],
        facts["newest"],
        facts["as_of_us"],
        decode.losses(facts["loss"]),
        facts["redefined"],
    )
