"""Decodes in the client what `millpond.api.encode` wrote in the server."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa

from millpond.api.encode import ANSWER_KEY
from millpond.catalog.objects import (
    REDUCED,
    QueryDef,
    RelationDef,
    SourceDef,
    StreamDef,
    Template,
)
from millpond.errors import CODES, MillpondError, Span
from millpond.model.far_times import parse_ticks
from millpond.model.loss import Bounds, Cause, Loss
from millpond.model.schema import (
    ListOf,
    Schema,
    StructOf,
    arrow_type,
    canonical_type,
    parts_of,
)
from millpond.model.time import BEGINNING, END, parse_instant
from millpond.service.results import Answer, Changes, IngestReceipt, Part, StatementResult


def instant(text: str | None) -> int | None:
    """The instant of `json_values.instant_text`.

    >>> instant("1970-01-01T00:00:01.500000"), instant("infinity") == END, instant(None)
    (1500000, True, None)
    """
    match text:
        case None:
            return None
        case "infinity":
            return END
        case "-infinity":
            return BEGINNING
    return parse_instant(text)


def table(body: dict[str, Any]) -> pa.Table:
    """The table of a JSON object's `columns`, `types` and `rows`."""
    names, types, rows = body["columns"], body["types"], body["rows"]
    columns = [[row[i] for row in rows] for i in range(len(names))]
    return pa.table(
        [_column(values, kind) for values, kind in zip(columns, types, strict=True)], names=names
    )


def answer(body: dict[str, Any]) -> Answer:
    """The answer of `encode.answer_json`."""
    return Answer(
        table=table(body),
        as_of=instant(body["as_of"]) or 0,
        final=body["final"],
        loss=losses(body["loss"]),
        bounds=Bounds.from_json(body["bounds"]),
        query=body["query"],
        epoch=body["epoch"],
        part=part(body["part"]),
        estimated=tuple(body["estimated"]),
    )


def part(body: dict[str, Any] | None) -> Part | None:
    """The part of an answer that was given."""
    return None if body is None else Part(**body)


def arrow_answer(data: bytes) -> Answer:
    """The answer of `encode.answer_arrow`."""
    with pa.ipc.open_stream(data) as reader:
        rows = reader.read_all()
    metadata = dict(rows.schema.metadata or {})
    facts = json.loads(metadata.pop(ANSWER_KEY))
    return Answer(
        table=rows.replace_schema_metadata(metadata or None),
        as_of=facts["as_of_us"],
        final=facts["final"],
        loss=losses(facts["loss"]),
        bounds=Bounds.from_json(facts["bounds"]),
        query=facts["query"],
        epoch=facts["epoch"],
        part=part(facts["part"]),
        estimated=tuple(facts["estimated"]),
    )


def changes(body: dict[str, Any]) -> Changes:
    """The changes of `encode.changes_json`."""
    rows = table(body)
    stamps = [instant(text) for text in rows["timestamp"].to_pylist()]
    place = rows.column_names.index("timestamp")
    return Changes(
        rows.set_column(place, "timestamp", pa.array(stamps, pa.int64())),
        body["query"],
        body["cursor"],
        body["newest"],
        instant(body["as_of"]) or 0,
        losses(body["loss"]),
        body["redefined"],
    )


def losses(items: list[dict[str, Any]]) -> tuple[Loss, ...]:
    """The losses of `json_values.loss_json`."""
    return tuple(
        Loss(
            item["stream"],
            Cause(item["cause"]),
            instant(item["since"]),
            instant(item["upto"]) or 0,
            item["elements"],
            item["missing"],
            item["kept"],
            item.get("wrong"),
        )
        for item in items
    )


def result(body: dict[str, Any]) -> StatementResult:
    """One of the statements' results of `encode.results_json`."""
    kind, name = body["statement"], body["query"]
    if "rows" not in body:
        return StatementResult(kind, name, text=body.get("text"), message=body.get("message"))
    if "newest" in body:
        return StatementResult(kind, name, changes=changes(body))
    if body["as_of"] is None:
        return StatementResult(kind, name, table=table(body), facts=body.get("facts"))
    return StatementResult(kind, name, answer=answer(body))


def receipt(body: dict[str, Any]) -> IngestReceipt:
    """The receipt of `encode.receipt_json`."""
    return IngestReceipt(
        body["accepted"], body["rejected"], body["rejects"], body["duplicate"], body["shed"]
    )


