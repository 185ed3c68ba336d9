"""Cursors of feeds are read against the streams that are there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.service.versions import stream, version_of

from millpond.errors import MillpondError
from millpond.service.changes.feeds.feed_cursor import Run, Streams, write_feed_cursor, write_head
from millpond.service.changes.feeds.feed_parts import FeedParts, count_resets


def make_parts() -> FeedParts:
    log: Any = SimpleNamespace(incarnation="3f2a9c")
    unused: Any = None
    return FeedParts(log, unused, unused, unused, unused, unused, unused)


def test_resets_of_streams_are_added_up() -> None:
    version = version_of(stream(1, "a", resets=2), stream(2, "b", resets=1))
    assert count_resets(version, [1, 2]) == 3
    assert count_resets(version, [2, 7]) == 1


def test_a_cursor_keeps_the_places_of_streams_that_are_there() -> None:
    places = {Streams((1,), 2): [Run(5, 50)], Streams((1, 7), 2): [Run(6, 50)]}
    version = version_of(stream(1, "a", resets=2))
    read = make_parts().parse_cursor(write_feed_cursor(write_head("3f2a9c", None), places), version)
    assert read == {Streams((1,), 2): [Run(5, 50)]}


def test_a_cursor_from_before_a_reset_is_refused() -> None:
    written = write_feed_cursor(write_head("3f2a9c", None), {Streams((1,), 0): [Run(5, 50)]})
    with pytest.raises(MillpondError, match="POND-412"):
        make_parts().parse_cursor(written, version_of(stream(1, "a", resets=1)))
