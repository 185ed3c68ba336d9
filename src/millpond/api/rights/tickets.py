"""Tickets: what a browser's EventSource, which cannot send a token, follows a feed by.

A ticket stands for a caller and a selection of queries, and for nothing else: who has it may follow
that feed, and may do nothing else. It lives as long as somebody follows, and five minutes more, so
a browser that lost its connection goes on. It ends with its token. Tickets are in memory; the
server's next start knows none.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from millpond.api.rights.caller import Caller
from millpond.errors import MillpondError
from millpond.service.queries.query_selection import QuerySelection

#: The one call that takes a ticket.
TICKET_PATH = "/v1/changes"
#: How long a ticket lives while nobody follows by it, in seconds.
TICKET_SECONDS = 300.0
#: The most tickets of one owner, and the most names in one ticket.
MOST_TICKETS, MOST_NAMES = 1_000, 100_000


@dataclass
class FeedTicket:
    """A ticket.

    Attributes:
        caller: Who asked for it.
        selection: The queries it is for.
        idle_since: When it was made, or its last follower left.
        followers: How many follow by it now.
    """

    caller: Caller
    selection: QuerySelection
    idle_since: float
    followers: int = field(default=0)


class Tickets:
    """The tickets of a server, kept by their hashes; safe to use from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._tickets: dict[str, FeedTicket] = {}

    def make(self, caller: Caller, selection: QuerySelection) -> str:
        """Make a ticket. Raises SERVE-714 if the owner has too many."""
        text = secrets.token_urlsafe(32)
        with self._lock:
            self._drop_ended()
            own = sum(ticket.caller.owner == caller.owner for ticket in self._tickets.values())
            if own >= MOST_TICKETS:
                raise MillpondError(
                    "SERVE-714",
                    f'the owner "{caller.owner}" has {own:,} tickets',
                    detail="A ticket ends five minutes after its last follower has left.",
                    hint="Use a ticket again instead of asking for another one.",
                )
            self._tickets[_hash(text)] = FeedTicket(caller, selection, self._clock())
        return text

    def find(self, text: str) -> FeedTicket | None:
        """The ticket of a text; None if there is none, or it has ended."""
        with self._lock:
            found = self._tickets.get(_hash(text))
            return found if found is not None and not self._has_ended(found) else None

    @contextmanager
    def following(self, ticket: FeedTicket) -> Iterator[None]:
        """Count somebody as following by a ticket while the block runs."""
        with self._lock:
            ticket.followers += 1
        try:
            yield
        finally:
            with self._lock:
                ticket.followers -= 1
                ticket.idle_since = self._clock()

    def _has_ended(self, ticket: FeedTicket) -> bool:
        return not ticket.followers and self._clock() - ticket.idle_since > TICKET_SECONDS

    def _drop_ended(self) -> None:
        ended = [key for key, ticket in self._tickets.items() if self._has_ended(ticket)]
        for key in ended:
            del self._tickets[key]


def unknown_ticket_error() -> MillpondError:
    """The error of a text that is no ticket, or no longer."""
    return MillpondError(
        "SERVE-706",
        "the ticket is not known",
        detail="It has ended, the server has started again, or its token is gone.",
        hint="Ask for another one: POST /v1/tickets.",
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
