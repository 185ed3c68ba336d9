"""Templates for the factors of thousands of predicates that differ in their constants only.

Thousands of standing queries have a few shapes (`millpond.planner.bind.templates`). Which parts of
a predicate are boolean factors, and over which attributes, depends on its shape alone. So a shape
is read once; for each query only the constants are put on the axes of their attributes.

INV-FACTORS-1: `FactorTemplate(shapes, schema).fill(literals)` equals `factorize` of the
conjunction of the shapes with those constants in their places.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from sqlglot import exp

from millpond.engine.predicates.constants import NotFoldable, keys_on, literal_constant
from millpond.engine.predicates.factors import Factors, assemble
from millpond.engine.predicates.normal_form import Clauses, clauses_of
from millpond.engine.predicates.predicate_reader import FLIPPED, Reader, true_values
from millpond.engine.values.value_sets import Cut, Domain, ValueSet, domain_of, interval
from millpond.model.schema import Field, Schema
from millpond.planner.residual import with_literals

#: Types in which every whole number of nine digits is, with its neighbours.
_WHOLE = ("INTEGER", "BIGINT")
#: Shapes kept; the oldest are dropped first.
_MOST_TEMPLATES = 2_000

_Read = Callable[[Mapping[int, str]], Clauses]


class FactorTemplate:
    """The factors of a predicate's shape.

    Args:
        shapes: Predicates over a stream's bare columns; the template is for their conjunction.
        schema: The stream's columns.
    """

    def __init__(self, shapes: Sequence[exp.Expr], schema: Schema) -> None:
        reader = Reader(schema)
        conjuncts = [cast(exp.Expression, c) for shape in shapes for c in _conjuncts(shape)]
        #: What each conjunct compares; None for what is no comparison of a column with constants.
        self.comparisons = [_comparison(c, reader) for c in conjuncts]
        pairs = zip(conjuncts, self.comparisons, strict=True)
        self._reads = [_read(c, found, reader) for c, found in pairs]

    def fill(self, literals: Mapping[int, str]) -> Factors:
        """Return the factors with these constants in their places; others stay as they are."""
        clauses: list[dict[str, ValueSet]] = []
        others: list[str] = []
        for read in self._reads:
            found, texts = read(literals)
            clauses += found
            others += texts
        return assemble(clauses, others)


_TEMPLATES: OrderedDict[tuple[int, ...], tuple[Sequence[exp.Expr], Schema, FactorTemplate]] = (
    OrderedDict()
)
_LOCK = threading.Lock()


def factor_template(shapes: Sequence[exp.Expr], schema: Schema) -> FactorTemplate:
    """Return the template of a shape, which is read once.

    Shapes are told apart by identity: comparing trees takes time that grows with the trees, and
    queries bound by one template share theirs.
    """
    key = tuple([id(shape) for shape in shapes])
    kept = _TEMPLATES.get(key)
    if kept is not None and (kept[1] is schema or kept[1] == schema):
        return kept[2]
    template = FactorTemplate(shapes, schema)
    with _LOCK:
        _TEMPLATES[key] = (shapes, schema, template)  # keeps the trees, so ids stay theirs
        while len(_TEMPLATES) > _MOST_TEMPLATES:
            _TEMPLATES.popitem(last=False)
    return template


def _conjuncts(shape: exp.Expr) -> list[exp.Expr]:
    """The conjuncts in order; a thousand of them nest a thousand deep, so this does not recurse."""
    found: list[exp.Expr] = []
    waiting = [shape]
    while waiting:
        part = waiting.pop()
        while isinstance(part, exp.Paren):
            part = part.this
        if isinstance(part, exp.And):
            waiting += (part.expression, part.this)
        else:
            found.append(part)
    return found


def _read(conjunct: exp.Expression, comparison: Comparison | None, reader: Reader) -> _Read:
    """Find out how to read a conjunct once its constants are known."""

    def in_full(literals: Mapping[int, str]) -> Clauses:
        tree = with_literals(conjunct, literals)
        return clauses_of(reader.read(cast(exp.Expression, tree), True), reader)

    if comparison is None:
        return in_full
    compared = comparison

    def at_once(literals: Mapping[int, str]) -> Clauses:
        try:
            return [{compared.column.name: compared.true(literals)}], []
        except NotFoldable:  # DuckDB must decide by this constant
            return in_full(literals)

    return at_once


@dataclass(frozen=True)
class _Literal:
    """A constant in a shape: where it stood, and its text there."""

    place: int
    text: str
    is_string: bool
    negative: bool


@dataclass(frozen=True)
class Comparison:
    """`column operator constant`; without an operator, `column BETWEEN constant AND constant`."""

    column: Field
    domain: Domain
    operator: type | None
    operands: tuple[_Literal, ...]

    def true(self, literals: Mapping[int, str]) -> ValueSet:
        """Return the values it is TRUE for."""
        if (
            self.operator is exp.EQ
            and self.column.type in _WHOLE
            and (one := self._point(literals))
        ):
            return one
        constants = [
            literal_constant(literals.get(o.place, o.text), o.is_string, o.negative)
            for o in self.operands
        ]
        places = keys_on(self.column.type, constants)
        if self.operator is not None:
            return true_values(self.domain, self.operator, places[0])
        low, high = places
        assert low is not None
        assert high is not None
        return interval(self.domain, _first(low), self._after(high))

    def points(self, texts: Sequence[str]) -> list[int] | None:
        """The numbers it is equal to with each of many constants; None if it is no such comparison.

        As `true`, where each constant has up to nine digits.
        """
        if self.operator is not exp.EQ or self.column.type not in _WHOLE:
            return None
        every = "".join(texts)
        if self.operands[0].is_string or not (every.isascii() and every.isdigit()):
            return None
        if not 0 < min(map(len, texts)) <= max(map(len, texts)) <= 9:
            return None
        numbers = list(map(int, texts))
        return [-n for n in numbers] if self.operands[0].negative else numbers

    def _point(self, literals: Mapping[int, str]) -> ValueSet | None:
        """The one number it is equal to, at once where the constant has up to nine digits.

        Those are values of every type of `_WHOLE`, and at no end of one.
        """
        operand = self.operands[0]
        text = literals.get(operand.place, operand.text)
        if operand.is_string or len(text) > 9 or not (text.isascii() and text.isdigit()):
            return None
        value = -int(text) if operand.negative else int(text)
        return ValueSet((value, value + 1), False, False)

    def _after(self, place: Cut | tuple[Cut, Cut]) -> Cut:
        return place[1] if isinstance(place, tuple) else self.domain.successor(place)


def _first(place: Cut | tuple[Cut, Cut]) -> Cut:
    """Return the least value that is not less than a constant."""
    return place[1] if isinstance(place, tuple) else place


def _comparison(node: exp.Expression, reader: Reader) -> Comparison | None:
    """Read a comparison of a column with plain constants; None for anything else."""
    operator: type | None = type(node)
    if operator is exp.Between:
        if {key for key, value in node.args.items() if value} - {"this", "low", "high"}:
            return None
        operator, column, sides = None, node.this, [node.args["low"], node.args["high"]]
    elif operator in FLIPPED:
        column, sides = node.this, [node.args["expression"]]
        if reader.column(column) is None:
            column, sides, operator = sides[0], [column], FLIPPED[operator]
    else:
        return None
    field = reader.column(column)
    domain = domain_of(field.type) if field is not None else None
    operands = [_literal(side) for side in sides]
    if field is None or domain is None or any(o is None for o in operands):
        return None
    return Comparison(field, domain, operator, tuple(o for o in operands if o is not None))


def _literal(node: exp.Expr) -> _Literal | None:
    negative = isinstance(node, exp.Neg)
    if negative:
        node = node.this
    if type(node) is not exp.Literal or "start" not in node.meta:
        return None
    return _Literal(int(node.meta["start"]), str(node.this), bool(node.is_string), negative)
