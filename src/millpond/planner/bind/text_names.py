"""The names in texts that differ only in constants they compare something with: parsed once.

What a caller may read is asked of a query's text before the query is bound. Parsing the text takes
a millisecond, and of a hundred thousand texts that are registered together most have one shape.

INV-NAMES-1: texts of one outline (`templates`, INV-TEMPLATE-4) have the same tokens but for their
constants. A constant that is the operand of a comparison in one of them is part of no name, and
every other constant is part of the key. So texts of one key have the same names.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from sqlglot import exp

from millpond.cql.parse.tokens import tokenize
from millpond.cql.print.dialect import parse_query
from millpond.planner.bind.text_outline import find_constants, outline_text, shape_of
from millpond.planner.check.constants import COMPARISONS
from millpond.planner.resolve.named_objects import NamedObject, list_named_objects

#: The most outlines, and the most keys, that are stored; the oldest are dropped first.
_MOST = 2_000
#: The names of longer texts are not stored.
_LONGEST = 10_000


class TextNames:
    """Finds the names in texts; safe to use from several threads."""

    def __init__(self) -> None:
        #: By an outline, the numbers of the constants that are part of the key.
        self._fixed: dict[str, tuple[int, ...]] = {}
        self._names: dict[tuple[str, ...], tuple[NamedObject, ...]] = {}
        self._filling = threading.Lock()

    def find(self, text: str) -> tuple[NamedObject, ...]:
        """Find every name in a query's text, without its place. Raises what parsing raises."""
        if len(text) > _LONGEST:
            return list_named_objects(text)
        outline, values = outline_text(text)
        fixed = self._fixed.get(outline)
        if fixed is not None:
            known = self._names.get((outline, *(values[number] for number in fixed)))
            if known is not None:
                return known
        names = tuple(replace(named, span=None) for named in list_named_objects(text))
        if fixed is None:
            fixed = _find_fixed(text, values)
        if fixed is not None:
            self._keep(outline, fixed, (outline, *(values[number] for number in fixed)), names)
        return names

    def _keep(
        self,
        outline: str,
        fixed: tuple[int, ...],
        key: tuple[str, ...],
        names: tuple[NamedObject, ...],
    ) -> None:
        with self._filling:
            # What another thread has found meanwhile is the same.
            self._fixed[outline], self._names[key] = fixed, names
            while len(self._fixed) > _MOST:
                self._fixed.pop(next(iter(self._fixed)))
            while len(self._names) > _MOST:
                self._names.pop(next(iter(self._names)))


def _find_fixed(text: str, values: list[str]) -> tuple[int, ...] | None:
    """Find the numbers of the constants that are not compared; None if there is no outline."""
    _, constants = shape_of(tokenize(text))
    places = [(token.start, token.end + 1) for token in constants]
    if values != [token.text for token in constants] or find_constants(text) != places:
        return None
    compared = {
        literal.meta.get("start")
        for literal in parse_query(text).find_all(exp.Literal)
        if _is_compared(literal)
    }
    return tuple(n for n, token in enumerate(constants) if token.start not in compared)


def _is_compared(literal: exp.Expr) -> bool:
    node = literal.parent
    while isinstance(node, exp.Neg | exp.Paren):
        node = node.parent
    return isinstance(node, (*COMPARISONS, exp.Between, exp.Like))
