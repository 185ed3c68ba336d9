"""The HTTP application of one pond: its routers, its limits, its errors, its console."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Security
from fastapi.security import APIKeyQuery, HTTPBearer

import millpond
from millpond.api import problems
from millpond.api.access import Access, HostGate, PathPrefix, SiteGate, allow_origins
from millpond.api.client_limits import ClientLimits
from millpond.api.document import COMMON, describe_errors
from millpond.api.limits import BodyLimit, BodyMemory
from millpond.api.request_log import RequestLog
from millpond.api.request_work import AnswerMemory, WorkForRequest
from millpond.api.rights.audit import AuditTrail, note_statement
from millpond.api.rights.caller import EVERYBODY, current_caller
from millpond.api.rights.gate import TokenGate
from millpond.api.rights.guarded_pond import GuardedPond
from millpond.api.rights.tickets import Tickets
from millpond.api.rights.token_file import TokenBook, TokenEntry, hash_token
from millpond.api.routers import (
    backups,
    batches,
    changes,
    feed,
    language,
    observation,
    plans,
    queries,
    statements,
    streams,
)
from millpond.api.subscribers import Subscribers
from millpond.api.surface import ServedPond
from millpond.console import page
from millpond.service.definitions.access_policy import CLOSED, AccessPolicy

#: The default for the largest body of a request, in bytes.
MAX_BODY = 64 * 1024 * 1024


def create_app(
    pond: ServedPond,
    *,
    access: Access | None = None,
    max_body: int = MAX_BODY,
    max_seconds: float | None = None,
    policy: AccessPolicy = CLOSED,
    prefix: str = "",
    limits: ClientLimits | None = None,
    access_log: bool = False,
) -> FastAPI:
    """Make the application that serves a pond.

    Args:
        pond: The pond; the caller closes it.
        access: Who may call it; by default, whoever reaches it by a loopback name or address.
        max_body: The largest body a request may have, in bytes, unpacked or not.
        max_seconds: How long a request may take; None for no limit but those of queries.
        policy: What the statements of clients may make the pond read; nothing by default.
        prefix: The path a reverse proxy has the server under, like "/pond".
        limits: What the server bears from its clients.
        access_log: Whether each request is a line of the log.
    """
    access = access or Access()
    limits = limits or ClientLimits.of()
    app = FastAPI(
        title="Millpond",
        version=millpond.__version__,
        description="Standing queries over streams: register, invoke, unregister.",
        # FastAPI's interactive pages load scripts from other sites; /docs is a page of the console.
        docs_url=None,
        redoc_url=None,
        responses=describe_errors(*COMMON),
        # A path is served as it is: a trailing slash is not redirected to another path.
        redirect_slashes=False,
        servers=[{"url": prefix}] if prefix else None,
        # FastAPI's own spans have query strings, in which a ticket may stand; `observe/spans.py`
        # makes what is told. A FastAPI without telemetry passes over this.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    problems.install(app)
    app.state.followers = Subscribers()
    tickets = Tickets()
    find_caller = current_caller if access.needs_token else lambda: EVERYBODY
    pond = GuardedPond(pond, find_caller, note_statement)
    # `TokenGate` checks tokens and tickets before; these only put them into the document.
    ticket = APIKeyQuery(
        name="ticket", scheme_name="Ticket", auto_error=False, description="Of POST /v1/tickets."
    )
    by_ticket = [Security(ticket)] if access.needs_token else []
    guarded = APIRouter()
    for router in (
        statements.router(pond, policy),
        queries.router(pond),
        plans.router(pond),
        changes.router(pond, app.state.followers),
        feed.router(pond, app.state.followers, tickets, prefix, by_ticket),
        streams.router(pond, max_body),
        batches.router(pond, max_body),
        language.router(pond),
        observation.router(pond),
        backups.router(pond, policy),
    ):
        guarded.include_router(router)
    app.include_router(observation.liveness(pond))
    if access.needs_token:
        bearer = HTTPBearer(auto_error=False, description="A token of the server.")
        errors = describe_errors(401, 429)
        app.include_router(guarded, dependencies=[Security(bearer)], responses=errors)
    else:
        app.include_router(guarded)
    page.mount(app)
    # The middleware added last runs first.
    bodies = BodyMemory(limits.body_memory, limits.patience)
    app.add_middleware(BodyLimit, limit=max_body, memory=bodies)
    if access.needs_token:
        app.add_middleware(TokenGate, book=_open_book(access), tickets=tickets)
    if access.origins:
        app.add_middleware(allow_origins, origins=access.origins)
    app.add_middleware(SiteGate, origins=access.origins)
    app.add_middleware(HostGate, hosts=access.hosts)
    app.add_middleware(AuditTrail)
    if prefix:
        app.add_middleware(PathPrefix, prefix=prefix)
    answers = AnswerMemory(limits.answer_memory)
    app.add_middleware(WorkForRequest, max_seconds=max_seconds, memory=answers)
    app.add_middleware(RequestLog, writes_lines=access_log)
    return app


def _open_book(access: Access) -> TokenBook:
    """The tokens a server knows."""
    single = TokenEntry(EVERYBODY, hash_token(access.token)) if access.token else None
    return TokenBook(access.tokens, single, access.jwt)
