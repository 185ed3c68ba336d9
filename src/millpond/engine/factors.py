"""Boolean factors: what of a predicate grouped filters can share, and what they cannot.

    predicate  =  V₁(a₁) ∧ V₂(a₂) ∧ …          one value set per attribute
               ∧  (V(a) ∨ V(b) ∨ …) ∧ …         clauses over several attributes
               ∧  other ∧ other ∧ …             DuckDB's SQL, for everything else

A row matches when the predicate is TRUE (not NULL) for it, so `Factors` need only say where each
part is TRUE; under NOT the places where it is FALSE count instead, and an atom carries both.
CACQ (sections 2.3 and 3.2.8) puts disjunctions into conjunctive normal form; so do we, up to a
size, beyond which the disjunction is an `other`.

In which order others are evaluated is the eddy's to choose, and what follows when one fails does
not depend on it (`engine/other_factors.py`).
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlglot import exp

from millpond.engine.constants import Unfolded, keys_on, read_constant
from millpond.engine.value_sets import (
    EVERYTHING,
    NOT_NULL,
    NOTHING,
    ONLY_NULL,
    Cut,
    Domain,
    ValueSet,
    domain_of,
    interval,
    points,
)
from millpond.model.schema import Field, Schema

#: Clauses a single disjunction may become before it is left to DuckDB.
MAX_CLAUSES = 16
#: Cuts one attribute of one query may have: each costs its block 64 bytes of table.
MAX_CUTS = 4096

Clause = tuple[tuple[str, ValueSet], ...]


#: Clauses that are yet to be put together, and DuckDB's SQL of the other factors.
Clauses = tuple[list[dict[str, ValueSet]], list[str]]


@dataclass(frozen=True)
class Factors:
    """A predicate as a conjunction of boolean factors; equal when the predicates are, up to order.

    Attributes:
        sets: Attribute and the values it must have, ascending by attribute.
        clauses: Disjunctions over two or more attributes, in a canonical order.
        others: DuckDB SQL of the factors no grouped filter serves, in the order written.
        never: No row can match; everything else is empty then.
    """

    sets: Clause = ()
    clauses: tuple[Clause, ...] = ()
    others: tuple[str, ...] = ()
    never: bool = False

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Equal for predicates that differ only in the order of their parts."""
        return (self.sets, self.clauses, tuple(sorted(self.others)), self.never)

    @property
    def attributes(self) -> set[str]:
        """The attributes grouped filters look at."""
        return {a for clause in (self.sets, *self.clauses) for a, _ in clause}

    @property
    def is_everything(self) -> bool:
        """Whether every row matches."""
        return not (self.sets or self.clauses or self.others or self.never)

    def packed(self) -> bytes:
        """As the catalog keeps it, for each of tens of thousands of predicates: bare tuples.

        They are a third of what pickling the objects would take, and a fifth of the objects.
        """
        bare = (_bare(self.sets), tuple([_bare(c) for c in self.clauses]), self.others, self.never)
        return pickle.dumps(bare, protocol=5)

    @staticmethod
    def unpack(packed: bytes) -> Factors:
        """The inverse of `packed`; the catalog is trusted like the code."""
        sets, clauses, others, never = pickle.loads(packed)
        return Factors(_whole(sets), tuple([_whole(c) for c in clauses]), others, never)


def _bare(clause: Clause) -> tuple[tuple[Any, ...], ...]:
    return tuple([(a, v.cuts, v.below, v.nulls) for a, v in clause])


def _whole(bare: tuple[tuple[Any, ...], ...]) -> Clause:
    return tuple([(a, ValueSet(*values)) for a, *values in bare])


NEVER = Factors(never=True)


def factorize(predicate: exp.Expression | None, schema: Schema) -> Factors:
    """Takes a predicate over a stream's bare columns apart.

    Args:
        predicate: A boolean expression with DuckDB's meaning; None holds for every row.
        schema: The stream's columns.
    """
    if predicate is None:
        return Factors()
    reader = Reader(schema)
    return assemble(*clauses_of(reader.read(predicate, True), reader))


def clauses_of(node: _Node, reader: Reader) -> Clauses:
    """A predicate's clauses, and its other factors in the order written."""
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


def assemble(clauses: Iterable[dict[str, ValueSet]], others: Iterable[str]) -> Factors:
    """The canonical form: single-attribute clauses intersected, and clauses cut down by them."""
    sets: dict[str, ValueSet] = {}
    wide: list[dict[str, ValueSet]] = []
    pending = list(clauses)
    while pending:
        for clause in pending:
            parts = {a: s for a, s in clause.items() if not s.is_empty}
            if not parts:
                return NEVER
            if any(s.is_all for s in parts.values()):
                continue
            if len(parts) > 1:
                wide.append(parts)
                continue
            ((attribute, values),) = parts.items()
            values = sets.get(attribute, EVERYTHING).intersection(values)
            if values.is_empty:
                return NEVER
            sets[attribute] = values
        pending, wide = [], _reduced(wide, sets)
        pending = [c for c in wide if len(c) < 2]
        wide = [c for c in wide if len(c) >= 2]
    ordered = {tuple(sorted(c.items(), key=lambda item: item[0])) for c in wide}
    return Factors(
        tuple(sorted(sets.items(), key=lambda item: item[0])),
        tuple(sorted(ordered, key=repr)),
        tuple(dict.fromkeys(others)),
    )


