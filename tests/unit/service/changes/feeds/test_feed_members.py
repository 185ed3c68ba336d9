"""The members of a feed: their order, and which of them have changes to be given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.service.versions import stream, version_of

from millpond.catalog.objects import Derived, QueryDef, StreamDef
from millpond.errors import MillpondError
from millpond.service.changes.feeds.feed_cursor import Streams
from millpond.service.changes.feeds.feed_members import FeedMembers
from millpond.state.version import StreamClock, StreamState, Version


def make_log(id: int, resets: int = 0) -> StreamDef:
    return stream(id, f"{id}$changes", derived=Derived("…", 100 + id), resets=resets)


def version(*logs: StreamDef, counts: dict[int, int] | None = None) -> Version:
    """A version with these change logs, which have so many changes."""
    states = {
        id: StreamState(clock=StreamClock(next_seq=count)) for id, count in (counts or {}).items()
    }
    return version_of(*logs, states=states)


class Parts:
    """What members ask of a pond: its version, and up to where logs are complete."""

    def __init__(self, now: Version, complete: dict[int, int] | None = None) -> None:
        self.log = SimpleNamespace(version=now)
        self.reader = SimpleNamespace(open_shared_pages=SimpleNamespace)
        upto = complete or {}
        self.advancer = SimpleNamespace(complete_upto=lambda version, log: upto.get(log.id, 0))


def make_members(parts: Any, *logs: StreamDef | None, streams: Streams | None = None) -> Any:
    members = FeedMembers(parts)
    for number, log in enumerate(logs):
        made = members.add(QueryDef(number + 1, f"q{number + 1}", "SELECT 1"))
        made.log = log
        made.streams = streams or Streams(())
    members.check_clocks(parts.log.version)
    return members


def test_members_without_a_log_are_in_no_order() -> None:
    five, three = make_log(5), make_log(3)
    members = make_members(Parts(version(five, three)), five, None, three)
    assert [m.log.id for m in members.list_in_order()] == [3, 5]
    assert members.ids == {1, 2, 3}
    assert members.remove(1).query.name == "q1"
    assert members.find(1) is None
    members.forget_order()
    assert [m.log.id for m in members.list_in_order()] == [3]


def test_those_with_changes_after_their_place_are_behind() -> None:
    five, three = make_log(5), make_log(3)
    now = version(five, three, counts={5: 4, 3: 2})
    members = make_members(Parts(now), five, three)
    for member in members:
        member.number = 2
    assert [m.log.id for m in members.find_behind(now)] == [5]
    assert [m.log.id for m in members.find_behind(now)] == [5]  # also when all were looked at


def test_how_far_a_member_is_complete_never_goes_back() -> None:
    five = make_log(5)
    parts = Parts(version(five), {5: 70})
    members = make_members(parts, five)
    members.note_complete()
    parts.advancer.complete_upto = lambda version, log: 60
    members.note_complete()
    assert [m.complete for m in members] == [70]


def test_changes_that_were_taken_back_end_the_feed() -> None:
    parts = Parts(version(make_log(5)))
    members = make_members(parts, make_log(5))
    members.check_clocks(version(make_log(5)))
    with pytest.raises(MillpondError, match="POND-412") as raised:
        members.check_clocks(version(make_log(5, resets=1)))
    assert '"q1"' in raised.value.primary
