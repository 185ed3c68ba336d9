"""Which followed queries may share a log of their changes, and how they leave it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.catalog.options import OPTIONS
from millpond.state.version import StreamClock, Version

#: The options with which a query's changes can be computed together with others'.
_SHARING = {name for name, option in OPTIONS.items() if option.allows_sharing}


def has_plain_options(options: Mapping[str, Any]) -> bool:
    """Whether a query's options let its changes be computed together with others'."""
    return options.keys() <= _SHARING


def is_plain(query: QueryDef) -> bool:
    """Whether a query's changes may go on to be computed together with others'."""
    return query.active and has_plain_options(query.options)


def leave_shared_log(version: Version, log: StreamDef) -> tuple[StreamDef, StreamClock]:
    """A change log that leaves its shared log, and the clock it goes on with by itself."""
    assert log.derived is not None
    clock = version.clock(log.id)
    return replace(log, derived=replace(log.derived, apart_from=clock.next_seq)), clock


def find_left_shared_logs(version: Version, leaving: Sequence[StreamDef]) -> set[int]:
    """The shared logs that nobody has changes in any more once these change logs are dropped."""
    shared = {log.derived.shared_log for log in leaving if log.derived is not None} - {None}
    if not shared:
        return set()
    gone = {log.id for log in leaving}
    held = {
        stream.derived.shared_log
        for stream in version.streams.values()
        if stream.derived is not None and stream.id not in gone
    }
    return {id for id in shared - held if id is not None}
