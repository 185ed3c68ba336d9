"""The tables of `pond.db`, and how definitions are written into them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from sqlite3 import Connection
from typing import Any

import orjson
import xxhash

from millpond.catalog.objects import (
    Definition,
    DefinitionMark,
    Derived,
    FileHistory,
    FunctionDef,
    QueryDef,
    RelationDef,
    SourceDef,
    StreamDef,
    SummaryDef,
    SummaryFile,
    Template,
)
from millpond.catalog.sink_def import SinkDef
from millpond.model.constraints import Constraint
from millpond.model.schema import Schema

#: The kind of the row of the table `definition` that has the pond's settings.
SETTINGS = "settings"

#: Raised when the tables change in a way an older Millpond cannot read.
SCHEMA_VERSION = 2

DDL = """
CREATE TABLE fold (               -- one row: the last record of the journal that is in here
  incarnation TEXT NOT NULL, number INTEGER NOT NULL, proof TEXT NOT NULL
);
CREATE TABLE counter (            -- numbers never used again, across drops and restarts
  name TEXT PRIMARY KEY, next INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE epoch (              -- the last epochs, for people; the greatest is the store's
  epoch INTEGER PRIMARY KEY, kind TEXT NOT NULL, committed_at INTEGER NOT NULL
);
CREATE TABLE batch (              -- the greatest batch committed of each source
  source TEXT PRIMARY KEY, batch_id INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE definition (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL
);
CREATE TABLE clock (
  stream_id INTEGER PRIMARY KEY, high INTEGER, heartbeat INTEGER NOT NULL, arrived_at INTEGER,
  next_seq INTEGER NOT NULL, rejected INTEGER NOT NULL, ended INTEGER NOT NULL,
  kept_from INTEGER NOT NULL, relations_epoch INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE segment (
  id INTEGER PRIMARY KEY, stream_id INTEGER NOT NULL, kind TEXT NOT NULL, epoch INTEGER NOT NULL,
  level INTEGER NOT NULL, path TEXT NOT NULL, rows INTEGER NOT NULL, min_ts INTEGER NOT NULL,
  max_ts INTEGER NOT NULL, seq_runs TEXT NOT NULL, checksum TEXT NOT NULL, bytes INTEGER NOT NULL
);
CREATE TABLE matches (
  id INTEGER PRIMARY KEY, segment_id INTEGER NOT NULL, low INTEGER NOT NULL, upto INTEGER NOT NULL,
  path TEXT NOT NULL, checksum TEXT NOT NULL, bytes INTEGER NOT NULL
);
CREATE TABLE slot (
  stream_id INTEGER NOT NULL, slot INTEGER NOT NULL, key BLOB NOT NULL, factors BLOB NOT NULL,
  PRIMARY KEY (stream_id, slot)
) WITHOUT ROWID;
CREATE TABLE slot_floor (         -- where a stream's unused slot numbers begin
  stream_id INTEGER PRIMARY KEY, next_slot INTEGER NOT NULL
);
CREATE TABLE leaf (
  query_id INTEGER NOT NULL, leaf INTEGER NOT NULL, stream_id INTEGER NOT NULL,
  slot INTEGER, PRIMARY KEY (query_id, leaf)
) WITHOUT ROWID;
CREATE TABLE relation_delta (
  path TEXT PRIMARY KEY, relation_id INTEGER NOT NULL, epoch INTEGER NOT NULL,
  checksum TEXT NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE join_core (          -- what joins share: a cache, like matches
  id INTEGER PRIMARY KEY, key TEXT NOT NULL, plan BLOB NOT NULL, body TEXT NOT NULL
);
CREATE TABLE join_use (
  query_id INTEGER PRIMARY KEY, core_id INTEGER NOT NULL, leaves TEXT NOT NULL,
  spans TEXT NOT NULL, number INTEGER NOT NULL
);
CREATE TABLE pairs (
  id INTEGER PRIMARY KEY, core_id INTEGER NOT NULL, low INTEGER NOT NULL, upto INTEGER NOT NULL,
  level INTEGER NOT NULL, path TEXT NOT NULL, pairs INTEGER NOT NULL, min_oldest INTEGER NOT NULL,
  max_oldest INTEGER NOT NULL, checksum TEXT NOT NULL, bytes INTEGER NOT NULL
);
CREATE TABLE arrangement (
  segment_id INTEGER NOT NULL, key TEXT NOT NULL, shard INTEGER NOT NULL, shards INTEGER NOT NULL,
  path TEXT PRIMARY KEY, rows INTEGER NOT NULL, checksum TEXT NOT NULL, bytes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE inbox (              -- a row is an acknowledgement
  number INTEGER PRIMARY KEY, stream_id INTEGER NOT NULL, rows INTEGER NOT NULL, high INTEGER,
  heartbeat INTEGER NOT NULL, arrived_at INTEGER NOT NULL, idempotency_key TEXT, fingerprint TEXT,
  receipt TEXT NOT NULL, accepted_at INTEGER NOT NULL, bytes INTEGER NOT NULL,
  checksum TEXT NOT NULL, done INTEGER NOT NULL, collected INTEGER NOT NULL
);
CREATE INDEX inbox_key ON inbox (stream_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX inbox_open ON inbox (stream_id, number) WHERE done = 0;
CREATE INDEX inbox_uncollected ON inbox (number) WHERE done = 1 AND collected = 0;
CREATE INDEX inbox_remembered ON inbox (accepted_at) WHERE collected = 1;
"""


#: Tables of format 2 that its first stores do not have.
ADDED = """
CREATE TABLE IF NOT EXISTS partition ( -- how far each partition of a stream's source has come
  stream_id INTEGER NOT NULL, name TEXT NOT NULL, high INTEGER, arrived_at INTEGER NOT NULL,
  PRIMARY KEY (stream_id, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ancestor ( -- the cursors of before a restore that are good: up to `last`
  prefix TEXT PRIMARY KEY, last INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS past_query ( -- what a query was until the epoch that changed it
  number INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, query_id INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS past_query_epoch ON past_query (epoch)
"""


def add_tables(connection: Connection) -> None:
    """Create the tables that a store of this format may not have yet."""
    for statement in re.sub(r"--.*", "", ADDED).split(";"):
        connection.execute(statement)


def create_tables(connection: Connection, incarnation: str) -> None:
    """Create the tables of a new store, in an open transaction."""
    for statement in re.sub(r"--.*", "", DDL).split(";"):
        if statement.strip():
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("INSERT INTO fold VALUES (?, ?, ?)", fold_row(incarnation, 0))


def fold_row(incarnation: str, number: int) -> tuple[str, int, str]:
    """Return the row of the table `fold`; its last column is a checksum of the others."""
    return incarnation, number, xxhash.xxh3_64_hexdigest(f"{incarnation} {number}".encode())


def definition_row(
    definition: Definition | FunctionDef | SummaryDef | SinkDef,
) -> tuple[int, str, str]:
    """Write a definition as (id, kind, JSON)."""
    match definition:
        case FunctionDef():
            return definition.id, "function", _dump(definition.to_json())
        case SinkDef():
            return definition.id, "sink", _dump(definition.to_json())
        case SummaryDef():
            facts = asdict(definition)
            del facts["id"]
            return definition.id, "summary", _dump(facts)
        case StreamDef():
            body: dict[str, Any] = {
                "name": definition.name,
                "schema": [
                    {**column, **({"added": field.added} if field.added else {})}
                    for column, field in zip(
                        definition.schema.to_json(), definition.schema.fields, strict=True
                    )
                ],
                "timestamp_by": definition.timestamp_by,
                "delay": definition.delay,
                "idle_after": definition.idle_after,
                "ahead": definition.ahead,
                "retain": definition.retain,
                "retain_rows": definition.retain_rows,
                "source": _source_json(definition.source),
                "text": definition.text,
            }
            if definition.history is not None:
                body["history"] = asdict(definition.history)
            if definition.sheds:
                body["overload"] = definition.overload
            if definition.constraints:
                body["constraints"] = [c.to_json() for c in definition.constraints]
            if definition.resets:
                body |= {"resets": definition.resets, "taken_back": definition.taken_back}
            if definition.derived is not None:
                body["derived"] = _derived_json(definition.derived)
            return definition.id, "stream", _dump(body)
        case RelationDef():
            body = {
                "name": definition.name,
                "schema": definition.schema.to_json(),
                "primary_key": definition.primary_key,
                "non_retroactive": definition.non_retroactive,
                "source": _source_json(definition.source),
                "text": definition.text,
                "view": definition.view,
            }
            if definition.text_epoch:
                body["text_epoch"] = definition.text_epoch
            return definition.id, "relation", _dump(body)
        case QueryDef():
            body = {
                "name": definition.name,
                "text": definition.text,
                "options": definition.options,
                "registered_epoch": definition.registered_epoch,
                "registered_at": definition.registered_at,
                "suspended": definition.suspended,
                "changes_after": definition.changes_after,
            }
            if definition.template is not None:
                body["template"] = asdict(definition.template)
            if definition.replaced_epoch:
                body["replaced_epoch"] = definition.replaced_epoch
            # Most have texts and numbers alone, which are written faster.
            text = _dump(body) if definition.options else orjson.dumps(body).decode()
            return definition.id, "query", text


def settings_row(settings: Mapping[str, Any]) -> tuple[int, str, str]:
    """Write the pond's settings as a row of the definitions; no definition has the id 0."""
    return 0, SETTINGS, _dump(dict(settings))


def definition_of(
    id: int, kind: str, text: str, decode: Callable[[str], Any] = json.loads
) -> Definition | FunctionDef | SummaryDef | SinkDef:
    """Read the definition that `definition_row` wrote; `decode` parses JSON."""
    body = decode(text)
    if kind == "query":
        if "template" in body:
            body["template"] = Template(**body["template"])
        return QueryDef(id=id, **body)
    if kind == "function":
        return FunctionDef.from_json(id, body)
    if kind == "sink":
        return SinkDef.from_json(id, body)
    if kind == "summary":
        body["file"] = SummaryFile(**body["file"]) if body["file"] else None
        return SummaryDef(id=id, **body)
    body["schema"] = Schema.from_json(body["schema"])
    body["source"] = SourceDef(**body["source"]) if body["source"] else None
    if kind == "stream":
        body["derived"] = _read_derived(body["derived"]) if body.get("derived") else None
        if history := body.get("history"):
            body["history"] = FileHistory(**{**history, "source": SourceDef(**history["source"])})
        body["constraints"] = tuple(map(Constraint.from_json, body.get("constraints", ())))
        return StreamDef(id=id, **body)
    body["primary_key"] = tuple(body["primary_key"])
    return RelationDef(id=id, **body)


def _derived_json(derived: Derived) -> dict[str, Any]:
    """A derivation as JSON has it; what most do not have is left out."""
    facts = asdict(derived)
    seldom = ("marks", "known_by", "periods", "text_epoch")
    return {n: v for n, v in facts.items() if n not in seldom or v}


def _read_derived(body: dict[str, Any]) -> Derived:
    """Read what `_derived_json` wrote."""
    marks = tuple(DefinitionMark(**mark) for mark in body.get("marks", ()))
    known_by = tuple(body["known_by"]) if body.get("known_by") else None
    periods = tuple((after, reduction) for after, reduction in body.get("periods", ()))
    return Derived(**{**body, "marks": marks, "known_by": known_by, "periods": periods})


def _source_json(source: SourceDef | None) -> dict[str, Any] | None:
    return asdict(source) if source else None


_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
