"""Boolean factors: the parts of a predicate that grouped filters can share, and the other parts.

    predicate  =  V₁(a₁) ∧ V₂(a₂) ∧ …          one value set per attribute
               ∧  (V(a) ∨ V(b) ∨ …) ∧ …         clauses over several attributes
               ∧  other ∧ other ∧ …             DuckDB's SQL, for everything else

A row matches when the predicate is TRUE (not NULL) for it, so `Factors` need only say where each
part is TRUE; under NOT the places where it is FALSE count instead, and an atom carries both.
CACQ (sections 2.3 and 3.2.7) puts disjunctions into conjunctive normal form, and so does Millpond
up to a size; a larger disjunction is an other factor.

The eddy chooses in which order other factors are evaluated; the consequence of a failure does not
depend on this order (`engine/matching/other_factors.py`).
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from sqlglot import exp

from millpond.engine.predicates.normal_form import clauses_of
from millpond.engine.predicates.predicate_reader import Reader
from millpond.engine.values.value_sets import EVERYTHING, ValueSet
from millpond.model.schema import Schema

Clause = tuple[tuple[str, ValueSet], ...]


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

    @property
    def key(self) -> tuple[Any, ...]:
        """A value that is equal for predicates whose parts differ only in their order."""
        return (self.sets, self.clauses, tuple(sorted(self.others)), self.never)

    @property
    def key_text(self) -> str:
        """The key written out: what slots are told apart by."""
        return repr(self.key)

    @property
    def served_by(self) -> str:
        """What matches the predicate, in words.

        >>> from sqlglot import parse_one
        >>> from millpond.model.schema import Field
        >>> schema = Schema((Field("a", "INTEGER"), Field("b", "INTEGER")))
        >>> factorize(parse_one("a > 1 OR b > 2"), schema).served_by
        'grouped filters on a, b'
        >>> factorize(parse_one("a + 1 > 2"), schema).served_by
        'other factor'
        """
        if self.never:
            return "never true"
        names = sorted({a for clause in (self.sets, *self.clauses) for a, _ in clause})
        filters = f"grouped filter{'s' if len(names) > 1 else ''} on {', '.join(names)}"
        found = [filters] if names else []
        if self.others:
            found.append("other factor")
        return " and ".join(found) or "always true"

    def pack(self) -> bytes:
        """Encode the factors as the catalog keeps them: bare tuples.

        The catalog keeps tens of thousands of them. They take a third of the bytes of pickled
        objects, and a fifth of the objects' memory.
        """
        return pack_bare(
            (
                _to_tuples(self.sets),
                tuple([_to_tuples(c) for c in self.clauses]),
                self.others,
                self.never,
            )
        )

    @staticmethod
    def unpack(packed: bytes) -> Factors:
        """The inverse of `pack`.

        Raises:
            pickle.UnpicklingError: it holds anything but bare tuples.
        """
        sets, clauses, others, never = unpack_bare(packed)
        return Factors(_to_clause(sets), tuple([_to_clause(c) for c in clauses]), others, never)


class _BareUnpickler(pickle.Unpickler):
    """Reads numbers, texts and tuples of these, no classes: a damaged store runs no code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a predicate")


def pack_bare(bare: tuple[Any, ...]) -> bytes:
    """Encode (sets, clauses, others, never), each part of them (attribute, cuts, below, nulls)."""
    return pickle.dumps(bare, protocol=5)


def unpack_bare(packed: bytes) -> tuple[Any, ...]:
    """The inverse of `pack_bare`: what `Factors.unpack` makes objects of.

    Raises:
        pickle.UnpicklingError: it holds anything but bare tuples.
    """
    bare: tuple[Any, ...] = _BareUnpickler(io.BytesIO(packed)).load()
    return bare


def _to_tuples(clause: Clause) -> tuple[tuple[Any, ...], ...]:
    return tuple([(a, v.cuts, v.below, v.nulls) for a, v in clause])


def _to_clause(bare: tuple[tuple[Any, ...], ...]) -> Clause:
    return tuple([(a, ValueSet(*values)) for a, *values in bare])


NEVER = Factors(never=True)


def factorize(predicate: exp.Expression | None, schema: Schema) -> Factors:
    """Take a predicate over a stream's bare columns apart into factors.

    Args:
        predicate: A boolean expression with DuckDB's meaning; None holds for every row.
        schema: The stream's columns.
    """
    if predicate is None:
        return Factors()
    reader = Reader(schema)
    return assemble(*clauses_of(reader.read(predicate, True), reader))


def assemble(clauses: Iterable[dict[str, ValueSet]], others: Iterable[str]) -> Factors:
    """Put factors into the canonical form.

    Clauses on one attribute are intersected to value sets, and other clauses are cut down by these.
    """
    sets: dict[str, ValueSet] = {}
    wide: list[dict[str, ValueSet]] = []
    pending = list(clauses)
    while pending:
        for clause in pending:
            if len(clause) > 1:
                parts = {a: s for a, s in clause.items() if not s.is_empty}
                if any(s.is_all for s in parts.values()):
                    continue
                if len(parts) > 1:
                    wide.append(parts)
                    continue
            else:  # by far the most
                parts = clause
            if not parts:
                return NEVER
            ((attribute, values),) = parts.items()
            if values.is_empty:
                return NEVER
            if values.is_all:
                continue
            if attribute in sets:
                values = sets[attribute].intersection(values)
                if values.is_empty:
                    return NEVER
            sets[attribute] = values
        if not wide:
            break
        pending, wide = [], _reduce(wide, sets)
        pending = [c for c in wide if len(c) < 2]
        wide = [c for c in wide if len(c) >= 2]
    ordered = {_order(clause) for clause in wide}
    return Factors(
        _order(sets),
        tuple(sorted(ordered, key=repr)) if ordered else (),
        tuple(dict.fromkeys(others)),
    )


def _order(parts: dict[str, ValueSet]) -> Clause:
    """List parts ascending by attribute."""
    if len(parts) < 2:
        return tuple(parts.items())
    return tuple(sorted(parts.items(), key=itemgetter(0)))


def _reduce(
    wide: list[dict[str, ValueSet]], sets: dict[str, ValueSet]
) -> list[dict[str, ValueSet]]:
    """Remove from clauses the values that `sets` rule out, and drop clauses that `sets` imply."""
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
