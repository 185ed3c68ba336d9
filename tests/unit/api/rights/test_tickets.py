"""How long tickets live, and how many there may be."""

from __future__ import annotations

import pytest

from millpond.api.rights import tickets as module
from millpond.api.rights.caller import EVERYBODY
from millpond.api.rights.tickets import TICKET_SECONDS, Tickets
from millpond.errors import MillpondError
from millpond.service.queries.query_selection import QuerySelection

SELECTION = QuerySelection(tag="x")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_ticket_lives_five_minutes_beyond_its_last_follower() -> None:
    clock = Clock()
    tickets = Tickets(clock)
    text = tickets.make(EVERYBODY, SELECTION)
    clock.now = TICKET_SECONDS
    ticket = tickets.find(text)
    assert ticket is not None
    with tickets.following(ticket):
        clock.now = 10 * TICKET_SECONDS
        assert tickets.find(text) is ticket
    clock.now += TICKET_SECONDS
    assert tickets.find(text) is ticket
    clock.now += 1
    assert tickets.find(text) is None


def test_an_owner_has_so_many_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TICKETS", 2)
    clock = Clock()
    tickets = Tickets(clock)
    for _ in range(2):
        tickets.make(EVERYBODY, SELECTION)
    with pytest.raises(MillpondError, match="SERVE-714"):
        tickets.make(EVERYBODY, SELECTION)
    clock.now = TICKET_SECONDS + 1
    assert tickets.find(tickets.make(EVERYBODY, SELECTION)) is not None
