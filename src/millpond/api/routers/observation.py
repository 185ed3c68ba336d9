"""Health, figures and metrics: what operators and the console watch."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

import millpond
from millpond.api import encode
from millpond.api.contract import DocumentedRoute
from millpond.api.document import (
    BODY,
    WRITES,
    Absent,
    EntitySettings,
    describe_answer,
    describe_errors,
)
from millpond.api.rights.audit import note_statement
from millpond.api.routers.streams import stream_figures
from millpond.api.shapes import status_shapes
from millpond.api.surface import ServedPond
from millpond.errors import CODES
from millpond.service import json_values
from millpond.service.observe.history import Span

#: What is answered while the pond is not ready is no error.
_NOT_READY = describe_answer(status_shapes.NotReady, status=503)
_MISSING = describe_errors(404)


def liveness(pond: ServedPond) -> APIRouter:
    """Make the calls that need no token."""
    routes = APIRouter(route_class=DocumentedRoute, tags=["observation"])

    @routes.get(
        "/healthz",
        response_class=Response,
        responses=describe_answer(status_shapes.Alive) | _NOT_READY,
    )
    async def liveness(ready: str | Absent = None) -> Response:
        """Returns 200 while the server is running; with `?ready`, the same as `/readyz`."""
        if ready is not None:
            return _readiness(pond)
        return Response(json_values.dumps({"status": "alive"}), media_type=encode.JSON)

    @routes.get(
        "/readyz",
        response_class=Response,
        responses=describe_answer(status_shapes.Ready) | _NOT_READY,
    )
    async def readiness() -> Response:
        """Returns 200 while the pond accepts rows and shows them; otherwise 503 with the reason."""
        return _readiness(pond)

    # Probes may ask with HEAD; the document has the answers with GET.
    routes.add_api_route("/healthz", liveness, methods=["HEAD"], include_in_schema=False)
    routes.add_api_route("/readyz", readiness, methods=["HEAD"], include_in_schema=False)
    return routes


def router(pond: ServedPond) -> APIRouter:
    """Make the calls that show the pond's state; one of them changes settings."""
    routes = APIRouter(route_class=DocumentedRoute, tags=["observation"])

    @routes.get("/metrics", response_class=Response, responses=describe_answer(None, "text/plain"))
    def metrics() -> Response:
        """Returns all metrics in the text format of Prometheus."""
        return Response(generate_latest(pond.metrics), media_type=CONTENT_TYPE_LATEST)

    @routes.get(
        "/v1/status", response_class=Response, responses=describe_answer(status_shapes.Status)
    )
    def status() -> Response:
        """Returns an overview of the pond: its epoch, its queries, its streams and its problems."""
        figures = pond.status()
        streams = [stream_figures(entry) for entry in figures["streams"]]
        rest = {
            key: json_values.to_json_value(value)
            for key, value in figures.items()
            if key != "streams"
        }
        body = {"version": millpond.__version__, "ready": pond.ready, **rest, "streams": streams}
        return Response(json_values.dumps(body), media_type=encode.JSON)

    @routes.get(
        "/v1/history", response_class=Response, responses=describe_answer(status_shapes.History)
    )
    def history(span: Span = "hour") -> Response:
        """Returns figures of the last hour or week: rows, memory, disk, processor, overload."""
        return Response(json_values.dumps(pond.history(span)), media_type=encode.JSON)

    @routes.get(
        "/v1/functions", response_class=Response, responses=describe_answer(status_shapes.Functions)
    )
    def functions() -> Response:
        """Lists the user-defined functions: signature, time limit, and the cost of their calls."""
        return Response(json_values.dumps({"functions": pond.functions()}), media_type=encode.JSON)

    @routes.get(
        "/v1/entities", response_class=Response, responses=describe_answer(status_shapes.Entities)
    )
    def entities() -> Response:
        """Lists the control tables: all operators, queues and synopses, with their figures."""
        every = [entity.to_json() for entity in pond.entities.every()]
        return Response(
            json_values.dumps({"entities": json_values.to_json_value(every)}),
            media_type=encode.JSON,
        )

    @routes.get(
        "/v1/entities/{entity}",
        response_class=Response,
        responses=describe_answer(status_shapes.Entity) | _MISSING,
    )
    def entity(entity: str) -> Response:
        """Returns one operator, queue or synopsis by its id."""
        found = pond.entities.one(entity).to_json()
        return Response(json_values.dumps(json_values.to_json_value(found)), media_type=encode.JSON)

    @routes.patch(
        "/v1/entities/{entity}",
        response_class=Response,
        responses=describe_answer(status_shapes.Entity)
        | _MISSING
        | describe_errors(*BODY, *WRITES),
    )
    def set_entity(entity: str, settings: EntitySettings) -> Response:
        """Changes settings of an entity: `{"routing": "fixed"}`, `{"max_rows": 100}`, …"""
        note_statement(f"SET {json_values.dumps(settings).decode()}")
        found = pond.entities.set(entity, settings).to_json()
        return Response(json_values.dumps(json_values.to_json_value(found)), media_type=encode.JSON)

    return routes


def _readiness(pond: ServedPond) -> Response:
    trouble = pond.trouble
    if trouble is None:
        return Response(json_values.dumps({"status": "ready"}), media_type=encode.JSON)
    # Without a token anybody may ask: what the code stands for, and no path or name.
    reason = f"{trouble.code}: {CODES[trouble.code]}"
    body = json_values.dumps({"status": "not ready", "reason": reason})
    return Response(body, 503, media_type=encode.JSON)