def stream(body: dict[str, Any]) -> StreamDef:
    """The stream of `encode.definition_json`; a source's options stay on the server."""
    return StreamDef(
        id=body["id"],
        name=body["name"],
        schema=Schema.from_json(body["columns"]),
        timestamp_by=body["timestamp_by"],
        delay=body["delay_us"],
        idle_after=body["idle_after_us"],
        ahead=body["ahead_us"],
        retain=body["retain_us"],
        retain_rows=body["retain_rows"],
        overload=body["overload"],
        source=_source(body),
        text=body["cql"],
    )


def relation(body: dict[str, Any]) -> RelationDef:
    """The relation of `encode.definition_json`."""
    return RelationDef(
        id=body["id"],
        name=body["name"],
        schema=Schema.from_json(body["columns"]),
        primary_key=tuple(body["primary_key"]),
        non_retroactive=body["non_retroactive"],
        source=_source(body),
        text=body["cql"],
    )


def query(body: dict[str, Any]) -> QueryDef:
    """Read a query as `encode.definition_json` writes it."""
    return QueryDef(
        id=body["id"],
        name=body["name"],
        text=body["cql"],
        options=body["options"] | ({REDUCED: body["reduced"]} if body["reduced"] else {}),
        registered_epoch=body["registered_epoch"],
        registered_at=instant(body["registered_at"]) or 0,
        suspended=body["suspended"],
        changes_after=instant(body["changes_after"]) or 0,
        template=body["template"] and Template(body["template"], body["parameters"]),
    )


def error(status: int, data: bytes, text: str | None = None) -> MillpondError:
    """The error of a response that is one.

    Args:
        status: The response's status.
        data: Its body: `MillpondError.to_json`, unless a proxy answered instead of the server.
        text: The statement that was sent, if any, so that the place can be shown in it.
    """
    try:
        body = json.loads(data)["error"]
        code, primary = body["code"], body["message"]
    except (ValueError, KeyError, TypeError):
        return MillpondError(
            "SERVE-705",
            f"the server answered {status} with something that is not Millpond's",
            hint="Check that the URL is that of a Millpond server and not of a proxy before it.",
        )
    known = MillpondError(
        code if code in CODES else "INTERNAL-901",
        primary,
        detail=body.get("detail"),
        hint=body.get("hint"),
    )
    place = body.get("place")
    if place and text is not None and place["end"] <= len(text):
        known.at(text, Span(place["start"], place["end"]))
    return known


def _source(body: dict[str, Any]) -> SourceDef | None:
    return SourceDef(body["source"], {}) if body["source"] else None


def _column(values: list[Any], kind: str) -> pa.Array:
    """A column of JSON values as Arrow; `kind` is `type_name`'s."""
    if kind == "HUGEINT":
        whole = [None if v is None else Decimal(v) for v in values]
        return pa.array(whole, pa.decimal128(38, 0))
    canonical = canonical_type(kind)
    if canonical is None:
        # A type that no column can be declared with: maps, intervals, binary.
        if kind in ("binary", "large_binary"):
            return pa.array([None if v is None else base64.b64decode(v) for v in values])
        return pa.array(values)
    arrow = arrow_type(canonical)
    absent = pa.array([v is None for v in values], pa.bool_())
    match parts_of(canonical):
        case ListOf(element):
            inner = _column([item for value in values for item in value or ()], element)
            offsets = pa.array(accumulate((len(v or ()) for v in values), initial=0), pa.int32())
            return pa.ListArray.from_arrays(offsets, inner, type=arrow, mask=absent)
        case StructOf(fields):
            columns = [_column([(v or {}).get(n) for v in values], part) for n, part in fields]
            return pa.StructArray.from_arrays(columns, fields=list(arrow), mask=absent)
    if canonical in ("TIMESTAMP", "TIMESTAMPTZ"):
        return _instants(values, datetime.fromisoformat, "us", arrow)
    if canonical == "DATE":
        return _instants(values, date.fromisoformat, "D", arrow)
    if canonical.startswith("DECIMAL"):
        values = [None if v is None else Decimal(v) for v in values]
    elif canonical == "BLOB":
        values = [None if v is None else base64.b64decode(v) for v in values]
    elif canonical in ("FLOAT", "DOUBLE"):
        values = [float(v) if isinstance(v, str) else v for v in values]
    return pa.array(values, arrow)


def _instants(
    texts: list[str | None], parse: Callable[[str], Any], unit: str, arrow: pa.DataType
) -> pa.Array:
    """Decode instants or days; those beyond Python's datetime are decoded as ticks."""
    try:
        return pa.array([None if text is None else parse(text) for text in texts], arrow)
    except ValueError:
        bare = [None if text is None else text.removesuffix("+00:00") for text in texts]
        ticks = [None if text is None else parse_ticks(text, unit) for text in bare]
        return pa.array(ticks, pa.int64() if unit == "us" else pa.int32()).cast(arrow)
