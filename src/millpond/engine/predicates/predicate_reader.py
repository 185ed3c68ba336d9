"""Reads a predicate: the meaning of each of its parts, with every NOT pushed down.

A part is an atom (a predicate on one attribute, which is a set of its values), opaque (for DuckDB
alone), a constant (the same for every row), or an AND or OR of parts. Logic is three-valued: an
atom has one set of values where it is TRUE and one where it is FALSE; elsewhere it is NULL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sqlglot import exp

from millpond.engine.predicates.constants import NotFoldable, keys_on, read_constant
from millpond.engine.values.value_sets import (
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


@dataclass(slots=True)
class PredicateNode:
    """A part of the predicate with every NOT pushed down; `source` is NOT-ed unless `positive`."""

    source: exp.Expression
    positive: bool

    def text(self, reader: Reader) -> str:
        tree = self.source.transform(reader.spell, copy=True)
        if not self.positive:
            tree = exp.Not(this=exp.Paren(this=tree))
        return tree.sql(dialect="duckdb", comments=False)


@dataclass(slots=True)
class Atom(PredicateNode):
    """A predicate on one attribute: the values it is TRUE for."""

    attribute: str
    true: ValueSet


@dataclass(slots=True)
class Opaque(PredicateNode):
    """A predicate only DuckDB decides."""


@dataclass(slots=True)
class ConstantNode(PredicateNode):
    """A part that is TRUE for every row, or for no row."""

    true: bool


@dataclass(slots=True)
class Junction(PredicateNode):
    """AND or OR of its children."""

    conjunction: bool
    children: list[PredicateNode] = field(default_factory=list)


class Reader:
    """Reads a predicate tree; knows the schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.columns = {f.name.lower(): f for f in schema.fields}

    def spell(self, node: exp.Expression) -> exp.Expression:
        """Spell columns as declared and quoted, so that equal factors have equal text."""
        if isinstance(node, exp.Column) and (column := self.column(node)) is not None:
            return exp.column(column.name, quoted=True)
        return node

    def column(self, node: exp.Expression | None) -> Field | None:
        while isinstance(node, exp.Paren):
            node = node.this
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
            return None
        return self.columns.get(node.name.lower())

    def read(self, node: exp.Expression, positive: bool) -> PredicateNode:
        """Make the node for `node` if `positive`, else for NOT `node`."""
        source = node
        flipped = positive
        while isinstance(node, (exp.Paren, exp.Not)):
            if isinstance(node, exp.Not):
                flipped = not flipped
            node = node.this
        if isinstance(node, (exp.And, exp.Or)):
            children = [self.read(child, flipped) for child in _operands(node)]
            return Junction(source, positive, isinstance(node, exp.And) == flipped, children)
        if isinstance(node, (exp.Boolean, exp.Null)):
            true = isinstance(node, exp.Boolean) and bool(node.this) == flipped
            return ConstantNode(source, positive, true)
        try:
            attribute, true_set, false_set = self.atom(node)
        except NotFoldable:
            return Opaque(source, positive)
        return Atom(source, positive, attribute, true_set if flipped else false_set)

    def atom(self, node: exp.Expression) -> tuple[str, ValueSet, ValueSet]:
        """Return (attribute, TRUE set, FALSE set) of a predicate on one attribute and constants."""
        column = self.column(node)
        if column is not None:
            if column.type != "BOOLEAN":
                raise NotFoldable
            return column.name, points(Domain.BOOL, [1]), points(Domain.BOOL, [0])
        # An unknown modifier (SYMMETRIC, a subquery) may change the meaning.
        modifiers = {k for k, v in node.args.items() if v} - _OPERANDS
        if type(node) is exp.Like and modifiers <= {"negate"}:
            name, true, false = self.prefix(node)
            return (name, false, true) if modifiers else (name, true, false)
        if modifiers:
            raise NotFoldable
        if type(node) is exp.Is:
            return self.is_test(node)
        if type(node) is exp.Between:
            return self.between(node)
        if type(node) is exp.In:
            return self.membership(node)
        if type(node) in FLIPPED:
            return self.comparison(node)
        raise NotFoldable

    def operand(self, node: exp.Expression | None) -> tuple[Field, Domain]:
        column = self.column(node)
        if column is None:
            raise NotFoldable
        domain = domain_of(column.type)
        if domain is None:
            raise NotFoldable
        return column, domain

    def is_test(self, node: exp.Is) -> tuple[str, ValueSet, ValueSet]:
        column, domain = self.operand(node.this)
        test = node.expression
        if isinstance(test, exp.Null):
            true = ONLY_NULL
        elif isinstance(test, exp.Boolean) and domain is Domain.BOOL:
            true = points(domain, [int(bool(test.this))])
        else:
            raise NotFoldable
        return column.name, true, true.complement()

    def between(self, node: exp.Between) -> tuple[str, ValueSet, ValueSet]:
        column, domain = self.operand(node.this)
        bounds = [read_constant(node.args["low"]), read_constant(node.args["high"])]
        low, high = keys_on(column.type, bounds)
        least, below = compare_column(domain, exp.GTE, low)
        greatest, above = compare_column(domain, exp.LTE, high)
        return column.name, least.intersection(greatest), below.union(above)

    def membership(self, node: exp.In) -> tuple[str, ValueSet, ValueSet]:
        column, domain = self.operand(node.this)
        places = keys_on(column.type, [read_constant(e) for e in node.expressions])
        if not places:
            raise NotFoldable
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
        return column.name, *compare_column(domain, operator, place)

    def prefix(self, node: exp.Like) -> tuple[str, ValueSet, ValueSet]:
        """Read `LIKE 'abc%'` as an interval and `LIKE 'abc'` as a point of the bytes' order."""
        column, domain = self.operand(node.this)
        pattern = node.expression
        if domain is not Domain.TEXT or not isinstance(pattern, exp.Literal):
            raise NotFoldable
        match = _PREFIX.fullmatch(str(pattern.this)) if pattern.is_string else None
        if match is None:
            raise NotFoldable
        try:
            start = match[1].encode()
        except UnicodeEncodeError as error:
            raise NotFoldable from error
        if not match[2]:
            true = points(domain, [start])
        elif not start:
            true = NOT_NULL
        else:
            # UTF-8 never holds the byte 0xFF, so the last byte can be incremented.
            true = interval(domain, start, start[:-1] + bytes([start[-1] + 1]))
        return column.name, true, true.complement().intersection(NOT_NULL)


