"""Conjunctive normal form: a predicate's clauses, and the other factors that are left to DuckDB.

A disjunction becomes clauses only up to a size (CACQ, section 3.2.7), since the conjunctions in it
multiply; a larger disjunction is an other factor as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millpond.engine.predicates.predicate_reader import (
    Atom,
    ConstantNode,
    Junction,
    Opaque,
    PredicateNode,
    Reader,
)
from millpond.engine.values.value_sets import NOTHING, ValueSet

#: Clauses a single disjunction may become before it is left to DuckDB.
MAX_CLAUSES = 16
#: Cuts one attribute of one query may have: each costs its block 64 bytes of table.
MAX_CUTS = 4096

#: Clauses that are not assembled yet, and DuckDB's SQL of the other factors.
Clauses = tuple[list[dict[str, ValueSet]], list[str]]

# A clause while it is being built: attribute -> values. The key None stands for "and more that no
# grouped filter decides": such a clause must not be taken for the whole predicate.
_Building = dict[Any, ValueSet]


def clauses_of(node: PredicateNode, reader: Reader) -> Clauses:
    """Return a predicate's clauses, and its other factors in the order written."""
    clauses: list[dict[str, ValueSet]] = []
    others: list[str] = []
    for conjunct in _conjuncts(node):
        found = _normalise(conjunct)
        if found is None or any(None in clause for clause in found):
            others.append(conjunct.text(reader))
        for clause in found or ():
            if None not in clause:
                clauses.append(clause)
    return clauses, others


def _conjuncts(node: PredicateNode) -> list[PredicateNode]:
    if isinstance(node, Junction) and node.conjunction:
        return [c for child in node.children for c in _conjuncts(child)]
    return [node]


def _normalise(node: PredicateNode) -> list[_Building] | None:
    """Compute the conjunctive normal form; None if it has too many clauses."""
    if isinstance(node, Atom):
        return [{node.attribute: node.true}] if len(node.true.cuts) <= MAX_CUTS else None
    if isinstance(node, Opaque):
        return [{None: NOTHING}]
    if isinstance(node, ConstantNode):
        return [] if node.true else [{}]
    assert isinstance(node, Junction)
    parts = [_normalise(child) for child in node.children]
    if any(p is None for p in parts):
        return None
    if node.conjunction:
        product = [clause for part in parts for clause in part or ()]
    else:
        found = _product([part for part in parts if part is not None])
        if found is None:
            return None
        product = found
    product = [c for c in product if not any(s.is_all for s in c.values())]
    if len(product) > MAX_CLAUSES or any(
        len(s.cuts) > MAX_CUTS for c in product for s in c.values()
    ):
        return None
    return product


def _product(parts: Sequence[list[_Building]]) -> list[_Building] | None:
    """Compute the clauses of a disjunction of conjunctions; None if there are too many.

    The disjunction is halved again and again, because a union costs the size of both sets: uniting
    a thousand alternatives one after the other would cost the square of their number.
    """
    if len(parts) < 2:
        return parts[0] if parts else [{}]
    middle = len(parts) // 2
    left, right = _product(parts[:middle]), _product(parts[middle:])
    if left is None or right is None or len(left) * len(right) > MAX_CLAUSES:
        return None
    return [_either(one, two) for one in left for two in right]


def _either(left: _Building, right: _Building) -> _Building:
    joined = dict(left)
    for attribute, values in right.items():
        joined[attribute] = joined[attribute].union(values) if attribute in joined else values
    return joined
