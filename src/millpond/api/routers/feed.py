"""`/v1/changes`: the changes of many queries through one connection."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from millpond.api import encode, feed_forms, shapes
from millpond.api.change_forms import EVENTS
from millpond.api.contract import DocumentedRoute
from millpond.api.document import BINDS, WRITES, Absent, describe_answer, describe_errors
from millpond.api.negotiate import choose_form
from millpond.api.request_work import lift_limit
from millpond.api.routers.changes import UNBUFFERED
from millpond.api.routers.queries import SelectionParameters
from millpond.api.subscribers import Subscribers
from millpond.api.surface import ServedPond
from millpond.errors import MillpondError
from millpond.service.changes.feed import FEED_PAGE


def router(pond: ServedPond, followers: Subscribers) -> APIRouter:
    """Make the call that reads and follows the changes of many queries."""
    routes = APIRouter(route_class=DocumentedRoute, tags=["queries"])

    @routes.get(
        "/v1/changes",
        response_class=Response,
        responses=describe_answer(shapes.FeedPage, encode.NDJSON, EVENTS, encode.ARROW)
        | describe_errors(404, 406, *BINDS, *WRITES),
    )
    async def feed(
        selection: Annotated[SelectionParameters, Depends()],
        after: Annotated[
            str | Absent, Query(description="A feed's cursor: only what comes after it.")
        ] = None,
        follow: Annotated[
            bool | Absent,
            Query(description="Keep the response open and send new changes as they come."),
        ] = None,
        snapshot: Annotated[
            bool,
            Query(description="Begin with the queries' answers instead of their past changes."),
        ] = False,
        limit: Annotated[
            int, Query(ge=1, le=100_000, description="The most changes of a page.")
        ] = FEED_PAGE,
        accept: Annotated[str | Absent, Header()] = None,
        last_event_id: Annotated[str | Absent, Header()] = None,
    ) -> Response:
        """Returns the changes of all selected queries, as one page or as an endless stream.

        Every change names its query and has a cursor that stands for all queries of the feed.
        A `mark` says up to which instant the changes are complete. Queries that come, end, change
        or stop are events, and the feed goes on.
        """
        form = choose_form(accept, [encode.JSON, encode.NDJSON, EVENTS, encode.ARROW])
        cursor = last_event_id or after
        if snapshot and after is not None:
            raise MillpondError(
                "SERVE-703",
                "a snapshot does not begin after a cursor",
                hint="Give after= or snapshot=true.",
            )
        begin = snapshot and last_event_id is None
        chosen = selection.read_some()
        # An error of the selection or the cursor is answered, and not sent as an event.
        opened = await run_in_threadpool(pond.open_feed, chosen, cursor, begin)
        if not (form == EVENTS if follow is None else follow):
            events = await run_in_threadpool(opened.read, limit)
            body = feed_forms.encode_page(events, opened.cursor, form)
            return Response(body, media_type=form)
        if form == encode.ARROW:
            raise MillpondError(
                "SERVE-709",
                "a feed is not followed as Arrow",
                hint=f"Accept {encode.NDJSON} or {EVENTS}; or ask for pages.",
            )
        form = encode.NDJSON if form == encode.JSON else form
        lift_limit()
        body_parts = followers.follow_feed(opened, pond.listen, form)
        return StreamingResponse(body_parts, headers=UNBUFFERED, media_type=form)

    return routes
