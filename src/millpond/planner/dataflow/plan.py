"""From a bound query to a dataflow: which operators compute its changes, and over what.

A plan is a graph of nodes (`operators/protocol/node.py`) with one root. Equal parts of different
plans have equal keys, whatever their queries call things, so that a runner computes them once. What
has no incremental operators becomes one node that answers the query anew at every change.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import pyarrow as pa

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.cql.parse.durations import duration_text
from millpond.model.schema import Schema
from millpond.model.windows import Range
from millpond.operators.protocol.node import Node
from millpond.operators.rstream import Boundaries, Instants, RStream
from millpond.operators.source import SEQUENCE, TIMESTAMP, StreamSource
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.dataflow.compiler import Compiler
from millpond.planner.dataflow.leaves import relation_node, stream_node, versions_node
from millpond.planner.optimize.cost import NodeEstimate, PlanStatistics, estimate_nodes, sum_cost
from millpond.planner.optimize.rules import RULES, Rule
from millpond.planner.optimize.statistics import GuessedStatistics
from millpond.planner.optimize.strategies import apply_strategy
from millpond.planner.resolve.names import Names

#: How many of those that share an operator EXPLAIN names.
_NAMED = 5


@dataclass(frozen=True, eq=False)
class Plan:
    """How a query's changes are computed.

    Attributes:
        root: What gives R's changes, all of them explicit.
        output: The answer's columns.
        to_stream: None for the changes of a relation-valued query; else 'istream', 'dstream' or
            'rstream', whose elements are given with the sign +.
        strategy: How readers learn that rows have left.
        fallback: Why a part of it is answered anew at every change; None if none is.
        estimates: What is expected of each node, by its key.
        cost: The share of one core's time that it is expected to add to what runs.
        basis: What the estimates rest on.
        lazy_expiration: How often its operators drop what has expired, in microseconds; None: when
            as much has expired as is alive. It is no part of the key: operators are shared by
            plans that differ in it.
    """

    root: Node
    output: Schema
    to_stream: str | None = None
    fallback: str | None = None
    strategy: str = "aware"
    estimates: Mapping[str, NodeEstimate] = field(default_factory=dict, repr=False)
    cost: float = 0.0
    basis: str = ""
    lazy_expiration: int | None = None

    @cached_property
    def key(self) -> str:
        """The sink's key: equal for queries whose changes are the same rows of the same names."""
        names = ",".join(self.output.names)
        return f"{self.root.key}:{self.to_stream or 'changes'}:{names}"

    @property
    def schema(self) -> pa.Schema:
        """The columns of its deltas: `__at`, `__sign` and the answer's."""
        fields = [pa.field("__at", pa.int64()), pa.field("__sign", pa.int8())]
        for name, column in zip(self.output.names, self.root.schema, strict=True):
            fields.append(pa.field(name, column.type))
        return pa.schema(fields)

    @cached_property
    def needs(self) -> dict[str, tuple[str, ...]]:
        """For each stream, the columns its feed must have beside `__ts` and `__seq`."""
        return self._needs("stream")

    @property
    def relations(self) -> dict[str, tuple[str, ...]]:
        """For each relation, the columns its feed must have beside `__at` and `__sign`."""
        return self._needs("relation")

    def _needs(self, wanted: str) -> dict[str, tuple[str, ...]]:
        found: dict[str, dict[str, None]] = {}
        reads = find_needed_columns([self.root])
        for node in self.nodes():
            if node.feed is not None and node.feed[0] == wanted:
                _, name, columns = node.feed
                own = found.setdefault(name, {})
                some = [columns[place] for place in sorted(reads[node.key])]
                own.update(dict.fromkeys(c for c in some if c not in (SEQUENCE, TIMESTAMP)))
        return {name: tuple(columns) for name, columns in found.items()}

    def reach(self, at: int) -> dict[str, int | None]:
        """For each stream the least timestamp of an element that still matters after an instant.

        A flow that was fed everything from there on up to `at` goes on as one that was fed
        everything. None: every element matters.
        """
        found: dict[str, int | None] = {}
        # A row that never leaves matters to nobody who takes each row for itself.
        stack: list[tuple[Node, bool, int | None]] = [(self.root, False, at + 1)]
        seen: set[tuple[str, bool, int | None]] = set()
        while stack:
            node, remembered, low = stack.pop()
            if (node.key, remembered, low) in seen:
                continue
            seen.add((node.key, remembered, low))
            if node.feed is not None:
                kind, name, _ = node.feed
                if kind == "stream":
                    known = found.get(name, low)
                    found[name] = None if low is None or known is None else min(low, known)
                continue
            if node.is_window:
                low = node.reach(at)
                if low is None and not remembered and not node.remembers:
                    low = at + 1
            elif node.remembers:
                remembered, low = True, None
            stack += [(i, remembered, low) for i in node.inputs]
        return found

    @property
    def explained(self) -> str:
        """The plan as indented text: operators, patterns of their edges, structures of state."""
        return self.explain_among({})

    def explain_among(
        self,
        users: Mapping[str, Sequence[str]],
        purging: Mapping[str, Set[int | None]] | None = None,
    ) -> str:
        """As `explained`, with the names of those who share a node, by its key, and with how often
        all of them want it to drop what has expired."""
        return "\n".join(_explain(self.root, 0, set(), users, purging or self.purging))

    def explain_estimates_among(
        self,
        users: Mapping[str, Sequence[str]],
        purging: Mapping[str, Set[int | None]] | None = None,
    ) -> str:
        """As `explain_among`, with what is expected to run on each edge and what it costs."""
        among = (users, purging or self.purging)
        return "\n".join(_explain(self.root, 0, set(), *among, self.estimates))

    @property
    def purging(self) -> dict[str, set[int | None]]:
        """As `find_purge_intervals`, of this plan alone."""
        return find_purge_intervals([(self, (self.lazy_expiration,))])

    def nodes(self) -> Iterator[Node]:
        """Every node once, inputs before those that read them."""
        yield from list_in_order([self.root])


