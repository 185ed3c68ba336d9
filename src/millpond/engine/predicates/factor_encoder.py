"""Encodes the factors of predicates of one shape, as the catalog keeps them.

Of a hundred thousand queries that are registered together, the catalog needs the predicates' keys,
to find who shares a slot, and their packed factors. Where every factor is a comparison of another
column with a constant, both are put together from parts, one for each comparison, and no `Factors`
are made.

INV-ENCODER-1: `FactorEncoder(template, places).encode(rows)` has, for each row, the `key_text` of
the factors that `template.fill` gives for its constants, and these factors packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millpond.engine.predicates.constants import NotFoldable
from millpond.engine.predicates.factor_templates import Comparison, FactorTemplate
from millpond.engine.predicates.factors import pack_bare

#: Where every factor is a comparison, factors have sets alone: no clauses and no others.
_REST = ((), (), False)

#: A comparison's set, as `Factors.pack` has it and as `Factors.key_text` does; None if it is not
#: one set that is left as it is.
_Part = tuple[tuple[Any, ...], str] | None


class FactorEncoder:
    """Encodes the factors of queries that differ in their constants.

    Args:
        template: The factors of their shape.
        places: The places in the shape of the literals that a row has constants for, in order.
    """

    def __init__(self, template: FactorTemplate, places: Sequence[int]) -> None:
        self._template = template
        self._places = places
        #: The comparisons in the order of their columns; empty: factors are made of each row.
        self._comparisons: list[Comparison] = []
        found = [c for c in template.comparisons if c is not None]
        if len({c.column.name for c in found}) == len(template.comparisons):
            self._comparisons = sorted(found, key=lambda c: c.column.name)

    def encode(self, rows: Sequence[Sequence[str]]) -> list[tuple[str, bytes]]:
        """Return the `key_text` of each query's factors, and the factors packed.

        Args:
            rows: Each query's constants.
        """
        if not self._comparisons or not rows:
            return [self._encode_whole(row) for row in rows]
        columns = list(zip(*rows, strict=True))
        parts = [self._find_parts(c, columns, len(rows)) for c in self._comparisons]
        if len(parts) == 1:
            return [
                self._encode_whole(rows[n])
                if part is None
                else (f"(({part[1]},), (), (), False)", pack_bare(((part[0],), *_REST)))
                for n, part in enumerate(parts[0])
            ]
        encoded: list[tuple[str, bytes]] = []
        for number, own in enumerate(zip(*parts, strict=True)):
            known = [part for part in own if part is not None]
            if len(known) < len(own):
                encoded.append(self._encode_whole(rows[number]))
                continue
            sets = ", ".join([text for _, text in known])
            bare = tuple([part for part, _ in known])
            encoded.append((f"(({sets}), (), (), False)", pack_bare((bare, *_REST))))
        return encoded

    def _encode_whole(self, row: Sequence[str]) -> tuple[str, bytes]:
        factors = self._template.fill(dict(zip(self._places, row, strict=True)))
        return factors.key_text, factors.pack()

    def _find_parts(
        self, comparison: Comparison, columns: Sequence[Sequence[str]], many: int
    ) -> list[_Part]:
        """The parts of a comparison for each query, from the columns of constants."""
        name = comparison.column.name
        shown = f"({name!r}, ValueSet(cuts=("
        own = [o.place for o in comparison.operands if o.place in self._places]
        given = [columns[self._places.index(place)] for place in own]
        if len(given) == 1 and (points := comparison.points(given[0])) is not None:
            return [
                (
                    (name, (n, n + 1), False, False),
                    f"{shown}{n}, {n + 1}), below=False, nulls=False))",
                )
                for n in points
            ]
        found: dict[tuple[str, ...], _Part] = {}
        keys: list[tuple[str, ...]] = list(zip(*given, strict=True)) if given else [()] * many
        for key in keys:
            if key not in found:
                found[key] = _read_part(comparison, dict(zip(own, key, strict=True)))
        return [found[key] for key in keys]


def _read_part(comparison: Comparison, literals: dict[int, str]) -> _Part:
    try:
        true = comparison.true(literals)
    except NotFoldable:
        return None
    if true.is_empty or true.is_all:
        return None
    name = comparison.column.name
    return (name, true.cuts, true.below, true.nulls), f"({name!r}, {true!r})"
