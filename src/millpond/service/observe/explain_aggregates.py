"""What EXPLAIN says of aggregates that are merged from segments."""

from __future__ import annotations

from typing import Any

from millpond.catalog.objects import QueryDef
from millpond.planner.bind.bound_query import BoundQuery
from millpond.service.components import Components
from millpond.service.maintenance.aggregate_maintenance import STORED_ROWS, list_measured
from millpond.service.queries.prepared import stream_of
from millpond.state.version import Version


def describe_totals(
    components: Components, version: Version, query: QueryDef, bound: BoundQuery
) -> dict[str, Any]:
    """Describe what is kept for a query's aggregates, and what its answer now would open.

    Bytes are shared by all queries with the same predicate and column.
    """
    kept, (leaf,) = components.invoker.totals, bound.streams
    stream = stream_of(version, leaf)
    own = list_measured(components.registrar, version, query)
    segments = version.segments(stream.id)
    high = version.clock(stream.id).high
    facts: dict[str, Any] = {}
    if high is not None:
        now = components.invoker.present.read() if stream.on_system_time else high
        cut = kept.cut(version, stream, leaf.window, now)
        facts["merged subtrees"] = len(cut.whole)
        facts["segments at the window's edges"] = len(cut.straddling)
    if own is None:
        return {**facts, "kept": "nothing: the query has no slot"}
    sharing = sum(
        other is not None and other[0] == own[0] and not own[1].isdisjoint(other[1])
        for other in (
            list_measured(components.registrar, version, each)
            for each in version.queries.values()
            if each.active
        )
    )
    measured = kept.measure(version, stream, own[1])
    large = sum(segment.rows >= STORED_ROWS for segment in segments)
    stored = f"{measured.pop('segments with stored totals')} of {large} large segments"
    return {**facts, "stored totals": stored, **measured, "shared by": sharing}
