"""The tuples of one batch, traced: which queries each of them went to.

The trace is read from what the batch left behind: its segment, and the matches that were stored
with it (the lineage of its tuples). So it costs nothing until somebody asks, and it says what was
so, not what another run would do.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.time import format_instant
from millpond.planner.resolve.names import did_you_mean
from millpond.service.components import Components
from millpond.service.json_values import to_json_value
from millpond.state.version import SegmentRef, Version

#: The most tuples that are traced, names that are told of one, and predicates that are looked at.
MOST_TUPLES, MOST_NAMES, MOST_PREDICATES = 100, 20, 5_000


def trace_batch(
    components: Components, stream: str, query: QueryDef | None = None, tuples: int = 20
) -> dict[str, Any]:
    """Trace the last tuples of the newest batch of a stream that is kept.

    Args:
        components: The pond's.
        stream: The stream's name.
        query: Whether the tuples went to this query is told, and of no other; None: of all.
        tuples: How many, at most `MOST_TUPLES`.

    Raises:
        MillpondError: CQL-201, there is no such stream; STORE-602, its rows cannot be read.
    """
    with components.log.pin() as version:
        found = version.find(stream)
        if not isinstance(found, StreamDef) or found.is_pseudo:
            names = [one.name for one in version.named_streams()]
            raise MillpondError(
                "CQL-201", f'no stream "{stream}"', hint=did_you_mean(stream, names)
            )
        held = version.segments(found.id)
        if not held:
            return {"stream": found.name, "epoch": None, "rows": 0, "predicates": 0, "tuples": []}
        segment = max(held, key=lambda one: (one.epoch, one.id))
        return _trace(components, version, found, segment, query, min(tuples, MOST_TUPLES))


def _trace(
    components: Components,
    version: Version,
    stream: StreamDef,
    segment: SegmentRef,
    query: QueryDef | None,
    tuples: int,
) -> dict[str, Any]:
    table = components.invoker.files.segment(segment).table
    first = max(0, segment.rows - tuples)
    readers = _list_readers(version, stream, query)
    went: defaultdict[int, list[str]] = defaultdict(list)
    for ref in version.matches(segment.id):
        for slot in [slot for slot in readers if ref.low <= slot < ref.upto]:
            reader = components.invoker.files.matches(ref, slot)
            if reader is not None:
                for row in reader.rows(slot, first, segment.rows):
                    went[int(row)] += readers[slot]
    columns = [name for name in table.column_names if not name.startswith("__")]
    rows = table.slice(first).to_pylist()
    return {
        "stream": stream.name,
        "epoch": segment.epoch,
        "rows": segment.rows,
        "predicates": len(readers),
        "tuples": [
            {
                "at": format_instant(row["__ts"]),
                "values": {name: to_json_value(row[name]) for name in columns},
                "queries": went[first + place][:MOST_NAMES],
                "matched": len(went[first + place]),
            }
            for place, row in enumerate(rows)
        ],
    }


def _list_readers(
    version: Version, stream: StreamDef, query: QueryDef | None
) -> dict[int, list[str]]:
    """The names of the queries behind each predicate of a stream, the oldest predicates first."""
    readers: defaultdict[int, list[str]] = defaultdict(list)
    leaves = version.leaves_of.items() if query is None else [(query.id, version.leaves(query.id))]
    for id, some in leaves:
        for leaf in some:
            if leaf.stream_id == stream.id and leaf.slot is not None:
                readers[leaf.slot].append(version.queries[id].name)
    return {slot: readers[slot] for slot in sorted(readers)[:MOST_PREDICATES]}