def _reduced(
    wide: list[dict[str, ValueSet]], sets: dict[str, ValueSet]
) -> list[dict[str, ValueSet]]:
    """Clauses without what the value sets rule out, and without those they imply."""
    kept = []
    for clause in wide:
        parts: dict[str, ValueSet] = {}
        implied = False
        for attribute, values in clause.items():
            known = sets.get(attribute, EVERYTHING)
            both = values.intersection(known)
            if attribute in sets and both == known:
                implied = True
                break
            if not both.is_empty:
                parts[attribute] = both
        if not implied:
            kept.append(parts)
    return kept


# A clause while it is being built: attribute -> values; the key None stands for "and more that
# no grouped filter decides", so that the rest of such a clause is not taken for the whole.
_Building = dict[Any, ValueSet]


def _normalise(node: _Node) -> list[_Building] | None:
    """The conjunctive normal form, or None if it has too many clauses."""
    if isinstance(node, _Atom):
        return [{node.attribute: node.true}] if len(node.true.cuts) <= MAX_CUTS else None
    if isinstance(node, _Opaque):
        return [{None: NOTHING}]
    if isinstance(node, _Known):
        return [] if node.true else [{}]
    assert isinstance(node, _Junction)
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
    """The clauses of a disjunction of conjunctions; None if there are too many.

    By halves, because a union costs what both sets have: a thousand alternatives one after the
    other would cost their number squared.
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


@dataclass(slots=True)
class _Node:
    """A part of the predicate with every NOT pushed down; `source` is NOT-ed unless `positive`."""

    source: exp.Expression
    positive: bool

    def text(self, reader: Reader) -> str:
        tree = self.source.transform(reader.spell, copy=True)
        if not self.positive:
            tree = exp.Not(this=exp.Paren(this=tree))
        return tree.sql(dialect="duckdb", comments=False)


@dataclass(slots=True)
class _Atom(_Node):
    """A predicate on one attribute: the values it is TRUE for, and those it is FALSE for."""

    attribute: str
    true: ValueSet
    false: ValueSet


@dataclass(slots=True)
class _Opaque(_Node):
    """A predicate only DuckDB decides."""


@dataclass(slots=True)
class _Known(_Node):
    """TRUE, FALSE or NULL whatever the row."""

    true: bool
    false: bool


@dataclass(slots=True)
class _Junction(_Node):
    conjunction: bool
    children: list[_Node] = field(default_factory=list)


def _operands(node: exp.Connector) -> list[exp.Expression]:
    return [child for child in node.flatten() if isinstance(child, exp.Expression)]


def _conjuncts(node: _Node) -> list[_Node]:
    if isinstance(node, _Junction) and node.conjunction:
        return [c for child in node.children for c in _conjuncts(child)]
    return [node]


class Reader:
    """Reads a predicate tree; knows the schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.columns = {f.name.lower(): f for f in schema.fields}

    def spell(self, node: exp.Expression) -> exp.Expression:
        """Columns as declared and quoted, so that equal factors have equal text."""
        if isinstance(node, exp.Column) and (column := self.column(node)) is not None:
            return exp.column(column.name, quoted=True)
        return node

    def column(self, node: exp.Expression | None) -> Field | None:
        while isinstance(node, exp.Paren):
            node = node.this
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
            return None
        return self.columns.get(node.name.lower())

    def read(self, node: exp.Expression, positive: bool) -> _Node:
        """The node for `node` if `positive`, else for NOT `node`."""
        source = node
        flipped = positive
        while isinstance(node, (exp.Paren, exp.Not)):
            if isinstance(node, exp.Not):
                flipped = not flipped
            node = node.this
        if isinstance(node, (exp.And, exp.Or)):
            children = [self.read(child, flipped) for child in _operands(node)]
            return _Junction(source, positive, isinstance(node, exp.And) == flipped, children)
        if isinstance(node, (exp.Boolean, exp.Null)):
            true = isinstance(node, exp.Boolean) and bool(node.this)
            false = isinstance(node, exp.Boolean) and not node.this
            return _Known(source, positive, *((true, false) if flipped else (false, true)))
        try:
            attribute, true_set, false_set = self.atom(node)
        except Unfolded:
            return _Opaque(source, positive)
        if not flipped:
            true_set, false_set = false_set, true_set
        return _Atom(source, positive, attribute, true_set, false_set)

    def atom(self, node: exp.Expression) -> tuple[str, ValueSet, ValueSet]:
        """(attribute, TRUE set, FALSE set) of a predicate on one attribute and constants."""
        column = self.column(node)
        if column is not None:
            if column.type != "BOOLEAN":
                raise Unfolded
            return column.name, points(Domain.BOOL, [1]), points(Domain.BOOL, [0])
        # A modifier that is not known here (SYMMETRIC, a subquery) may change the meaning.
        modifiers = {k for k, v in node.args.items() if v} - _OPERANDS
        if type(node) is exp.Like and modifiers <= {"negate"}:
            name, true, false = self.prefix(node)
            return (name, false, true) if modifiers else (name, true, false)
        if modifiers:
            raise Unfolded
        if type(node) is exp.Is:
            return self.is_test(node)
        if type(node) is exp.Between:
            return self.between(node)
        if type(node) is exp.In:
            return self.membership(node)
        if type(node) in FLIPPED:
            return self.comparison(node)
        raise Unfolded

    def operand(self, node: exp.Expression | None) -> tuple[Field, Domain]:
        column = self.column(node)
        if column is None:
            raise Unfolded
        domain = domain_of(column.type)
        if domain is None:
            raise Unfolded
        return column, domain

    def is_test(self, node: exp.Is) -> tuple[str, ValueSet, ValueSet]:
        column, domain = self.operand(node.this)
        test = node.expression
        if isinstance(test, exp.Null):
            true = ONLY_NULL
        elif isinstance(test, exp.Boolean) and domain is Domain.BOOL:
            true = points(domain, [int(bool(test.this))])
        else:
            raise Unfolded
        return column.name, true, true.complement()

    def between(self, node: exp.Between) -> tuple[str, ValueSet, ValueSet]:
        column, domain = self.operand(node.this)
        bounds = [read_constant(node.args["low"]), read_constant(node.args["high"])]
        low, high = keys_on(column.type, bounds)
        least, below = compared(domain, exp.GTE, low)
        greatest, above = compared(domain, exp.LTE, high)
        return column.name, least.intersection(greatest), below.union(above)

    def membership(self, node: exp.In) -> tuple[str, ValueSet, ValueSet]:
        column, domain = self.operand(node.this)
        places = keys_on(column.type, [read_constant(e) for e in node.expressions])
        if not places:
            raise Unfolded
        true = points(domain, [p for p in places if isinstance(p, (int, bytes))])
        false = NOTHING if None in places else true.complement().intersection(NOT_NULL)
        return column.name, true, false

    def comparison(self, node: exp.Expression) -> tuple[str, ValueSet, ValueSet]:
        operator = type(node)
        left, right = node.this, node.args["expression"]
        if self.column(left) is None:
            left, right, operator = right, left, FLIPPED[operator]
        column, domain = self.operand(left)
        (place,) = keys_on(column.type, [read_constant(right)])
        return column.name, *compared(domain, operator, place)

    def prefix(self, node: exp.Like) -> tuple[str, ValueSet, ValueSet]:
        """`LIKE 'abc%'` and `LIKE 'abc'` are an interval and a point of the bytes' order."""
        column, domain = self.operand(node.this)
        pattern = node.expression
        if domain is not Domain.TEXT or not isinstance(pattern, exp.Literal):
            raise Unfolded
        match = _PREFIX.fullmatch(str(pattern.this)) if pattern.is_string else None
        if match is None:
            raise Unfolded
        try:
            start = match[1].encode()
        except UnicodeEncodeError as error:
            raise Unfolded from error
        if not match[2]:
            true = points(domain, [start])
        elif not start:
            true = NOT_NULL
        else:
            # UTF-8 never holds the byte 0xFF, so the last byte can be incremented.
            true = interval(domain, start, start[:-1] + bytes([start[-1] + 1]))
        return column.name, true, true.complement().intersection(NOT_NULL)