def _operands(node: exp.Connector) -> list[exp.Expression]:
    return [child for child in node.flatten() if isinstance(child, exp.Expression)]


#: The arguments of a predicate's node that are its operands.
_OPERANDS = {"this", "expression", "expressions", "low", "high"}

#: A pattern of LIKE that is a plain text, or one followed by `%`.
_PREFIX = re.compile(r"([^%_\\]*)(%*)", re.DOTALL)

#: Each comparison, and the comparison with its sides exchanged.
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
#: Each comparison, and the comparison that is TRUE where it is FALSE.
NEGATED: dict[type, type] = {
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
    exp.NullSafeEQ: exp.NullSafeNEQ,
    exp.NullSafeNEQ: exp.NullSafeEQ,
}


def compare_column(
    domain: Domain, operator: type, place: Cut | tuple[Cut, Cut] | None
) -> tuple[ValueSet, ValueSet]:
    """Return (TRUE set, FALSE set) of `column operator constant`, the constant at `place`."""
    return true_values(domain, operator, place), true_values(domain, NEGATED[operator], place)


def true_values(domain: Domain, operator: type, place: Cut | tuple[Cut, Cut] | None) -> ValueSet:
    """Return the values for which `column operator constant` is TRUE, the constant at `place`."""
    null_safe = operator in (exp.NullSafeEQ, exp.NullSafeNEQ)
    if place is None and not null_safe:
        return NOTHING
    if operator in (exp.LT, exp.LTE, exp.GT, exp.GTE):
        # The least value that is not less than the constant, and the least that is greater.
        if isinstance(place, tuple):
            at = after = place[1]
        else:
            assert place is not None
            at, after = place, domain.successor(place)
        less = operator in (exp.LT, exp.GTE)
        edge = at if less else after
        if operator in (exp.LT, exp.LTE):
            return interval(domain, None, edge)
        return interval(domain, edge, None)
    if place is None:
        equal = ONLY_NULL
    else:
        equal = NOTHING if isinstance(place, tuple) else points(domain, [place])
    if operator in (exp.EQ, exp.NullSafeEQ):
        return equal
    return equal.complement() if null_safe else equal.complement().intersection(NOT_NULL)