def find_needed_columns(roots: list[Node]) -> dict[str, Set[int]]:
    """For every node below some, by its key, the places of its columns that anybody reads."""
    found: dict[str, Set[int]] = {}
    for root in roots:
        found[root.key] = frozenset(range(len(root.schema)))
    for node in reversed(list(list_in_order(roots))):
        for below, places in zip(node.inputs, node.reads(found[node.key]), strict=True):
            found[below.key] = found.get(below.key, frozenset()) | places
    return found


def find_readers(plans: Mapping[str, Plan]) -> dict[str, list[str]]:
    """For every node, by its key, who of the named plans it works for."""
    found: dict[str, list[str]] = {}
    for name, plan in plans.items():
        for node in plan.nodes():
            found.setdefault(node.key, []).append(name)
    return found


def find_purge_intervals(
    plans: Iterable[tuple[Plan, Iterable[int | None]]],
) -> dict[str, set[int | None]]:
    """For every node that purges, by its key, how often plans it works for want it to.

    Args:
        plans: Plans, each with what the queries say that have it.
    """
    found: dict[str, set[int | None]] = {}
    for plan, intervals in plans:
        for node in plan.nodes():
            if node.purges:
                found.setdefault(node.key, set()).update(intervals)
    return found


def explain_together(plans: Mapping[str, Plan]) -> str:
    """Named plans as the one they are: each node once, with those who share it."""
    users, shown, lines = find_readers(plans), set[str](), []
    purging = find_purge_intervals((plan, (plan.lazy_expiration,)) for plan in plans.values())
    for name, plan in plans.items():
        lines.append(f"changes of {name}")
        lines += _explain(plan.root, 1, shown, users, purging)
    return "\n".join(lines)


def _explain(
    node: Node,
    depth: int,
    shown: set[str],
    users: Mapping[str, Sequence[str]],
    purging: Mapping[str, Set[int | None]],
    expected: Mapping[str, NodeEstimate] = MappingProxyType({}),
) -> Iterator[str]:
    """A node and what is below it; what was shown before is not shown again."""
    detail = f" {node.detail}" if node.detail else ""
    shared = users.get(node.key, ())
    by = f"  shared by {len(shared)}: {_list_first(shared)}" if len(shared) > 1 else ""
    if node.key in shown and node.inputs:
        yield f"{'  ' * depth}{node.name}{detail}  (as above)"
        return
    shown.add(node.key)
    state = (
        f", state: {node.state}{_describe_purging(purging.get(node.key, ()))}" if node.state else ""
    )
    estimate = expected.get(node.key)
    about = f"  {_format_estimate(estimate)}" if estimate is not None else ""
    yield f"{'  ' * depth}{node.name}{detail}  ({node.pattern.name}{state}){by}{about}"
    for below in node.inputs:
        yield from _explain(below, depth + 1, shown, users, purging, expected)


