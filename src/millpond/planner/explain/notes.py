"""Notes: parts of a query that are allowed, but probably not what the user means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from millpond.catalog.objects import Definition, StreamDef
from millpond.cql.print.printer import print_name
from millpond.model.windows import Range
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.resolve.inner_streams import PREFIX

#: Gives the definition of a name.
Find = Callable[[str], Definition | None]

_TIMES = ("TIMESTAMP", "DATE")


def find_notes(bound: BoundQuery, find: Find, is_followed: bool = False) -> list[str]:
    """Find the notes about a bound query, for the user who registers or explains it.

    Args:
        bound: The query.
        find: Gives the definition of a name.
        is_followed: Whether its changes are given as they come.
    """
    found = [*_find_arrival_windows(bound, find), *_find_inner_streams(bound, find)]
    if is_followed:
        read = (find(name) for name in sorted({leaf.stream for leaf in bound.streams}))
        found += find_silences(stream for stream in read if isinstance(stream, StreamDef))
    return list(dict.fromkeys(found))


def find_silences(streams: Iterable[StreamDef]) -> list[str]:
    """Find the streams whose last changes wait for a next element that may never come."""
    return [
        f"{stream.name} is pushed and has no IDLE AFTER: the changes of its last instant are given "
        "when a later element or a HEARTBEAT comes"
        for stream in streams
        if stream.source is None
        and stream.derived is None
        and stream.timestamp_by is not None
        and stream.idle_after is None
    ]


def _find_arrival_windows(bound: BoundQuery, find: Find) -> Iterator[str]:
    """Find RANGE windows over arrival times of streams that have a column of a time type."""
    for leaf in bound.streams:
        stream = find(leaf.stream)
        if not isinstance(leaf.window, Range) or not isinstance(stream, StreamDef):
            continue
        times = [field.name for field in stream.schema.fields if field.type in _TIMES]
        declared = stream.derived is None and not stream.is_pseudo
        if declared and stream.timestamp_by is None and times:
            name, column = print_name(stream.name), print_name(times[0])
            yield (
                f"RANGE over {name} counts from when elements arrive, because {name} is declared "
                f"without TIMESTAMP BY; TIMESTAMP BY {column} would take the times in {column}"
            )


def _find_inner_streams(bound: BoundQuery, find: Find) -> Iterator[str]:
    """Say which queries in FROM the streams stand for that have no name in the query's text."""
    for leaf in bound.streams:
        stream = find(leaf.stream)
        if leaf.stream.startswith(PREFIX) and isinstance(stream, StreamDef) and stream.derived:
            yield f"{stream.name} is {stream.derived.text}"
