"""The operators of a dataflow, in order, and which reads which."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import cast

from millpond.engine.dataflow.failures import to_millpond_error
from millpond.engine.dataflow.lenders import find_lending
from millpond.engine.dataflow.scheduling.protocol import OperatorRates
from millpond.engine.dataflow.work import OperatorWork, find_width
from millpond.errors import MillpondError
from millpond.operators.protocol.delta import Delta
from millpond.operators.protocol.node import Node, Operator, Releaser, Scalars, Serving, Stateless
from millpond.operators.protocol.releasing import Constraints
from millpond.operators.protocol.stubs import Keeper, Stub, StubOperator
from millpond.operators.windows.shared_window import KeepingElements
from millpond.planner.dataflow.plan import Plan, find_needed_columns, list_in_order

#: Of an operator that has not run: seconds per byte.
_COST = 1e-9


class Arrangement:
    """The nodes of some plans, inputs before their readers; a node's place is its number.

    Attributes:
        nodes: The nodes.
        lending: Which of them take other inputs than their plans say.
        reads: By node key, the places of its columns that other nodes read.
        timed: Nodes below a node that asks when rows came: their rows must keep the instant they
            came.
        operators: By node key, what runs it.
        work: By node key, what its operator did.
        inputs: By place, the places of the node's inputs.
        readers: By place, the places of the nodes that read its output.
        stores: By the key of a node, that of the store of what several nodes keep: of these nodes
            the one to which the store's rows are counted.
        added: The keys of the nodes that no plan has.
        handed: The keys of operators between which rows were handed over.
        frees: By place, the outputs that nobody needs when the node has run after all before it.
        roots: By place, the keys of the plans of which it is the root.
        widths: By place, the bytes of a row of its output, about.
    """

    def __init__(
        self,
        plans: Mapping[str, Plan],
        *held: Arrangement,
    ) -> None:
        """Arrange the nodes of plans.

        Args:
            plans: The plans, by their keys.
            held: Where operators and their work are taken from, those before the others.
        """
        roots = [plan.root for plan in plans.values()]
        self.nodes = list(list_in_order(roots))
        self.reads = find_needed_columns(roots)
        self.lending = find_lending(self.nodes, self.reads)
        inputs_of = self.lending.inputs_of
        self.added: frozenset[str] = frozenset()
        if self.lending.inputs:
            planned = {node.key for node in self.nodes}
            stubs = self.lending.stubs
            self.nodes = [stubs.get(n.key, n) for n in list_in_order(roots, inputs_of)]
            self.reads = find_needed_columns(roots, inputs_of)
            self.added = frozenset(node.key for node in self.nodes) - planned
        self.timed = _find_timed(self.nodes)
        known: dict[str, Operator] = {}
        done: dict[str, OperatorWork] = {}
        for before in reversed(held):
            known.update(before.operators)
            done.update(before.work)
        self.operators: dict[str, Operator]
        self.work: dict[str, OperatorWork]
        self.operators = {n.key: known.get(n.key) or _start_operator(n) for n in self.nodes}
        self.work = {n.key: done.get(n.key) or OperatorWork() for n in self.nodes}
        self._set_lenders(known)
        self.handed: set[str] = set()
        self._hand_over(known)
        self.stores = _find_stores(self.nodes)
        self._places = places = {node.key: place for place, node in enumerate(self.nodes)}
        self.inputs = [tuple(places[i.key] for i in inputs_of(node)) for node in self.nodes]
        readers: list[dict[int, None]] = [{} for _ in self.nodes]
        for place, below in enumerate(self.inputs):
            for one in below:
                readers[one][place] = None
        self.readers = [tuple(some) for some in readers]
        self.frees: list[list[int]] = [[] for _ in self.nodes]
        for place, some in enumerate(self.readers):
            self.frees[max(some, default=place)].append(place)
        self.roots: dict[int, list[str]] = {}
        for key, plan in plans.items():
            self.roots.setdefault(places[plan.root.key], []).append(key)
        self.widths = [find_width(node.schema) for node in self.nodes]

    def _set_lenders(self, known: Mapping[str, Operator]) -> None:
        """Tell stores of elements who keeps them for them from now on."""
        for node in self.nodes:
            store = self.operators[node.key]
            if isinstance(store, KeepingElements):
                key = self.lending.find_lender(node)
                if store.lender not in (None, key):
                    store.take_back(cast(KeepingElements, known[store.lender]))
                store.lender = key

    def _hand_over(self, known: Mapping[str, Operator]) -> None:
        """Hand over the rows of nodes that others have joined, or left alone."""
        for node in self.nodes:
            before = known.get(node.key)
            if isinstance(node, Stub) and isinstance(before, Keeper):
                store = cast(Keeper, self.operators[node.input.key])
                self.operators[node.key] = _start_operator(node)
                store.take_over(before.hand_over(node.lengths), node.lengths)
                self.handed |= {node.key, node.input.key}
            elif isinstance(before, StubOperator) and not isinstance(node, Stub):
                own = self.operators[node.key] = _start_operator(node)
                store = cast(Keeper, known[before.store])
                cast(Keeper, own).take_over(store.hand_over(before.lengths), before.lengths)
                self.handed.add(node.key)

    def take_back(self, keys: Iterable[str]) -> None:
        """Have the stores among some operators keep all of their elements themselves for now."""
        for key in keys:
            store = self.operators.get(key)
            if isinstance(store, KeepingElements) and store.lender is not None:
                store.take_back(cast(KeepingElements, self.operators[store.lender]))

    def start(self, node: Node, constraints: Constraints) -> Operator:
        """Make a new operator of a node."""
        operator = _start_operator(node)
        self.tell(node, operator, constraints)
        return operator

    def tell(self, node: Node, operator: Operator, constraints: Constraints) -> None:
        """Tell an operator who reads which columns, and by which rules it releases rows."""
        if node.is_stateless:
            cast(Stateless, operator).needed = self.reads[node.key]
        if node.serves_readers and not isinstance(operator, Unstartable):
            readers = self._list_readers(node)
            for reader in list(readers):
                if self.lending.find_lender(reader) == node.key:
                    readers += self._list_readers(reader)
            cast(Serving, operator).serve(self.reads[node.key], readers)
        if isinstance(operator, Releaser):
            operator.set_release_rules(node.find_release_rules(constraints))

    def _list_readers(self, node: Node) -> list[Node]:
        return [self.nodes[place] for place in self.readers[self._places[node.key]]]

    def purge_stores(
        self, intervals: Mapping[str, Collection[int | None]]
    ) -> dict[str, Collection[int | None]]:
        """Have what several nodes keep be purged as often as any of them wants."""
        found = dict(intervals)
        for key, stub in self.lending.stubs.items():
            store = stub.input.key
            found[store] = {*found.get(store, ()), *found.pop(key)}
        return found

    def list_rates(self) -> list[OperatorRates]:
        """The rates of the operators as measured so far, in bytes, by place."""
        found = []
        for node, readers in zip(self.nodes, self.readers, strict=True):
            work = self.work[node.key]
            cost = work.cost or _COST
            found.append(OperatorRates(readers, cost, work.selectivity if readers else 0.0))
        return found

    def list_above(self, place: int) -> Iterator[int]:
        """List a place and those of all nodes that read its output, directly or not."""
        seen, waiting = {place}, [place]
        while waiting:
            one = waiting.pop()
            yield one
            some = [reader for reader in self.readers[one] if reader not in seen]
            seen.update(some)
            waiting += some


def _find_stores(nodes: Sequence[Node]) -> dict[str, str]:
    """Find to which nodes the rows are counted that stores keep for several: the longest ones."""
    longest: dict[str, Stub] = {}
    for node in nodes:
        if isinstance(node, Stub):
            longest[node.input.key] = max(
                longest.get(node.input.key, node),
                node,
                key=lambda one: (sorted(one.lengths, reverse=True), one.key),
            )
    return {stub.key: store for store, stub in longest.items()}


def _find_timed(nodes: Sequence[Node]) -> set[str]:
    """Find the nodes below an input of a node that asks when its rows came.

    The nodes are given in order, inputs first.
    """
    found: set[str] = set()
    for node in reversed(nodes):
        timed: Iterable[Node]
        timed = node.inputs if node.is_window or node.key in found else node.timed_inputs
        found.update(below.key for below in timed)
    return found


class Unstartable:
    """Stands for an operator that could not be made; each of its steps fails with the reason."""

    def __init__(self, error: MillpondError) -> None:
        self._error = error

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        raise self._error

    def size(self) -> int:
        return 0


def _start_operator(node: Node) -> Operator:
    try:
        return node.operator()
    except Exception as error:
        return Unstartable(to_millpond_error(error))