def _describe_purging(intervals: Collection[int | None]) -> str:
    """How often state drops what has expired, where anybody says."""
    said = [i for i in intervals if i is not None]
    if not said:
        return ""
    every = f", purged every {duration_text(min(said))}" if min(said) else ", purged at every step"
    return every + " or when half has expired" * (None in intervals)


def _list_first(names: Sequence[str]) -> str:
    """Names, the first few of many."""
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


def _format_estimate(estimate: NodeEstimate) -> str:
    flow = estimate.output
    alive = "" if math.isinf(flow.life) else f", {flow.rows:,.3g} alive"
    return f"≈ {flow.changes:,.3g} changes/s{alive}, {estimate.work / 1e3:,.3g} µs/s"


def list_in_order(roots: list[Node]) -> Iterator[Node]:
    """The nodes below some, each key once, inputs before those that read them."""
    done: set[str] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, is_ready = stack.pop()
        if node.key in done:
            continue
        if is_ready:
            done.add(node.key)
            yield node
        else:
            stack.append((node, True))
            stack += [(i, False) for i in reversed(node.inputs)]


def plan_changes(
    bound: BoundQuery,
    catalog: Names,
    *,
    seed: int = 0,
    strategy: str = "aware",
    known: PlanStatistics | None = None,
    partitions: int | None = None,
    lazy_expiration: int | None = None,
    rules: tuple[Rule, ...] = RULES,
) -> Plan:
    """Plans the changes of a bound query.

    Args:
        bound: The query.
        catalog: What it was bound with.
        seed: Of its samples; the n-th leaf's is seed + n.
        strategy: A value of the option `strategy`; the changes are the same by any.
        known: What is known of the streams; nothing by default.
        partitions, rules: As of `strategies.apply_strategy`.
        lazy_expiration: As of `Plan`.

    Raises:
        MillpondError: CQL-214, the strategy is not one for this query.
    """
    columns = {f.table: (*f.columns, *f.hidden) for f in bound.streams}
    columns.update({f.table: (*f.columns, *f.hidden) for f in bound.relations})
    compiler = Compiler(bound, _plan_leaves(bound, catalog, seed), columns)
    known = known or GuessedStatistics()
    root = apply_strategy(compiler.compile_query().node, strategy, known, partitions, rules)
    reason = "; ".join(dict.fromkeys(compiler.reasons)) or None
    if bound.to_stream == "rstream":
        root = RStream(root, _plan_ticks(bound, catalog))
    expected, cost = estimate_nodes(root, known), sum_cost(root, known) / 1e9
    read = sorted({leaf.stream for leaf in bound.streams})
    basis = "; ".join(f"{name} {known.basis(name)}" for name in read)
    return Plan(
        root,
        bound.output,
        bound.to_stream,
        reason,
        strategy,
        expected,
        cost,
        basis,
        lazy_expiration,
    )


def _plan_leaves(bound: BoundQuery, catalog: Names, seed: int) -> dict[str, Node]:
    """The nodes of the streams and relations, by the tables the query knows them as."""
    leaves: dict[str, Node] = {}
    for number, leaf in enumerate(bound.streams):
        definition = catalog.find(leaf.stream)
        assert isinstance(definition, StreamDef)
        leaves[leaf.table] = stream_node(
            leaf, definition, seed + number, with_timestamp=bool(leaf.hidden)
        )
    for relation in bound.relations:
        declared = catalog.find(relation.relation)
        assert isinstance(declared, RelationDef)
        leaves[relation.table] = (
            versions_node(relation, declared, bound.streams)
            if relation.hidden
            else relation_node(relation, declared)
        )
    return leaves


def _plan_ticks(bound: BoundQuery, catalog: Names) -> tuple[Node, ...]:
    """When RSTREAM gives its relation: at elements, updates, and boundaries of SLIDE windows."""
    found: dict[str, Node] = {}
    for leaf in bound.streams:
        elements: Node = StreamSource(leaf.stream, (TIMESTAMP,), (pa.int64(),))
        ticks: list[Node] = [Instants(elements)]
        if isinstance(leaf.window, Range) and leaf.window.slide is not None:
            definition = catalog.find(leaf.stream)
            assert isinstance(definition, StreamDef)
            # The window as it is written: what the rest of the query selects is not its matter.
            ticks.append(
                Boundaries(stream_node(leaf, definition, 0, whole=True), leaf.window.slide)
            )
        found.update({tick.key: tick for tick in ticks})
    for relation in bound.relations:
        declared = catalog.find(relation.relation)
        assert isinstance(declared, RelationDef)
        tick = Instants(relation_node(relation, declared))
        found[tick.key] = tick
    return tuple(found.values())
