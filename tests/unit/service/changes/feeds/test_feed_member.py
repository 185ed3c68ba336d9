"""Members of a feed, and the cursors after each change of a page."""

from __future__ import annotations

from dataclasses import replace

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.model.schema import Schema
from millpond.service.changes.feeds.feed_cursor import (
    BEFORE_ALL,
    Run,
    Streams,
    parse_feed_cursor,
    write_head,
)
from millpond.service.changes.feeds.feed_member import CursorWriter, Member, find_places


def member(log: int, given: int, complete: int, number: int | None = None) -> Member:
    """A member over stream 3; `number` is of its last change, within the instant after `given`."""
    made = Member(QueryDef(log + 100, f"q{log}", "SELECT 1"), "active")
    made.log = StreamDef(log, f"changes of q{log}", Schema(()))
    made.streams = Streams((3,))
    made.given, made.complete = BEFORE_ALL + given, BEFORE_ALL + complete
    if number is not None:
        made.number, made.is_inside = number, True
    return made


def test_neighbours_with_one_place_are_one_run() -> None:
    members = [member(5, 4, 9), member(6, 4, 9), member(7, 2, 9, 11), member(9, 4, 9)]
    assert find_places(members) == {
        Streams((3,)): [Run(6, BEFORE_ALL + 4), Run(7, None, 11), Run(9, BEFORE_ALL + 4)]
    }


def test_a_cursor_says_what_was_given_before_a_change_and_what_was_not() -> None:
    members = [member(5, 4, 9), member(6, 4, 9), member(7, 4, 6)]
    writer = CursorWriter(write_head("3f2a9c", None), members)
    written = writer.write(members[1], BEFORE_ALL + 8, 21)
    assert parse_feed_cursor(written, "3f2a9c", lambda ids: 0) == {
        Streams((3,)): [Run(5, BEFORE_ALL + 8), Run(6, None, 21), Run(7, BEFORE_ALL + 6)]
    }
    before = replace(members[0])
    writer.settle(members[1], BEFORE_ALL + 8)
    assert [m.given - BEFORE_ALL for m in members] == [8, 7, 6]
    assert [m.is_inside for m in members] == [False, True, False]
    assert before.given == BEFORE_ALL + 4
