"""Changes on the wire: pages as JSON, NDJSON and Arrow, and as server-sent events.

A change in NDJSON and in an event is one object, `{"cursor", "timestamp", "change", "row",
"exact"}` and, where `exact` is false, `loss`. Its row has the query's columns by name; `exact` and
`loss` are those of the changes it was read with. The id of an event is its cursor, so a browser
that lost its connection sends the last cursor by itself (`Last-Event-ID`). Before the first change
of a query's new definition stands `{"redefined", "columns"}`, or an event `redefined`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any

import orjson
import pyarrow as pa

from millpond.api import decode, encode
from millpond.api.json_pieces import cut_into_pieces, is_large, write_objects
from millpond.errors import MillpondError
from millpond.service import json_values
from millpond.service.results import Changes

#: The columns of changes before those of their rows: number, instant and sign.
_FACTS = 3

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
        return encode.changes_json(changes)
    return b"".join(encode_piece(changes, form))


def encode_piece(changes: Changes, form: str) -> list[bytes]:
    """Encode changes one by one: as lines, or as events."""
    objects = change_objects(changes)
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


def change_objects(changes: Changes) -> Iterator[dict[str, Any]]:
    """The changes as JSON values, one object each; the row of a wide one is encoded already."""
    for part in cut_into_pieces(changes.table):
        piece = replace(changes, table=part)
        if is_large(part):
            facts, row = range(_FACTS), range(_FACTS, part.num_columns)
            (body,) = json_values.change_objects(replace(piece, table=part.select(facts)))
            encoded = BytesIO()
            write_objects(part.select(row), encoded.write)
            yield {**body, "row": orjson.Fragment(encoded.getvalue()[:-1])}
        else:
            yield from json_values.change_objects(piece)


def _describe_redefined(changes: Changes) -> dict[str, Any]:
    """What stands before the first change of a query's new definition."""
    columns = [f for f in changes.table.schema if f.name in changes.columns]
    return {
        "redefined": changes.redefined,
        "columns": [{"name": f.name, "type": json_values.type_name(f.type)} for f in columns],
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
