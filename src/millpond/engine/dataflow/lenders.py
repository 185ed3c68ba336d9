"""Selections that imply each other: the elements of the narrower one are kept by the wider one.

Who is in `v > 500` is in `v > 100`. Where windows over both are followed, the store of the wider
selection has the elements of the narrower one already, and that keeps their numbers there alone
(`operators/windows/shared_window.py`; CACQ, SIGMOD 2002, section 3.2.2, does it with bitmaps over
one copy of each tuple). The narrower selection chooses from what the wider one gave.

Which store lends to which is said of the plans that run together, whichever came first. Plans do
not change, nor do their keys: nodes get other inputs while they run together.

INV-LEND-1: a lender's windows reach back at least as far as those of who borrows, and read the same
columns or more, so that nobody keeps more because of others.
INV-LEND-2: a lender does not borrow, and its selection cannot fail on a row.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import sqlglot
from sqlglot import exp

from millpond.engine.dataflow.shared_distincts import share_distinct
from millpond.engine.dataflow.shared_joins import share_join
from millpond.engine.dataflow.stubs import choose_stubs
from millpond.engine.predicates.factors import Factors, assemble, factorize
from millpond.engine.values.value_sets import ValueSet
from millpond.model.schema import Field, Schema
from millpond.model.windows import Range, Window, interval
from millpond.operators.distinct_announcing import DistinctAnnouncing
from millpond.operators.join import Join
from millpond.operators.protocol.node import Node
from millpond.operators.protocol.stubs import Stub
from millpond.operators.select import Select
from millpond.operators.windows.shared_window import KeptElements, SharedWindow
from millpond.planner.dataflow.column_types import type_names

#: Of the stores of a stream, so many are looked at as lenders: those with the longest windows.
_MOST = 16
#: Windows are compared as of this instant.
_SOME_INSTANT = 1 << 50


@dataclass(frozen=True)
class Lending:
    """Who keeps elements for whom.

    Attributes:
        lenders: By the key of a node that keeps elements, the node that keeps them for it.
        stubs: By the key of a node, what runs in its place, over what is kept for several nodes.
        inputs: By the key of a node that has other inputs because of it, these inputs.
    """

    lenders: Mapping[str, Node] = field(default_factory=dict)
    stubs: Mapping[str, Stub] = field(default_factory=dict)
    inputs: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)

    def inputs_of(self, node: Node) -> tuple[Node, ...]:
        """The nodes whose output a node takes."""
        return self.inputs.get(node.key, node.inputs)

    def find_lender(self, node: Node) -> str | None:
        """The key of the node that keeps elements for a node; None if none does."""
        lender = self.lenders.get(node.key)
        return None if lender is None else lender.key

    def describe(self) -> dict[str, str]:
        """Describe, by node key, what nodes take of others, for EXPLAIN."""
        found = {}
        together = Counter(stub.input.key for stub in self.stubs.values())
        for key, stub in self.stubs.items():
            found[key] = f"kept once for {together[stub.input.key]} {stub.several}"
        for key, lender in self.lenders.items():
            found[key] = f"as numbers of the elements of {_name(lender)}"
            own, _ = self.inputs[key]
            (below,) = self.inputs[own.key]
            if isinstance(below, Select):
                found[own.key] = f"from the rows of {below.detail}"
        return found


def _name(store: Node) -> str:
    (below,) = store.inputs
    return below.detail if isinstance(below, Select) else "all rows"


def find_lending(nodes: Sequence[Node], reads: Mapping[str, Set[int]]) -> Lending:
    """Find who keeps elements for whom among the nodes of plans that run together.

    Args:
        nodes: The nodes.
        reads: By node key, the places of its columns that are read.
    """
    stores: defaultdict[str, list[KeptElements]] = defaultdict(list)
    windows: defaultdict[str, list[Window]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, KeptElements) and not node.owner:
            stores[_find_source(node).key].append(node)
        elif isinstance(node, SharedWindow):
            windows[node.input.key].append(node.window)
    lenders: dict[str, Node] = {}
    inputs: dict[str, tuple[Node, ...]] = {}
    for some in stores.values():
        if len(some) > 1:
            lenders.update(_find_lenders(some, windows, reads))
    for node in nodes if lenders else ():
        lender = lenders.get(node.key)
        if lender is not None:
            (own,), (others,) = node.inputs, lender.inputs
            inputs[node.key] = (own, lender)
            inputs[own.key] = (others,)
    stubs = choose_stubs(stub for node in nodes if (stub := _make_stub(node)) is not None)
    inputs.update((key, stub.inputs) for key, stub in stubs.items())
    return Lending(lenders, stubs, inputs)


def _make_stub(node: Node) -> Stub | None:
    """Make what could run in the place of a node, over what is kept for several; None: nothing."""
    if isinstance(node, Join):
        return share_join(node)
    return share_distinct(node) if isinstance(node, DistinctAnnouncing) else None


def _find_source(store: KeptElements) -> Node:
    """The node from which a store's elements are selected."""
    return store.input.input if isinstance(store.input, Select) else store.input


