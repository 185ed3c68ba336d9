"""Which of several equivalent plans is expected to cost least (Update patterns, 5.4).

The choices, at each edge and operator:

- whether rows carry their expirations over an edge, or a negative tuple announces each (2.3): an
  `Expire` node anywhere between the window and the first operator that needs negative tuples;
- duplicate elimination by counting, or, where nothing is announced below it, by δ*, whose output
  carries expirations or announces them (5.3.1);
- in how many partitions rows wait for their expiration (5.3.2);
- each of the rewritings (5.4.2).

The paper decides most of this by the patterns alone. It leaves the rest to a cost model, because
announcing costs less than waiting where results are large, and because pulling a negation up costs
more than it saves where the join below it is large (6.6). Here every choice that the patterns leave
is made by cost. Every node estimates its own work and its output edge
(`operators/protocol/cost_model.py`). A plan is built from the leaves up. For each subplan two forms
are kept, the cheapest that carries expirations and the cheapest that announces them, because the
form that is cheaper below may make the operators above more expensive.

What somebody chose (`choices.py`) goes before what costs less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import combinations, product
from types import MappingProxyType
from typing import Protocol

from millpond.operators.distinct_announcing import DistinctAnnouncing
from millpond.operators.distinct_delta_star import DistinctDeltaStar
from millpond.operators.expire import Expire
from millpond.operators.protocol.cost_model import (
    CALLED,
    DELIVERED,
    WOKEN,
    EdgeEstimate,
    StreamStatistics,
    estimate_wakeups,
)
from millpond.operators.protocol.node import Node
from millpond.operators.protocol.releasing import Constraints
from millpond.operators.set_operations import SetOperation
from millpond.operators.structures.expiration_queues import PARTITIONS
from millpond.planner.optimize.choices import CARRIED, NOTHING, Choices, find_distinct_form
from millpond.planner.optimize.corrections import correct_output
from millpond.planner.optimize.rules import RULES, Rule, rewrite

#: The numbers of partitions to choose from; the paper tried 10 and 50 (figure 10).
CHOICES = (PARTITIONS, 50, 200)
#: Nodes with more inputs than this take all of them in the same form.
_MANY = 4
#: A form that releases rows by what was only observed may take so many times the work of others.
_WORTH = 1.5


class PlanStatistics(StreamStatistics, Protocol):
    """What a pond knows about its streams and its running nodes.

    Attributes:
        running: Keys of the nodes that run already; another query that reads them adds nothing to
            their work. So queries share nodes where they can, even if each query alone would get
            another plan.
        constraints: The constraints of the streams, by their names.
        corrections: How many times as many changes operators were seen to give as is estimated
            (`corrections.py`).
    """

    running: Set[str]
    constraints: Constraints
    corrections: Mapping[str, float]

    def basis(self, stream: str) -> str:
        """Say what a stream's figures rest on, for EXPLAIN."""
        ...


@dataclass(frozen=True)
class NodeEstimate:
    """The estimate of a node.

    Attributes:
        output: The estimate of its output edge.
        work: Nanoseconds per second of stream time that the node takes, without its inputs.
    """

    output: EdgeEstimate
    work: float


@dataclass(frozen=True)
class _Form:
    """A way to compute a subplan, and its cost with everything below it.

    `strays` counts its operators that are not what somebody chose.
    """

    node: Node
    output: EdgeEstimate
    cost: float
    strays: int = 0

    @property
    def rank(self) -> tuple[int, float]:
        """The least is the best."""
        return (self.strays, self.cost)


