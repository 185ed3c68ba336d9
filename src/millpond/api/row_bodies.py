"""Bodies with rows: what they may be, and how they are read."""

from __future__ import annotations

from typing import Any

from anyio import from_thread
from fastapi import Request
from starlette.concurrency import run_in_threadpool

from millpond.api.contract import media_type
from millpond.api.document import BYTES, TEXT
from millpond.api.limits import HOLD, gunzip
from millpond.errors import MillpondError
from millpond.service.ingest.given_rows import RowFormat

#: The media types rows may come in.
FORMATS: dict[str, RowFormat] = {
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/json": "json",
    "text/csv": "csv",
    "application/vnd.apache.arrow.stream": "arrow",
}

_ROW = {"type": "object", "additionalProperties": True}
#: The schemas of bodies that are no texts.
_SCHEMAS: dict[RowFormat, dict[str, Any]] = {
    "arrow": BYTES,
    "json": {"type": "array", "items": _ROW},
}


def describe_rows(*headers: str) -> dict[str, Any]:
    """Describe a body with rows, and headers besides, for the OpenAPI document."""
    return {
        "requestBody": {
            "required": True,
            "content": {
                media: {"schema": _SCHEMAS.get(form, TEXT)} for media, form in FORMATS.items()
            },
        },
        "parameters": [
            *({"name": name, "in": "header", "schema": TEXT} for name in headers),
            {"name": "Content-Encoding", "in": "header", "schema": {"enum": ["identity", "gzip"]}},
        ],
    }


async def read_rows(request: Request, max_body: int) -> tuple[bytes, RowFormat]:
    """Read a body with rows, unpacked to at most `max_body` bytes, and say what format it is in.

    Raises:
        MillpondError: SERVE-707, it is larger; SERVE-708, its encoding is none; SERVE-715, there is
            no room for what it unpacks to.
    """
    format = FORMATS[media_type(request)]
    data = await request.body()
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding == "gzip":
        hold = request.scope[HOLD]
        data = await run_in_threadpool(
            gunzip, data, max_body, lambda size: from_thread.run_sync(hold, size)
        )
    elif encoding != "identity":
        hint = "Send it as it is or with gzip."
        raise MillpondError("SERVE-708", f'no such encoding: "{encoding}"', hint=hint)
    return data, format
