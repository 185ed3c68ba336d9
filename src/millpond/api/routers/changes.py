"""`/v1/queries/{query}/changes` and `/v1/streams/{stream}/changes`: read and follow changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from millpond.api import change_forms, encode
from millpond.api.change_forms import EVENTS
from millpond.api.contract import DocumentedRoute
from millpond.api.document import BINDS, WRITES, Absent, describe_answer, describe_errors
from millpond.api.negotiate import ENCODING, PROMISE_HEADERS, choose_form
from millpond.api.request_work import lift_limit
from millpond.api.routers.queries import find_query
from millpond.api.shapes import answer_shapes
from millpond.api.subscribers import Subscribers
from millpond.api.surface import Followable, ServedPond
from millpond.errors import MillpondError
from millpond.service.changes.change_log import PAGE
from millpond.service.results import Changes

#: What may stand between a server and a browser must not hold events back.
UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


_ANSWERS = describe_answer(
    answer_shapes.ChangesPage, encode.NDJSON, EVENTS, encode.ARROW, headers=PROMISE_HEADERS
) | describe_errors(404, 406, *BINDS, *WRITES)


@dataclass(frozen=True)
class ChangesRequest:
    """Which changes a client wants, and in which form."""

    after: Annotated[
        str | Absent,
        Query(description="A cursor: only changes after it. `oldest`: all that are kept."),
    ] = None
    limit: Annotated[int | Absent, Query(ge=0, description="The most changes to return.")] = None
    follow: Annotated[
        bool | Absent,
        Query(description="Keep the response open and send new changes as they come."),
    ] = None
    wait: Annotated[
        float,
        Query(
            ge=0,
            le=60,
            description="How long to wait for a change while the page is empty, in seconds.",
        ),
    ] = 0
    accept: Annotated[str | Absent, Header()] = None
    last_event_id: Annotated[str | Absent, Header()] = None


def router(pond: ServedPond, followers: Subscribers) -> APIRouter:
    """Make the calls that read and follow changes."""
    routes = APIRouter(route_class=DocumentedRoute)

    @routes.get(
        "/v1/queries/{query}/changes",
        response_class=Response,
        responses=_ANSWERS,
        tags=["queries"],
    )
    async def changes(query: str, wanted: Annotated[ChangesRequest, Depends()]) -> Response:
        """Returns the changes of a query after a cursor, as one page or as an endless stream.

        A page is JSON, NDJSON or Arrow. Send its `cursor` as `after` to get the next page. With
        `follow=true` the response does not end: it is NDJSON, or server-sent events for a
        browser's EventSource. A change is returned only when it is final; it is never revised.
        """
        handle = await run_in_threadpool(find_query, pond, query)
        return await _read(followers, handle, wanted)

    @routes.get(
        "/v1/streams/{stream}/changes",
        response_class=Response,
        responses=_ANSWERS,
        tags=["streams"],
    )
    async def elements(stream: str, wanted: Annotated[ChangesRequest, Depends()]) -> Response:
        """Returns the elements of a derived stream after a cursor, in the same forms as changes."""
        handle = await run_in_threadpool(pond.derived, stream)
        return await _read(followers, handle, wanted)

    return routes


async def _read(followers: Subscribers, handle: Followable, wanted: ChangesRequest) -> Response:
    """Make a page of changes, or a response that stays open."""
    form = choose_form(wanted.accept, [encode.JSON, encode.NDJSON, EVENTS, encode.ARROW])
    # A browser that lost its connection asks the same again and says what it had last.
    cursor = wanted.last_event_id or wanted.after
    if not (form == EVENTS if wanted.follow is None else wanted.follow):
        most = PAGE if wanted.limit is None else wanted.limit
        if wanted.wait:
            lift_limit()
            page = await followers.next_page(handle, cursor, most, wanted.wait)
        else:
            page = await run_in_threadpool(handle.fetch, cursor, most)
        return await run_in_threadpool(_page_response, page, form)
    if form == encode.ARROW:
        raise MillpondError(
            "SERVE-709",
            "changes are not followed as Arrow",
            hint=f"Accept {encode.NDJSON} or {EVENTS}; or ask for pages, with wait=30.",
        )
    form = encode.NDJSON if form == encode.JSON else form
    # What is wrong with the cursor is to be an error and not a stream that ends with one.
    await run_in_threadpool(handle.page, cursor, 0)
    lift_limit()
    body = followers.follow(handle, cursor, wanted.limit, form)
    return StreamingResponse(body, headers=UNBUFFERED, media_type=form)


def _page_response(page: Changes, form: str) -> Response:
    with ENCODING.hold(page.table.nbytes):
        body = change_forms.encode_page(page, form)
    return Response(body, headers=encode.promise_headers(page), media_type=form)
