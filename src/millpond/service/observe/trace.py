"""The tuples of one batch, traced: which queries each of them went to, and through which nodes.

The trace is read from what the batch left behind: its segment, and the matches that were stored
with it (the lineage of its tuples). So it costs nothing until somebody asks, and the queries it
tells of are those that the tuples went to, not those of another run. The nodes between are found by
`traced_paths.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.time import format_instant
from millpond.planner.resolve.names import did_you_mean
from millpond.service.components import Components
from millpond.service.json_values import to_json_value
from millpond.service.observe.control_tables import Entity
from millpond.service.observe.join_entities import name_join
from millpond.service.observe.plan_graph import PlanGraph
from millpond.service.observe.traced_paths import TracedPaths, list_plans
from millpond.service.plans.running_plans import RunningPlans
from millpond.state.segment_file import global_seq
from millpond.state.version import SegmentRef, Version

#: The most tuples that are traced, names that are told of one, and predicates that are looked at.
MOST_TUPLES, MOST_NAMES, MOST_PREDICATES = 100, 20, 5_000


def trace_batch(
    components: Components,
    entities: Iterable[Entity],
    stream: str,
    query: QueryDef | None = None,
    tuples: int = 20,
) -> dict[str, Any]:
    """Trace the last tuples of the newest batch of a stream that is kept.

    Args:
        components: The pond's.
        entities: Its control tables, of which the paths name those that the plan's graph has.
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
        graph = PlanGraph(
            version, entities, components.joins, RunningPlans(version, components.derivations)
        )
        shown = {node["id"] for node in graph.draw()["nodes"]}
        trace = _Trace(components, version, found, segment, min(tuples, MOST_TUPLES))
        trace.find_queries(query)
        trace.find_paths(graph, query)
        return trace.to_json(shown)


class _Trace:
    """The trace of the last rows of a segment."""

    def __init__(
        self,
        components: Components,
        version: Version,
        stream: StreamDef,
        segment: SegmentRef,
        tuples: int,
    ) -> None:
        self._components, self._version = components, version
        self._stream, self._segment = stream, segment
        table = components.invoker.files.segment(segment).table
        self._first = max(0, segment.rows - tuples)
        rows = table.slice(self._first)
        sequence = global_seq(rows["__seq"].to_numpy(), segment.seq_runs)
        at = rows.schema.get_field_index("__seq")
        self._rows = rows.set_column(at, "__seq", pa.array(sequence))
        self._paths = TracedPaths(components, version, self._rows)
        #: By query, the places of the tuples that it was given.
        self._went: defaultdict[int, set[int]] = defaultdict(set)
        self._slots: list[int] = []

    def find_queries(self, query: QueryDef | None) -> None:
        """Find the queries that each tuple went to."""
        readers = _list_readers(self._version, self._stream, query)
        self._slots = [slot for slot in readers if slot is not None]
        for ref in self._version.matches(self._segment.id):
            for slot in [slot for slot in self._slots if ref.low <= slot < ref.upto]:
                reader = self._components.invoker.files.matches(ref, slot)
                if reader is not None:
                    rows = reader.rows(slot, self._first, self._segment.rows) - self._first
                    for id in readers[slot]:
                        self._went[id].update(rows.tolist())
        for id in readers.get(None, ()):
            self._went[id].update(range(self._rows.num_rows))

    def find_paths(self, graph: PlanGraph, query: QueryDef | None) -> None:
        """Find the nodes of the plan that each tuple went through."""
        version, stream, paths = self._version, self._stream, self._paths
        if stream.source is None and stream.derived is None:
            paths.note("queue:inbox")
        paths.note(f"stream:{stream.name}")
        if self._slots:
            paths.find_filters(stream, self._slots)
        paths.note(f"segments:{stream.name}")
        joined = None if query is None else version.joins.core_of(query.id)
        every = version.joins.cores.values()
        paths.find_joins(stream, every if query is None else [joined[0]] if joined else [])
        plans = list_plans(graph.plans.by_name.values(), stream)
        if query is not None:
            plans = (plan for plan in plans if plan.query is query or plan.name == query.name)
        matched = {version.queries[id].name: places for id, places in self._went.items()}
        paths.find_operators(stream, list(plans), matched)
        for id, places in self._went.items():
            joined = version.joins.core_of(id)
            if joined is not None:  # what it matched and found no partner for went no further
                join = f"join:{name_join(self._components.joins, joined[0])}"
                places = {place for place in places if join in paths.paths[place]}
            paths.note(graph.behind[id], places)

    def to_json(self, shown: set[str]) -> dict[str, Any]:
        """Tell it; of paths only the nodes that are shown."""
        went: list[list[str]] = [[] for _ in range(self._rows.num_rows)]
        for id, places in sorted(self._went.items()):
            for place in places:
                went[place].append(self._version.queries[id].name)
        columns = [name for name in self._rows.column_names if not name.startswith("__")]
        return {
            "stream": self._stream.name,
            "epoch": self._segment.epoch,
            "rows": self._segment.rows,
            "predicates": len(self._slots),
            "tuples": [
                {
                    "at": format_instant(row["__ts"]),
                    "values": {name: to_json_value(row[name]) for name in columns},
                    "queries": went[place][:MOST_NAMES],
                    "matched": len(went[place]),
                    "path": [id for id in self._paths.paths[place] if id in shown],
                }
                for place, row in enumerate(self._rows.to_pylist())
            ],
        }


def _list_readers(
    version: Version, stream: StreamDef, query: QueryDef | None
) -> dict[int | None, list[int]]:
    """The queries behind each predicate of a stream, the oldest predicates first; None: no one."""
    readers: defaultdict[int, list[int]] = defaultdict(list)
    every = []
    leaves = version.leaves_by_query() if query is None else [(query.id, version.leaves(query.id))]
    for id, some in leaves:
        for leaf in some:
            if leaf.stream_id != stream.id:
                continue
            if leaf.slot is None:
                every.append(id)
            else:
                readers[leaf.slot].append(id)
    chosen: dict[int | None, list[int]] = {
        slot: readers[slot] for slot in sorted(readers)[:MOST_PREDICATES]
    }
    return chosen | {None: every[:MOST_PREDICATES]}
