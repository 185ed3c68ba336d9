"""The one shared plan as a graph: streams, what their elements pass, and the queries behind it.

    inbox ─► stream ─┬─► grouped filters ─► Query SteM ─────────────────────────► queries
                     ├─► segments ─► SteMs ─► eddy ─► stored join ──────────────► queries
                     └─► operators, shared ─► queues between them ─► derivation ─► queries

Every node but streams and queries is an entity, whose control table has its id.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.operators.protocol.node import Node
from millpond.planner.resolve.named_objects import list_named_objects
from millpond.service.maintenance.join_maintenance import JoinMaintenance
from millpond.service.observe.control_tables import Entity
from millpond.service.observe.join_entities import name_join, name_stems
from millpond.service.plans.running_plans import RunningPlan, RunningPlans, name_operator
from millpond.service.results import count_text
from millpond.state.join_state import JoinCore
from millpond.state.version import Version

#: The version of the form of the graph; grows when a field changes its meaning or goes.
FORM = 1
#: The most names of queries that one node tells.
MOST_NAMES = 20
#: Of more derivations than this, operators are grouped by what they are, not by whose they are.
_MOST_APART = 12
#: The most characters of what an operator computes that its label has.
_MOST_DETAIL = 40

#: What elements of a stream pass, in this order.
_MODULES = ("filter", "others")


@dataclass(frozen=True)
class PlanNode:
    """A node: a stream, an entity, a join, or the queries that read the same.

    Attributes:
        id: Of an entity its id; stays the same while the node lives.
        kind: "queue", "stream", "module", "synopsis", "eddy", "join", "operator", "derivation",
            "relation" or "queries".
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
    """Draws the shared plan of one version.

    Attributes:
        behind: By a query's id, the node that stands for it.
        plans: How changes are computed.
    """

    def __init__(
        self,
        version: Version,
        entities: Iterable[Entity],
        joins: JoinMaintenance,
        plans: RunningPlans,
    ) -> None:
        self.behind: dict[int, str] = {}
        self._version = version
        self._joins = joins
        self.plans = plans
        self._entities = {entity.id: entity for entity in entities}
        self._of: dict[str, list[Entity]] = defaultdict(list)
        for entity in self._entities.values():
            self._of[entity.of].append(entity)
        self._nodes: dict[str, PlanNode] = {}
        self._edges: dict[tuple[str, str], PlanEdge] = {}

    def draw(self, query: QueryDef | None = None) -> dict[str, Any]:
        """The graph as JSON values, with the part lit that serves a query."""
        for stream in self._version.named_streams():
            self._draw_stream(stream)
        for core in self._version.joins.cores.values():
            self._draw_join(core)
        for entity in self._entities.values():
            if entity.id.startswith("relation:"):
                self._add(entity, "relation", "relations")
        for entity in self._entities.values():
            if entity.id.startswith("derivation:"):
                self._draw_derivation(entity)
        self._draw_queries()
        lit = set() if query is None else self._light(self.behind[query.id])
        nodes = [asdict(n) | {"lit": n.id in lit} for n in self._nodes.values()]
        edges = [asdict(edge) for edge in self._edges.values()]
        return {"form": FORM, "nodes": nodes, "edges": edges}

    def _draw_stream(self, stream: StreamDef) -> None:
        version, name = self._version, stream.name
        rows = version.count_accepted(stream)
        start = f"stream:{name}"
        self._nodes[start] = PlanNode(start, "stream", name, "streams", {"rows": rows})
        if stream.source is None and stream.derived is None:
            self._add(self._entities["queue:inbox"], "queue", "queues")
            self._connect("queue:inbox", start, rows)
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
        name = name_join(self._joins, core)
        streams = [s.name for i in core.stream_ids if (s := self._version.streams.get(i))]
        stored, eddy = self._entities.get(f"join:{name}"), self._entities.get(f"eddy:{name}")
        if stored is None or eddy is None:
            return  # it came or went meanwhile
        label = f"join of {', '.join(streams)}"
        self._nodes[stored.id] = PlanNode(stored.id, "join", label, "joins", stored.figures)
        self._add(eddy, "eddy", "eddies")
        self._connect(eddy.id, stored.id, stored.figures["rows"])
        stems = name_stems(self._joins, self._version, core)
        for id, (stream_id, _) in stems.items():
            stem = self._entities.get(id)
            if stem is not None:
                self._add(stem, "synopsis", "SteMs")
                self._connect(self._exit_of(stream_id, matched=False), id, stem.figures["rows"])
                self._connect(id, eddy.id)
        for stream_id in set(core.stream_ids) - {of for of, _ in stems.values()}:
            self._connect(self._exit_of(stream_id, matched=False), eddy.id)

    def _draw_derivation(self, entity: Entity) -> None:
        """A derivation, behind its operators; a derived stream is behind its derivation."""
        found = self._version.find(entity.of)
        self._add(entity, "derivation", "derivations")
        made = f"stream:{entity.of}"
        if made in self._nodes:
            self._connect(entity.id, made, entity.figures["elements"])
        plan = self.plans.by_name.get(entity.of)
        if plan is not None:
            self._draw_operators(entity, plan)
            return
        text = found.text if isinstance(found, QueryDef) else _text_of(found)
        for named in list_named_objects(text) if text else ():
            for id in (f"stream:{named.name}", f"relation:{named.name}"):
                if id in self._nodes:
                    self._connect(id, entity.id)

    def _draw_operators(self, entity: Entity, running: RunningPlan) -> None:
        """The operators that compute a derivation's changes, of which others may share some."""
        last = entity.id
        waited = self._entities.get(f"queues:{entity.of}")
        if waited is not None:
            self._add(waited, "queue", "queues")
            self._connect(waited.id, entity.id)
            last = waited.id
        apart = len(self.plans.by_name) <= _MOST_APART
        for node in running.plan.nodes():
            id = name_operator(node.name, node.key)
            if id not in self._nodes:
                group = f"operators of {entity.of}" if apart else f"operators: {node.name}"
                self._nodes[id] = self._make_operator(id, node, group)
            if node.feed is not None:
                kind, name, _ = node.feed
                source = self._version.find(name)
                source_id = f"{kind}:{name if source is None else source.name}"
                if source_id in self._nodes:
                    self._connect(source_id, id, self._rows(id, "rows in"))
            for below in node.inputs:
                below_id = name_operator(below.name, below.key)
                self._connect(below_id, id, self._rows(below_id, "rows out"))
        root = running.plan.root
        root_id = name_operator(root.name, root.key)
        self._connect(root_id, last, self._rows(root_id, "rows out"))

    def _make_operator(self, id: str, node: Node, group: str) -> PlanNode:
        entity = self._entities.get(id)
        figures: dict[str, Any] = {"pattern": node.pattern.name.lower().replace("_", " ")}
        if entity is not None:
            figures |= entity.figures
            if taken := figures.get("rows in"):
                figures["selectivity"] = round(figures["rows out"] / taken, 4)
        detail = node.detail
        if len(detail) > _MOST_DETAIL:
            figures["computes"], detail = detail, f"{detail[:_MOST_DETAIL]}…"
        label = f"{node.name} {detail}".strip()
        queries = tuple(self.plans.readers[id][:MOST_NAMES])
        return PlanNode(id, "operator", label, group, figures, queries)

    def _rows(self, id: str, figure: str) -> int | None:
        """What an operator's entity counts; None: nothing yet."""
        entity = self._entities.get(id)
        return None if entity is None else entity.figures[figure]

    def _draw_queries(self) -> None:
        """Queries that read the same are one node."""
        version = self._version
        alike: dict[tuple[str, ...], list[QueryDef]] = defaultdict(list)
        for query in version.queries.values():
            joined = version.joins.core_of(query.id)
            if joined is not None:
                sources = {f"join:{name_join(self._joins, joined[0])}"}
            else:
                sources = {
                    self._exit_of(leaf.stream_id, matched=leaf.slot is not None)
                    for leaf in version.leaves(query.id)
                }
            if f"derivation:{query.name}" in self._nodes:
                sources.add(f"derivation:{query.name}")
            alike[tuple(sorted(sources))].append(query)
        for read, queries in sorted(alike.items()):
            # The same as long as the same is read, whatever else comes and goes.
            id = f"queries:{hashlib.blake2b(repr(read).encode(), digest_size=6).hexdigest()}"
            names = tuple(query.name for query in queries[:MOST_NAMES])
            label = names[0] if len(queries) == 1 else count_text(len(queries), "query", "queries")
            figures = {"queries": len(queries)}
            self._nodes[id] = PlanNode(id, "queries", label, "queries", figures, names)
            for source in read:
                if source in self._nodes:
                    self._connect(source, id)
            self.behind.update(dict.fromkeys((query.id for query in queries), id))

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
