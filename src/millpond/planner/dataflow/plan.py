"""From a bound query to a dataflow: which operators compute its changes, and over what.

A plan is a graph of nodes (`operators/protocol/node.py`) with one root. Equal parts of different
plans have equal keys, whatever names their queries use, so that a runner computes them once. A part
of a query without incremental operators becomes one node that recomputes it at every change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import pyarrow as pa

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.durations import duration_text
from millpond.model.kept_property import kept_property
from millpond.model.schema import Schema
from millpond.model.windows import Range
from millpond.operators.protocol.node import Node
from millpond.operators.rstream import Boundaries, Instants, RStream
from millpond.operators.source import LOG, LOGS, SEQUENCE, TIMESTAMP, StreamSource
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.dataflow.compiler import Compiler
from millpond.planner.dataflow.leaves import plan_versions, relation_node, stream_node
from millpond.planner.optimize.choices import Choice, Choices, read_choices, separate_nodes
from millpond.planner.optimize.cost import NodeEstimate, PlanStatistics, estimate_nodes, sum_cost
from millpond.planner.optimize.rules import RULES, Rule
from millpond.planner.optimize.shared_windows import share_windows
from millpond.planner.optimize.statistics import GuessedStatistics
from millpond.planner.optimize.strategies import apply_strategy
from millpond.planner.resolve.names import Names

#: EXPLAIN names at most this many of the queries that share an operator.
_NAMED = 5


@dataclass(frozen=True, eq=False)
class Plan:
    """How a query's changes are computed.

    Attributes:
        root: The node whose output is R's changes, with every expiration announced.
        output: The answer's columns.
        to_stream: None for the changes of a relation-valued query; else 'istream', 'dstream' or
            'rstream', whose elements are given with the sign +.
        strategy: How readers learn that rows have left.
        fallback: Why a part of the query is recomputed at every change; None if no part is.
        estimates: The estimate of each node, by the node's key.
        cost: The share of one core's time that the plan is expected to add to what runs.
        basis: What the estimates rest on.
        lazy_expiration: How often the plan's operators purge expired state, in microseconds; None:
            when as much has expired as is alive. It is no part of the key: plans with different
            intervals share operators.
        written: The logical key of the plan as the query writes it.
        core: The last operator below an RSTREAM, before operators were taken out of sharing, and
            windows put over what they share.
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
    written: str = ""
    core: Node | None = field(default=None, repr=False)

    def read_choices(self) -> dict[str, Choice]:
        """Read all that was to choose of it; another strategy than `aware` leaves no choice."""
        if self.strategy != "aware" or self.core is None:
            return {}
        return read_choices(self.written, self.core)

    @kept_property
    def key(self) -> str:
        """The sink's key: equal for queries whose changes have equal rows and column names."""
        names = ",".join(self.output.names)
        return f"{self.root.key}:{self.to_stream or 'changes'}:{names}"

    @kept_property
    def schema(self) -> pa.Schema:
        """The columns of the plan's changes: `__at`, `__sign` and the answer's columns."""
        fields = [pa.field("__at", pa.int64()), pa.field("__sign", pa.int8())]
        for name, column in zip(self.output.names, self.root.schema, strict=True):
            fields.append(pa.field(name, column.type))
        return pa.schema(fields)

    @kept_property
    def needs(self) -> dict[str, tuple[str, ...]]:
        """For each stream, the columns its feed must have beside `__ts` and `__seq`."""
        return self._needs("stream")

    @kept_property
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
                hidden = (SEQUENCE, TIMESTAMP, LOG, LOGS)
                own.update(dict.fromkeys(c for c in some if c not in hidden))
        return {name: tuple(columns) for name, columns in found.items()}

    def reach(self, at: int, answers: bool = False) -> dict[str, int | None]:
        """Compute, for each stream, the least timestamp of an element that matters after `at`.

        A dataflow that was fed the elements from that timestamp up to `at` continues exactly as a
        dataflow that was fed all elements. None: every element matters.

        Args:
            at: The instant.
            answers: Whether the rows that are there at the instant matter themselves.
        """
        found: dict[str, int | None] = {}
        # Operators that handle each row by itself do not need old rows that never leave.
        stack: list[tuple[Node, bool, int | None]] = [(self.root, answers, at + 1)]
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
        """The plan as indented text: operators, their edges' patterns, their state's structures."""
        return self.explain_among({})

    def explain_among(
        self,
        users: Mapping[str, Sequence[str]],
        purging: Mapping[str, Set[int | None]] | None = None,
        notes: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Explain the plan as `explained`, with the queries that share each node.

        Args:
            users: By a node's key, the names of the queries that share the node.
            purging: By a node's key, the intervals at which these queries want it to purge.
            notes: By a node's key, what else is to be said of it.
        """
        lines = _explain(self.root, 0, set(), users, purging or self.purging, notes)
        return "\n".join(lines)

    def explain_estimates_among(
        self,
        users: Mapping[str, Sequence[str]],
        purging: Mapping[str, Set[int | None]] | None = None,
        notes: Mapping[str, str] = MappingProxyType({}),
        measured: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Explain the plan as `explain_among`, with each edge's estimate and each node's cost.

        What is `measured` of a node is said behind them.
        """
        among = (users, purging or self.purging, notes)
        return "\n".join(_explain(self.root, 0, set(), *among, self.estimates, measured))

    @property
    def purging(self) -> dict[str, set[int | None]]:
        """Return `find_purge_intervals` of this plan alone."""
        return find_purge_intervals([(self, (self.lazy_expiration,))])

    def nodes(self) -> Iterator[Node]:
        """List every node once, inputs before the nodes that read them."""
        yield from list_in_order([self.root])

    def list_keys(self) -> set[str]:
        """List the keys of its nodes, and of those in whose place it has windows that are shared.

        The cost of a plan is estimated before windows are put over what they share.
        """
        roots = [self.root] if self.core is None else [self.root, self.core]
        return {node.key for node in list_in_order(roots)}


#: Says which nodes' output a node takes.
InputsOf = Callable[[Node], tuple[Node, ...]]


def _list_inputs(node: Node) -> tuple[Node, ...]:
    return node.inputs


def find_needed_columns(
    roots: list[Node], inputs_of: InputsOf = _list_inputs
) -> dict[str, Set[int]]:
    """Find, for every node in the plans of `roots`, the places of its columns that are read.

    Of inputs that `inputs_of` adds to a node's own, the same columns are read as of its last.
    """
    found: dict[str, Set[int]] = {}
    for root in roots:
        found[root.key] = frozenset(range(len(root.schema)))
    for node in reversed(list(list_in_order(roots, inputs_of))):
        inputs, reads = inputs_of(node), node.reads(found[node.key])
        for number, below in enumerate(inputs):
            places = reads[min(number, len(reads) - 1)]
            found[below.key] = found.get(below.key, frozenset()) | places
    return found


def find_readers(plans: Mapping[str, Plan]) -> dict[str, list[str]]:
    """Find, for every node by its key, the names of the plans that contain it."""
    found: dict[str, list[str]] = {}
    for name, plan in plans.items():
        for node in plan.nodes():
            found.setdefault(node.key, []).append(name)
    return found


def find_purge_intervals(
    plans: Iterable[tuple[Plan, Iterable[int | None]]],
) -> dict[str, set[int | None]]:
    """Find, for every purging node by its key, the intervals its plans want.

    Args:
        plans: Each plan with the `lazy_expiration` intervals of the queries that use it.
    """
    found: dict[str, set[int | None]] = {}
    for plan, intervals in plans:
        for node in plan.nodes():
            if node.purges:
                found.setdefault(node.key, set()).update(intervals)
    return found


def explain_together(
    plans: Mapping[str, Plan], notes: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Explain named plans as one graph: each node once, with the plans that share it.

    Args:
        plans: The plans, by name.
        notes: By node key, what else is to be said of a node.
    """
    users, shown, lines = find_readers(plans), set[str](), []
    purging = find_purge_intervals((plan, (plan.lazy_expiration,)) for plan in plans.values())
    for name, plan in plans.items():
        lines.append(f"changes of {name}")
        lines += _explain(plan.root, 1, shown, users, purging, notes)
    return "\n".join(lines)


def _explain(
    node: Node,
    depth: int,
    shown: set[str],
    users: Mapping[str, Sequence[str]],
    purging: Mapping[str, Set[int | None]],
    notes: Mapping[str, str] = MappingProxyType({}),
    expected: Mapping[str, NodeEstimate] = MappingProxyType({}),
    measured: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """List the lines of a node and the nodes below it; skip nodes that were shown before."""
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
    if node.key in notes:
        state += f", {notes[node.key]}"
    estimate = expected.get(node.key)
    about = f"  {_format_estimate(estimate)}" if estimate is not None else ""
    if node.key in measured:
        about += f"; {measured[node.key]}"
    yield f"{'  ' * depth}{node.name}{detail}  ({node.pattern.name}{state}){by}{about}"
    for below in node.inputs:
        yield from _explain(below, depth + 1, shown, users, purging, notes, expected, measured)


def _describe_purging(intervals: Collection[int | None]) -> str:
    """Describe how often state is purged; nothing if no query says."""
    lengths = [i for i in intervals if i is not None]
    if not lengths:
        return ""
    every = (
        f", purged every {duration_text(min(lengths))}"
        if min(lengths)
        else ", purged at every step"
    )
    return every + " or when half has expired" * (None in intervals)


def _list_first(names: Sequence[str]) -> str:
    """List the first few names, and "…" if there are more."""
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


def _format_estimate(estimate: NodeEstimate) -> str:
    flow = estimate.output
    alive = "" if math.isinf(flow.life) else f", {flow.rows:,.3g} alive"
    return f"≈ {flow.changes:,.3g} changes/s{alive}, {estimate.work / 1e3:,.3g} µs/s"


def list_in_order(roots: list[Node], inputs_of: InputsOf = _list_inputs) -> Iterator[Node]:
    """List the nodes of the plans of `roots`, each key once, inputs before their readers."""
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
            stack += [(i, False) for i in reversed(inputs_of(node))]


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
    choices: Choices = MappingProxyType({}),
    owner: str = "",
    in_order: bool = True,
) -> Plan:
    """Plan the changes of a bound query.

    Args:
        bound: The query.
        catalog: The catalog it was bound with.
        seed: The seed of its samples; the n-th leaf's seed is seed + n.
        strategy: A value of the option `strategy`; the changes are equal by every strategy.
        known: The statistics of the streams; none by default.
        partitions, rules: As of `strategies.apply_strategy`.
        lazy_expiration: As of `Plan`.
        choices: What somebody chose of operators.
        owner: Whose the operators are that no queries are to share.
        in_order: As of `TimeWindow`: whether elements come in the order of their timestamps, as
            they do up to instants that are final.

    Raises:
        MillpondError: CQL-214, the strategy cannot serve this query; CQL-224, it asks summaries.
    """
    if bound.estimates:
        raise MillpondError(
            "CQL-224",
            "the changes of a query with estimates cannot be followed",
            detail="Estimates are of the summaries as they are when an answer is asked for.",
            hint="INVOKE the query, or leave the estimates out of what is followed.",
            text=bound.text,
        )
    columns = {f.table: (*f.columns, *f.hidden) for f in bound.streams}
    columns.update({f.table: (*f.columns, *f.hidden) for f in bound.relations})
    leaves = _plan_leaves(bound, catalog, seed, in_order)
    compiler = Compiler(bound, leaves, columns, choices, shares=in_order)
    known = known or GuessedStatistics()
    written = compiler.compile_query().node
    core = apply_strategy(written, strategy, known, partitions, rules, choices)
    root = separate_nodes(core, choices, owner)
    if in_order:
        root = share_windows(root)
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
        written.logical_key,
        core,
    )


def _plan_leaves(
    bound: BoundQuery, catalog: Names, seed: int, in_order: bool = True
) -> dict[str, Node]:
    """Plan the streams and relations: their nodes, by their leaves' table names."""
    leaves: dict[str, Node] = {}
    for number, leaf in enumerate(bound.streams):
        definition = catalog.find(leaf.stream)
        assert isinstance(definition, StreamDef)
        leaves[leaf.table] = stream_node(
            leaf,
            definition,
            seed + number,
            with_timestamp=bool(leaf.hidden),
            with_sequence=len(leaf.hidden) > 1,
            in_order=in_order,
        )
    for relation in bound.relations:
        declared = catalog.find(relation.relation)
        assert isinstance(declared, RelationDef)
        leaves[relation.table] = (
            plan_versions(relation, declared, bound.streams)
            if relation.hidden
            else relation_node(relation, declared)
        )
    return leaves


def _plan_ticks(bound: BoundQuery, catalog: Names) -> tuple[Node, ...]:
    """Plan when RSTREAM gives its relation: at elements, updates and ends of SLIDE's steps."""
    found: dict[str, Node] = {}
    for leaf in bound.streams:
        elements: Node = StreamSource(leaf.stream, (TIMESTAMP,), (pa.int64(),))
        ticks: list[Node] = [Instants(elements)]
        if isinstance(leaf.window, Range) and leaf.window.slide is not None:
            definition = catalog.find(leaf.stream)
            assert isinstance(definition, StreamDef)
            # The window without the query's other conditions: they do not move the ticks.
            ticks.append(
                Boundaries(stream_node(leaf, definition, 0, whole=True), leaf.window.slide)
            )
        found.update({tick.key: tick for tick in ticks})
    for relation in bound.relations:
        declared = catalog.find(relation.relation)
        assert isinstance(declared, RelationDef)
        # All columns: an update of a column that the query does not read is an update.
        names = tuple(field.name for field in declared.schema.fields)
        tick = Instants(relation_node(replace(relation, columns=names), declared))
        found[tick.key] = tick
    return tuple(found.values())
