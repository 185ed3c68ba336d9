"""Batches that other systems write into a pushed stream, exactly once: parts, then the batch."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from millpond.api import encode
from millpond.api.contract import DocumentedRoute
from millpond.api.document import BODY, WRITES, describe_answer, describe_errors
from millpond.api.row_bodies import describe_rows, read_rows
from millpond.api.shapes import answer_shapes
from millpond.api.surface import ServedPond
from millpond.service import json_values


class BatchBody(BaseModel):
    """A batch of a writer.

    `batch` is its number, one more than that of the writer's last batch; without it the writer
    writes once, and is remembered for a day. `parts` are in the order in which their rows arrive.
    """

    model_config = ConfigDict(extra="forbid")

    writer: str
    batch: Annotated[int, Field(ge=0, lt=10**18)] | None = None
    parts: list[str]


def router(pond: ServedPond, max_body: int) -> APIRouter:
    """Make the calls on batches; no body unpacks to more than `max_body` bytes."""
    routes = APIRouter(route_class=DocumentedRoute, tags=["streams"])
    one_at_a_time = CapacityLimiter(1)  # each is judged and written, however large it is

    @routes.put(
        "/v1/streams/{stream}/parts/{part}",
        response_class=Response,
        openapi_extra=describe_rows(),
        responses=describe_answer(answer_shapes.StagedRows) | describe_errors(404, *BODY, *WRITES),
    )
    async def stage(stream: str, part: str, request: Request) -> Response:
        """Keeps rows as a part of a batch that comes later: durable, and counting nothing yet.

        The part's name is the client's: a UUID, or other letters, digits, `-` and `_`. A part sent
        again under its name replaces the earlier one. A part without a batch goes after a day.
        """
        data, format = await read_rows(request, max_body)
        keep = partial(pond.stage_text, stream, part, data, format)
        rows = await to_thread.run_sync(keep)
        return Response(json_values.dumps({"rows": rows}), media_type=encode.JSON)

    @routes.delete(
        "/v1/streams/{stream}/parts/{part}",
        status_code=204,
        response_class=Response,
        responses=describe_errors(404, *WRITES),
    )
    def unstage(stream: str, part: str) -> Response:
        """Removes a part of a batch that does not come; one that is not there is passed over."""
        pond.unstage(stream, [part])
        return Response(status_code=204)

    @routes.post(
        "/v1/streams/{stream}/batches",
        response_class=Response,
        responses=describe_answer(answer_shapes.Receipt)
        | describe_errors(404, *BODY, *WRITES, 429),
    )
    async def ingest_batch(stream: str, batch: BatchBody) -> Response:
        """Pushes parts as a batch of a writer: all of their rows, or none, and exactly once.

        A batch that the stream has already is not added again, whatever its parts are, and the
        receipt says `duplicate`. If batches before it are missing, it is refused (DATA-504).
        """
        push = partial(pond.ingest_batch, stream, batch.writer, batch.batch, batch.parts)
        receipt = await to_thread.run_sync(push, limiter=one_at_a_time)
        return Response(json_values.dumps(encode.receipt_json(receipt)), media_type=encode.JSON)

    return routes
