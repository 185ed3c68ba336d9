"""`/v1/changes`: the changes of many queries through one connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, params
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from millpond.api import encode, feed_forms
from millpond.api.change_forms import EVENTS
from millpond.api.contract import DocumentedRoute
from millpond.api.document import BINDS, BODY, WRITES, Absent, describe_answer, describe_errors
from millpond.api.negotiate import ENCODING, choose_form
from millpond.api.request_work import lift_limit
from millpond.api.rights.caller import caller_or_everybody
from millpond.api.rights.tickets import (
    MOST_NAMES,
    TICKET_PATH,
    TICKET_SECONDS,
    FeedTicket,
    Tickets,
    unknown_ticket_error,
)
from millpond.api.routers.changes import UNBUFFERED
from millpond.api.routers.queries import SelectionParameters, require_condition
from millpond.api.shapes import answer_shapes, query_shapes
from millpond.api.subscribers import Subscribers
from millpond.api.surface import ServedPond
from millpond.errors import MillpondError
from millpond.service import json_values
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.changes.feeds.feed_pages import FEED_PAGE
from millpond.service.queries.query_selection import QuerySelection


class TicketBody(BaseModel):
    """The queries whose changes are followed by a ticket: every condition that is given holds."""

    model_config = ConfigDict(extra="forbid")

    queries: Annotated[list[str | int], Field(max_length=MOST_NAMES)] | None = None
    owner: str | None = None
    tag: str | None = None
    state: Literal["active", "inactive", "suspended"] | None = None
    containing: str = ""

    def read(self) -> QuerySelection:
        """The selection. Raises SERVE-703 if there is no condition."""
        names = None if self.queries is None else tuple(map(str, self.queries))
        return require_condition(
            QuerySelection(self.containing, self.owner, self.tag, self.state, names)
        )


def router(
    pond: ServedPond,
    followers: Subscribers,
    tickets: Tickets,
    prefix: str = "",
    security: Sequence[params.Security] = (),
) -> APIRouter:
    """Make the calls that read and follow the changes of many queries.

    Args:
        pond: What is served.
        followers: Sends changes to those who follow.
        tickets: The tickets that were given.
        prefix: The path that a reverse proxy has the server under.
        security: What a feed may be read by besides a token, for the document.
    """
    routes = APIRouter(route_class=DocumentedRoute, tags=["queries"])

    @routes.get(
        "/v1/changes",
        response_class=Response,
        dependencies=security,
        responses=describe_answer(answer_shapes.FeedPage, encode.NDJSON, EVENTS, encode.ARROW)
        | describe_errors(401, 404, 406, *BINDS, *WRITES),
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
        ticket: Annotated[
            str | Absent,
            Query(description="A ticket, which stands for a token and a selection."),
        ] = None,
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
        given = None if ticket is None else _find_ticket(tickets, ticket, selection)
        chosen = selection.read_some() if given is None else given.selection
        # An error of the selection or the cursor is answered, and not sent as an event.
        opened = await run_in_threadpool(pond.open_feed, chosen, cursor, begin)
        if not (form == EVENTS if follow is None else follow):
            events = await run_in_threadpool(opened.read, limit)
            return await run_in_threadpool(_page_response, events, opened.cursor, form)
        if form == encode.ARROW:
            raise MillpondError(
                "SERVE-709",
                "a feed is not followed as Arrow",
                hint=f"Accept {encode.NDJSON} or {EVENTS}; or ask for pages.",
            )
        form = encode.NDJSON if form == encode.JSON else form
        lift_limit()
        body_parts = followers.follow_feed(opened, pond.listen, form)
        if given is not None:
            body_parts = _hold(tickets, given, body_parts)
        return StreamingResponse(body_parts, headers=UNBUFFERED, media_type=form)

    @routes.post(
        "/v1/tickets",
        status_code=201,
        response_class=Response,
        responses=describe_answer(query_shapes.Ticket, status=201)
        | describe_errors(404, 429, *BODY),
    )
    def make_ticket(body: TicketBody) -> Response:
        """Makes a ticket, by which a browser's EventSource follows a feed without a token.

        Whoever has the ticket can follow the changes of the selected queries and do nothing else.
        It ends five minutes after its last follower has left, and with its token.
        """
        selection = body.read()
        pond.list_queries(selection, limit=1)  # raises what is wrong with a name
        text = tickets.make(caller_or_everybody(), selection)
        answer = {
            "ticket": text,
            "path": f"{prefix}{TICKET_PATH}?ticket={text}",
            "idle_seconds": TICKET_SECONDS,
        }
        return Response(json_values.dumps(answer), 201, media_type=encode.JSON)

    return routes


def _find_ticket(tickets: Tickets, text: str, selection: SelectionParameters) -> FeedTicket:
    """The ticket of a text. Raises SERVE-706; SERVE-703 beside another selection."""
    if not selection.read().is_everything:
        raise MillpondError(
            "SERVE-703",
            "a ticket stands for its own selection",
            hint="Leave out queries, owner, tag, state and containing.",
        )
    found = tickets.find(text)
    if found is None:
        raise unknown_ticket_error()
    return found


async def _hold(
    tickets: Tickets, ticket: FeedTicket, parts: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """The parts of a response, whose ticket lives as long as the response."""
    with tickets.following(ticket):
        async for part in parts:
            yield part


def _page_response(events: list[FeedEvent], cursor: str, form: str) -> Response:
    """Encode a page, a large one when it is its turn."""
    answers = [event.answer for event in events if event.answer is not None]
    with ENCODING.hold(sum(answer.table.nbytes for answer in answers)):
        return Response(feed_forms.encode_page(events, cursor, form), media_type=form)
