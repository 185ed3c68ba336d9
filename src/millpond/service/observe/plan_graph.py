"""The one shared plan as a graph: streams, what their elements pass, and the queries behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.planner.resolve.named_objects import list_named_objects
from millpond.service.observe.control_tables import Entity
from millpond.service.results import count_text
from millpond.state.join_state import JoinCore
from millpond.state.version import Version

#: The version of the form of the graph; grows when a field changes its meaning or goes.
FORM = 1
#: The most names of queries that one node tells.
MOST_NAMES = 20

#: What elements of a stream pass, in this order.
_MODULES = ("filter", "others")


@dataclass(frozen=True)
class PlanNode:
    """A node: a stream, an entity, a join, or the queries that read the same.

    Attributes:
        id: Of an entity its id; stays the same while the node lives.
        kind: "stream", "module", "synopsis", "join", "derivation", "relation" or "queries".
        label: What people call it.
        group: Nodes of one group may be shown as one.
        figures: What is measured of it.
        queries: Names of queries it stands for, the first `MOST_NAMES`.
        lit: Whether it serves the query that was asked for.
    """

    id: str
    kind: str
    label: str
    group: str
    figures: dict[str, Any] = field(default_factory=dict)
    queries: tuple[str, ...] = ()
    lit: bool = False


@dataclass(frozen=True)
class PlanEdge:
    """What goes from one node to another; `elements` counts what went along it since ever."""

    source: str
    target: str
    elements: int | None = None


class PlanGraph:
    """Draws the shared plan of one version."""

    def __init__(self, version: Version, entities: Iterable[Entity]) -> None:
        self._version = version
        self._entities = list(entities)
        self._of: dict[str, list[Entity]] = defaultdict(list)
        for entity in self._entities:
            self._of[entity.of].append(entity)
        self._nodes: dict[str, PlanNode] = {}
        self._edges: dict[tuple[str, str], PlanEdge] = {}

    def draw(self, query: QueryDef | None = None) -> dict[str, Any]:
        """The graph as JSON values, with the part lit that serves a query."""
        for stream in self._version.named_streams():
            self._draw_stream(stream)
        for core in self._version.joins.cores.values():
            self._draw_join(core)
        for entity in self._entities:
            if entity.id.startswith("relation:"):
                self._add(entity, "relation", "relations")
        for entity in self._entities:
            if entity.id.startswith("derivation:"):
                self._draw_derivation(entity)
        groups = list(self._draw_queries())
        lit = set()
        if query is not None:
            lit = self._light(next(node for node, ids in groups if query.id in ids))
        nodes = [asdict(n) | {"lit": n.id in lit} for n in self._nodes.values()]
        edges = [asdict(edge) for edge in self._edges.values()]
        return {"form": FORM, "nodes": nodes, "edges": edges}

    def _draw_stream(self, stream: StreamDef) -> None:
        version, name = self._version, stream.name
        rows = version.count_accepted(stream)
        start = f"stream:{name}"
        self._nodes[start] = PlanNode(start, "stream", name, "streams", {"rows": rows})
        own = self._of.get(name, [])
        modules = [e for e in own if e.id.partition(":")[0] in _MODULES]
        stem = next((e for e in own if e.id == f"query stem:{name}"), None)
        for entity in own:
            if entity.id.startswith("segments:"):
                self._add(entity, "synopsis", "segments")
                self._connect(start, entity.id, rows)
        if stem is None:
            return
        self._add(stem, "synopsis", "query stems")
        for module in modules:
            self._add(module, "module", f"filters of {name}")
            self._connect(start, module.id, rows)
            self._connect(module.id, stem.id)
        if not modules:
            self._connect(start, stem.id, rows)

    def _draw_join(self, core: JoinCore) -> None:
        pairs = sum(file.pairs for file in self._version.joins.pairs(core.id))
        id, figures = f"join:{core.id}", {"pairs": pairs}
        streams = [s.name for i in core.stream_ids if (s := self._version.streams.get(i))]
        label = f"join of {', '.join(streams)}"
        self._nodes[id] = PlanNode(id, "join", label, "joins", figures)
        for stream_id in core.stream_ids:
            self._connect(self._exit_of(stream_id, matched=False), id)

    def _draw_derivation(self, entity: Entity) -> None:
        """A derivation, behind the streams it reads; a derived stream is behind its derivation."""
        found = self._version.find(entity.of)
        self._add(entity, "derivation", "derivations")
        made = f"stream:{entity.of}"
        if made in self._nodes:
            self._connect(entity.id, made, entity.figures["elements"])
        text = found.text if isinstance(found, QueryDef) else _text_of(found)
        for named in list_named_objects(text) if text else ():
            for id in (f"stream:{named.name}", f"relation:{named.name}"):
                if id in self._nodes:
                    self._connect(id, entity.id)

    def _draw_queries(self) -> Iterator[tuple[str, set[int]]]:
        """Queries that read the same are one node; give each with the ids of its queries."""
        version = self._version
        alike: dict[tuple[str, ...], list[QueryDef]] = defaultdict(list)
        for query in version.queries.values():
            joined = version.joins.core_of(query.id)
            if joined is not None:
                sources = {f"join:{joined[0].id}"}
            else:
                sources = {
                    self._exit_of(leaf.stream_id, matched=leaf.slot is not None)
                    for leaf in version.leaves(query.id)
                }
            if f"derivation:{query.name}" in self._nodes:
                sources.add(f"derivation:{query.name}")
            alike[tuple(sorted(sources))].append(query)
        for number, (read, queries) in enumerate(sorted(alike.items())):
            id = f"queries:{number}"
            names = tuple(query.name for query in queries[:MOST_NAMES])
            label = names[0] if len(queries) == 1 else count_text(len(queries), "query", "queries")
            figures = {"queries": len(queries)}
            self._nodes[id] = PlanNode(id, "queries", label, "queries", figures, names)
            for source in read:
                self._connect(source, id)
            yield id, {query.id for query in queries}

    def _light(self, id: str) -> set[str]:
        """A node and all that it is reached from."""
        lit, waiting = {id}, [id]
        before = defaultdict(list)
        for source, target in self._edges:
            before[target].append(source)
        while waiting:
            for source in before[waiting.pop()]:
                if source not in lit:
                    lit.add(source)
                    waiting.append(source)
        return lit

    def _exit_of(self, stream_id: int, matched: bool) -> str:
        """The last node of a stream before what reads it: what was matched, or what is kept."""
        stream = self._version.streams.get(stream_id)
        name = "" if stream is None else stream.name
        wanted = f"query stem:{name}" if matched else f"segments:{name}"
        return wanted if wanted in self._nodes else f"stream:{name}"

    def _add(self, entity: Entity, kind: str, group: str) -> None:
        label = entity.id.replace(":", " ", 1)
        self._nodes[entity.id] = PlanNode(entity.id, kind, label, group, entity.figures)

    def _connect(self, source: str, target: str, elements: int | None = None) -> None:
        if source != target:
            self._edges[source, target] = PlanEdge(source, target, elements)


def _text_of(found: object) -> str | None:
    """The text of a derived stream's query."""
    if isinstance(found, StreamDef) and found.derived is not None:
        return found.derived.text
    return None
