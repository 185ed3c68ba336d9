"""Notes: what a query says that is allowed, and probably not what is meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from millpond.catalog.objects import Definition, StreamDef
from millpond.cql.print.printer import print_name
from millpond.model.windows import Range
from millpond.planner.bind.bound_query import BoundQuery

#: Gives the definition of a name.
Find = Callable[[str], Definition | None]

_TIMES = ("TIMESTAMP", "DATE")


def find_notes(bound: BoundQuery, find: Find) -> list[str]:
    """The notes about a bound query, for whoever registers or explains it."""
    return list(dict.fromkeys(_find_arrival_windows(bound, find)))


def _find_arrival_windows(bound: BoundQuery, find: Find) -> Iterator[str]:
    """RANGE windows that count from the arrival although a column may say when it was."""
    for leaf in bound.streams:
        stream = find(leaf.stream)
        if not isinstance(leaf.window, Range) or not isinstance(stream, StreamDef):
            continue
        times = [field.name for field in stream.schema.fields if field.type in _TIMES]
        declared = stream.derived is None and stream.rejects_of is None
        if declared and stream.timestamp_by is None and times:
            name, column = print_name(stream.name), print_name(times[0])
            yield (
                f"RANGE over {name} counts from when elements arrive, because {name} is declared "
                f"without TIMESTAMP BY; TIMESTAMP BY {column} would take the times in {column}"
            )