def find_cheapest(
    root: Node,
    known: PlanStatistics,
    partitions: int | None = None,
    rules: tuple[Rule, ...] = RULES,
    choices: Choices = MappingProxyType({}),
) -> Node:
    """Find the plan that is expected to cost least, without expirations on its last edge.

    Args:
        root: A plan, with or without `Expire` nodes.
        known: The statistics of the streams.
        partitions: How many partitions by expiration time state has; None: as many as cost least.
        rules: The rewritings to choose from.
        choices: What was chosen of operators.
    """
    numbers = CHOICES if partitions is None else (partitions,)
    logical: dict[str, Node] = {}
    stripped = strip_expire(root)
    tried: list[tuple[set[Rule], set[Rule]]] = []
    for some in _subsets(rules):
        # Without a rule that did not apply the plan is the same.
        if any(applied <= set(some) <= given for applied, given in tried):
            continue
        applied = set[Rule]()
        plan = rewrite(stripped, some, applied)
        tried.append((applied, set(some)))
        logical.setdefault(plan.key, plan)
    wanted = choices.get(root.logical_key, NOTHING).rewritten
    chosen = [plan for plan in logical.values() if plan.logical_key == wanted]
    best: tuple[tuple[int, float], Node] | None = None
    for plan in chosen or logical.values():
        for form in _Forms(known, numbers, choices).of(plan):
            if form.node.carries_expirations:
                continue
            rank = (form.strays, sum_cost(form.node, known))
            if best is None or rank < best[0]:
                best = (rank, form.node)
    assert best is not None
    return best[1]


def estimate_nodes(root: Node, known: PlanStatistics) -> dict[str, NodeEstimate]:
    """Estimate each node of a plan; return the estimates by the nodes' keys."""
    found: dict[str, NodeEstimate] = {}

    def visit(node: Node) -> EdgeEstimate:
        if node.key not in found:
            inputs = [visit(i) for i in node.inputs]
            own = correct_output(node, node.estimate(inputs, known), known.corrections)
            work = node.estimate_work(inputs, own, known) + _cost_of_calling(inputs, known)
            found[node.key] = NodeEstimate(own, work)
        return found[node.key].output

    visit(root)
    return found


def sum_cost(root: Node, known: PlanStatistics) -> float:
    """Sum the work a plan adds to what runs, in nanoseconds per second of stream time."""
    return sum_costs([(root, known)])


def sum_costs(plans: Iterable[tuple[Node, PlanStatistics]]) -> float:
    """Sum the work that plans add to what runs, as `sum_cost`; what they share counts once."""
    work: dict[str, float] = {}
    delivered = 0.0
    for root, known in plans:
        found = estimate_nodes(root, known)
        work |= {key: e.work for key, e in found.items() if key not in known.running}
        delivered += DELIVERED * found[root.key].output.changes
    return sum(work.values()) + delivered


def _subsets(rules: tuple[Rule, ...]) -> Iterator[tuple[Rule, ...]]:
    """List all subsets, the full set first: of equally cheap plans the most rewritten is taken."""
    for many in range(len(rules), -1, -1):
        yield from combinations(rules, many)


def strip_expire(node: Node) -> Node:
    """Remove the `Expire` nodes from a plan: they say how rows leave, not what is computed."""
    return rewrite(node, (_without_expire,))


def _without_expire(node: Node) -> Node | None:
    return node.input if isinstance(node, Expire) else None


def is_distinct(node: Node) -> bool:
    return isinstance(node, DistinctDeltaStar | DistinctAnnouncing) or (
        isinstance(node, SetOperation) and node.rule == "distinct"
    )


def _is_strict(node: Node) -> bool:
    """Whether rows of a node's input may leave before their time, so that δ* cannot be used."""
    return node.inputs[0].announces


def _distinct_operators(over: Node, counts: bool) -> Iterator[Node]:
    """List the operators that can eliminate the duplicates of one form of their input."""
    if not over.announces:
        yield DistinctDeltaStar(over)
        yield DistinctAnnouncing(over)
    elif counts and not over.carries_expirations:
        yield SetOperation((over,), "distinct")


