"""`/v1/streams` and `/v1/relations`: what is declared, and rows pushed into a stream."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from millpond.api import encode
from millpond.api.contract import DocumentedRoute
from millpond.api.document import (
    BODY,
    WRITES,
    StreamOptions,
    describe_answer,
    describe_errors,
)
from millpond.api.row_bodies import describe_rows, read_rows
from millpond.api.shapes import answer_shapes, stream_shapes
from millpond.api.surface import ServedPond
from millpond.confined.room import LARGE
from millpond.service import json_values


def router(pond: ServedPond, max_body: int) -> APIRouter:
    """Make the calls on streams and relations; no body unpacks to more than `max_body` bytes."""
    routes = APIRouter(route_class=DocumentedRoute, tags=["streams"])
    one_at_a_time = CapacityLimiter(1)  # as values of Python, rows take several times their bytes

    @routes.get(
        "/v1/streams", response_class=Response, responses=describe_answer(stream_shapes.Streams)
    )
    def list_streams() -> Response:
        """Lists the streams: their declarations, and the state and figures of each."""
        figures = {entry["name"]: stream_figures(entry) for entry in pond.status()["streams"]}
        streams = [
            {**encode.definition_json(stream), **figures.get(stream.name, {})}
            for stream in pond.streams()
        ]
        return Response(json_values.dumps({"streams": streams}), media_type=encode.JSON)

    @routes.get(
        "/v1/relations", response_class=Response, responses=describe_answer(stream_shapes.Relations)
    )
    def list_relations() -> Response:
        """Lists the relations."""
        relations = [encode.definition_json(relation) for relation in pond.relations()]
        return Response(json_values.dumps({"relations": relations}), media_type=encode.JSON)

    @routes.post(
        "/v1/catch-up", response_class=Response, responses=describe_answer(stream_shapes.Epoch)
    )
    def catch_up(
        timeout: Annotated[
            float, Query(gt=0, le=600, description="How long to wait at most, in seconds.")
        ] = 30.0,
    ) -> Response:
        """Waits until all acknowledged rows, and all rows sources have now, are visible."""
        pond.catch_up(timeout)
        return Response(
            json_values.dumps({"epoch": pond.status()["epoch"]}), media_type=encode.JSON
        )

    @routes.post(
        "/v1/streams/{stream}/tuples",
        response_class=Response,
        openapi_extra=describe_rows("Idempotency-Key"),
        responses=describe_answer(answer_shapes.Receipt)
        | describe_errors(404, *BODY, *WRITES, 429),
    )
    async def ingest(stream: str, request: Request) -> Response:
        """Pushes rows into a stream: NDJSON, an array of JSON, CSV with a header, or Arrow IPC.

        The response comes when the rows are durable. If too much waits already, it is 429 with
        `Retry-After`, and nothing of the rows was kept. If the same rows are sent again with the
        same `Idempotency-Key`, they are not added again; other rows with that key are refused.
        """
        data, format = await read_rows(request, max_body)
        key = request.headers.get("idempotency-key")
        push = partial(pond.ingest_text, stream, data, format, key)
        limiter = one_at_a_time if len(data) >= LARGE else None
        receipt = await to_thread.run_sync(push, limiter=limiter)
        return Response(json_values.dumps(encode.receipt_json(receipt)), media_type=encode.JSON)

    @routes.patch(
        "/v1/streams/{stream}",
        response_class=Response,
        responses=describe_answer(stream_shapes.Named) | describe_errors(404, *BODY, *WRITES),
    )
    def alter(stream: str, options: StreamOptions) -> Response:
        """Sets clauses and options of a stream, `{"delay": "5 seconds", "retain": "2 days"}`; or
        starts a derived stream again that has stopped, `{"active": true}`.
        """
        pond.alter_stream(stream, **options)
        return Response(json_values.dumps({"name": stream}), media_type=encode.JSON)

    @routes.post(
        "/v1/streams/{stream}/reset-clock",
        response_class=Response,
        responses=describe_answer(stream_shapes.ClockReset) | describe_errors(404, *WRITES),
    )
    def reset_clock(
        stream: str,
        to: Annotated[str, Query(description="The instant after which elements become rejects.")],
    ) -> Response:
        """Sets the clock of a stream back: its elements after an instant become rejects, and what
        they brought is taken back from all changes.
        """
        done = pond.reset_clock(stream, to)
        told = {"rejected": done.rejected, "taken_back": list(done.taken_back)}
        return Response(json_values.dumps(told), media_type=encode.JSON)

    return routes


def stream_figures(entry: dict[str, Any]) -> dict[str, Any]:
    """Turn one stream's entry of `pond.status()` into JSON values."""
    return json_values.with_instant(json_values.to_json_value(entry), "heartbeat")