#: The arguments of a predicate's node that are its operands.
_OPERANDS = {"this", "expression", "expressions", "low", "high"}

#: A pattern of LIKE that is a plain text, or one followed by `%`.
_PREFIX = re.compile(r"([^%_\\]*)(%*)", re.DOTALL)

#: Comparisons, and what they are with their sides exchanged.
FLIPPED: dict[type, type] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.NullSafeEQ: exp.NullSafeEQ,
    exp.NullSafeNEQ: exp.NullSafeNEQ,
}


def compared(
    domain: Domain, operator: type, place: Cut | tuple[Cut, Cut] | None
) -> tuple[ValueSet, ValueSet]:
    """(TRUE set, FALSE set) of `column operator constant`, the constant at `place`."""
    null_safe = operator in (exp.NullSafeEQ, exp.NullSafeNEQ)
    if place is None and not null_safe:
        return NOTHING, NOTHING
    if operator in (exp.LT, exp.LTE, exp.GT, exp.GTE):
        # The least value that is not less than, and the least that is greater than the constant.
        if isinstance(place, tuple):
            at = after = place[1]
        else:
            assert place is not None
            at, after = place, domain.successor(place)
        less = operator in (exp.LT, exp.GTE)
        below = interval(domain, None, at if less else after)
        above = interval(domain, at if less else after, None)
        return (below, above) if operator in (exp.LT, exp.LTE) else (above, below)
    if place is None:
        equal = ONLY_NULL
    else:
        equal = NOTHING if isinstance(place, tuple) else points(domain, [place])
    other = equal.complement() if null_safe else equal.complement().intersection(NOT_NULL)
    return (equal, other) if operator in (exp.EQ, exp.NullSafeEQ) else (other, equal)