class _Forms:
    """The cheapest forms of the subplans of one plan."""

    def __init__(self, known: PlanStatistics, numbers: Sequence[int], choices: Choices) -> None:
        self._known, self._numbers, self._choices = known, numbers, choices
        self._found: dict[str, list[_Form]] = {}

    def of(self, node: Node) -> list[_Form]:
        """Find the cheapest form of each kind that the node has.

        What reads a form asks whether it carries expirations, and whether it announces rows that
        leave before their time: δ* reads none that does. So of these four kinds none is dropped
        because one of another kind is cheaper.
        """
        found = self._found.get(node.key)
        if found is None:
            found = self._found[node.key] = self._compare(node)
        return found

    def _compare(self, node: Node) -> list[_Form]:
        cheapest: dict[tuple[bool, bool], _Form] = {}
        chosen = self._choices.get(node.logical_key, NOTHING).expire
        waiting = [n for n in chosen if n != CARRIED] or self._numbers

        def note(form: _Form, expire: int) -> None:
            if form.node.carries_expirations or expire != CARRIED:
                form = _stray(form, bool(chosen) and expire not in chosen)
            kind = form.node.carries_expirations, form.node.announces
            if kind not in cheapest or form.rank < cheapest[kind].rank:
                cheapest[kind] = form

        for form in self._choose_releasing(list(self._build(node))):
            note(form, CARRIED)
            if form.node.carries_expirations:
                for partitions in waiting:
                    note(self._estimate_form(Expire(form.node, partitions), [form]), partitions)
        return sorted(cheapest.values(), key=_is_explicit)

    def _choose_releasing(self, forms: list[_Form]) -> list[_Form]:
        """Choose the forms whose rows constraints of streams release; all, if there are none.

        They may take more work; not much more, if constraints were only observed. Below them no
        `Expire` keeps the rows that they release.
        """
        known = self._known.constraints
        rules = [f.node.find_release_rules(known) if known else () for f in forms]
        found = [f for f, own in zip(forms, rules, strict=True) if own]
        if not found or any(not rule.constraint.observed for own in rules for rule in own):
            return found or forms
        most = _WORTH * min(f.cost for f in forms)
        return [f for f in found if f.cost <= most] or forms

    def _build(self, node: Node) -> Iterator[_Form]:
        """Build the node over every combination of forms of its inputs that it can read."""
        forms = [
            [f for f in self.of(i) if not wants or _is_explicit(f)]
            for i, wants in zip(node.inputs, node.needs_explicit, strict=True)
        ]
        if len(forms) > _MANY:
            forms = [some[:1] for some in forms]
        for inputs in product(*forms):
            refused = zip(inputs, node.refuses_negatives, strict=True)
            if any(refuses and f.node.announces for f, refuses in refused):
                continue
            over = [f.node for f in inputs]
            if not is_distinct(node):
                same = node if tuple(over) == node.inputs else node.over_inputs(over)
                yield self._estimate_form(same, inputs)
                continue
            chosen = self._choices.get(node.logical_key, NOTHING).distinct
            for built in _distinct_operators(over[0], _is_strict(node) or chosen == "counts"):
                form = self._estimate_form(built, inputs)
                yield _stray(form, bool(chosen) and find_distinct_form(built) != chosen)

    def _estimate_form(self, node: Node, inputs: Sequence[_Form]) -> _Form:
        flows = [f.output for f in inputs]
        own = correct_output(node, node.estimate(flows, self._known), self._known.corrections)
        work = 0.0
        if node.key not in self._known.running:
            work = node.estimate_work(flows, own, self._known) + _cost_of_calling(
                flows, self._known
            )
        strays = sum(f.strays for f in inputs)
        return _Form(node, own, work + sum(f.cost for f in inputs), strays)


def _stray(form: _Form, is_other: bool) -> _Form:
    """Count a form that is not the one that was chosen."""
    return replace(form, strays=form.strays + 1) if is_other else form


def _cost_of_calling(inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> float:
    """Estimate the fixed cost of calling an operator."""
    changes = sum(i.changes for i in inputs)
    return CALLED * known.steps + WOKEN * estimate_wakeups(changes, known)


def _is_explicit(form: _Form) -> bool:
    return not form.node.carries_expirations
