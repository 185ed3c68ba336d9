"""The HTTP application of one pond: its routers, its limits, its errors, its console."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

import millpond
from millpond.api import problems
from millpond.api.limits import BodyLimit, PlainBodies, TokenGate
from millpond.api.routers import changes, observation, queries, statements, streams
from millpond.api.subscribers import Subscribers
from millpond.api.surface import ServedPond
from millpond.console import page
from millpond.service.definitions.access_policy import CLOSED, AccessPolicy

#: The largest body taken unless said otherwise, in bytes.
MAX_BODY = 64 * 1024 * 1024


#: `MillpondError.to_json`, as OpenAPI has it.
_PROBLEM: dict[str, Any] = {
    "description": "an error",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["error"],
                "properties": {
                    "error": {
                        "type": "object",
                        "required": ["code", "message", "detail", "hint", "place"],
                        "properties": {
                            "code": {"type": "string"},
                            "message": {"type": "string"},
                            "detail": {"type": ["string", "null"]},
                            "hint": {"type": ["string", "null"]},
                            "place": {"type": ["object", "null"]},
                        },
                    }
                },
            }
        }
    },
}


def create_app(
    pond: ServedPond,
    *,
    token: str | None = None,
    max_body: int = MAX_BODY,
    policy: AccessPolicy = CLOSED,
) -> FastAPI:
    """The application that serves a pond.

    Args:
        pond: The pond; it stays the caller's to close.
        token: If set, what every call but liveness must bear.
        max_body: The largest body a request may have, in bytes, unpacked or not.
        policy: What the statements of clients may have the pond read; nothing by default.
    """
    app = FastAPI(
        title="Millpond",
        version=millpond.__version__,
        description="Standing queries over streams: register, invoke, unregister.",
        # The interactive pages load scripts from elsewhere; /openapi.json is all there is here.
        docs_url=None,
        redoc_url=None,
        responses={"default": _PROBLEM, 422: _PROBLEM},
    )
    problems.install(app)
    app.include_router(statements.router(pond, policy))
    app.include_router(queries.router(pond))
    app.state.followers = Subscribers()
    app.include_router(changes.router(pond, app.state.followers))
    app.include_router(streams.router(pond, max_body))
    app.include_router(observation.router(pond))
    page.mount(app)
    app.add_middleware(PlainBodies)
    app.add_middleware(BodyLimit, limit=max_body)
    if token:
        app.add_middleware(TokenGate, token=token)
    return app