def _find_lenders(
    stores: Sequence[KeptElements],
    windows: Mapping[str, Sequence[Window]],
    reads: Mapping[str, Set[int]],
) -> Iterator[tuple[str, Node]]:
    """Find the lenders of stores over one stream."""
    reaches = {store.key: _find_reaches(windows.get(store.key, ())) for store in stores}
    factors = {store.key: _read_factors(store) for store in stores}
    # A selection that compares columns with constants cannot fail; one that is never true has
    # nothing to lend.
    wide = [s for s in stores if not (factors[s.key].others or factors[s.key].never)]
    wide = sorted(wide, key=lambda store: (-reaches[store.key][0], store.key))[:_MOST]

    def may_borrow(store: KeptElements, lender: KeptElements) -> bool:
        if store is lender:
            return False
        reaches_further = reaches[store.key][1] > reaches[lender.key][0]
        if reaches_further and not set(windows[store.key]) <= set(windows[lender.key]):
            return False
        if not reads[store.key] <= reads[lender.key]:
            return False
        own = factors[store.key]
        if own.never or not _is_implied(own, factors[lender.key]):
            return False
        # Of two that imply each other, one lends.
        return store.key > lender.key or not may_borrow(lender, store)

    lending = [w for w in wide if not any(may_borrow(w, other) for other in wide)]
    for store in stores:
        found = [lender for lender in lending if may_borrow(store, lender)]
        # The one with the most conjuncts has the fewest elements.
        best = max(found, key=lambda one: (_count_conjuncts(one), one.key), default=None)
        if best is not None:
            yield store.key, best


def _find_reaches(windows: Sequence[Window]) -> tuple[float, float]:
    """How far back the longest of some windows reaches, at least and at most."""
    least = most = float("-inf")
    for window in windows:
        if isinstance(window, Range):
            least = max(least, window.size)
            most = max(most, window.size + (window.slide or 0))
        else:
            low, _ = interval(window, _SOME_INSTANT)
            reach = float("inf") if low is None else float(_SOME_INSTANT - low)
            least, most = max(least, reach), max(most, reach)
    return least, most


def _count_conjuncts(store: KeptElements) -> int:
    return len(store.input.predicates) if isinstance(store.input, Select) else 0


@lru_cache(maxsize=1 << 16)
def _is_implied(own: Factors, wider: Factors) -> bool:
    """Whether each row that a selection chooses is chosen by another, over the same rows, too."""
    both = assemble(
        [*_list_clauses(own), *_list_clauses(wider)], dict.fromkeys((*own.others, *wider.others))
    )
    return both.key == own.key


def _list_clauses(factors: Factors) -> Iterator[dict[str, ValueSet]]:
    yield from ({attribute: values} for attribute, values in factors.sets)
    yield from map(dict, factors.clauses)


def _read_factors(store: KeptElements) -> Factors:
    """What a store's selection asks of a row; nothing where there is none."""
    select = store.input
    if not isinstance(select, Select):
        return Factors()
    return _factorize(select.predicates, tuple(select.input.schema.types))


@lru_cache(maxsize=1 << 14)
def _factorize(predicates: tuple[str, ...], types: tuple[pa.DataType, ...]) -> Factors:
    names = type_names(types)
    schema = Schema(tuple(Field(f"c{place}", name) for place, name in enumerate(names)))
    conjuncts = [sqlglot.parse_one(sql, dialect="duckdb") for sql in predicates]
    return factorize(exp.and_(*conjuncts), schema)  # type: ignore[arg-type]
