"""The HTTP application of one pond: its routers, its limits, its errors, its console."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI

import millpond
from millpond.api import problems
from millpond.api.access import Access, HostGate, SiteGate, allow_origins
from millpond.api.contract import check_documented
from millpond.api.limits import BodyLimit, TokenGate
from millpond.api.routers import changes, observation, queries, statements, streams
from millpond.api.subscribers import Subscribers
from millpond.api.surface import ServedPond
from millpond.console import page

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
    pond: ServedPond, *, access: Access | None = None, max_body: int = MAX_BODY
) -> FastAPI:
    """The application that serves a pond.

    Args:
        pond: The pond; it stays the caller's to close.
        access: Who may call it; unless given, whoever reaches it by a loopback name or address.
        max_body: The largest body a request may have, in bytes, unpacked or not.
    """
    access = access or Access()
    app = FastAPI(
        title="Millpond",
        version=millpond.__version__,
        description="Standing queries over streams: register, invoke, unregister.",
        # The interactive pages load scripts from elsewhere; /openapi.json is all there is here.
        docs_url=None,
        redoc_url=None,
        responses={"default": _PROBLEM, 422: _PROBLEM},
        dependencies=[Depends(check_documented)],
    )
    problems.install(app)
    app.include_router(statements.router(pond))
    app.include_router(queries.router(pond))
    app.state.followers = Subscribers()
    app.include_router(changes.router(pond, app.state.followers))
    app.include_router(streams.router(pond, max_body))
    app.include_router(observation.router(pond))
    page.mount(app)
    # The last one added is asked first.
    app.add_middleware(BodyLimit, limit=max_body)
    if access.token:
        app.add_middleware(TokenGate, token=access.token)
    if access.origins:
        app.add_middleware(allow_origins, origins=access.origins)
    app.add_middleware(SiteGate, origins=access.origins)
    app.add_middleware(HostGate, hosts=access.hosts)
    return app
