"""Binding thousands of queries that differ in their constants only.

Parsing and binding a query takes milliseconds, and ten thousand standing queries usually have only
a few shapes. A query's shape is the sequence of its tokens without the constants that are only
compared with something (these are "lifted"). A bound query becomes the template of its shape. A new
text of a known shape is bound by noting its constants.

Lifting is right because the binding of a comparison does not depend on a constant's value:

- INV-TEMPLATE-1: a lifted constant is an operand of a comparison, IN, BETWEEN or LIKE in a WHERE,
  an ON or a HAVING, or one of the numbers an operand is computed from, so it is part of no output
  name, no window, no ordinal and no group.
- INV-TEMPLATE-2: constants in the same place of a shape are of the same kind, and a string that
  has to become another type is lifted only where its form shows that it can.
- INV-TEMPLATE-3: every other constant is part of the template's key.

A text is not even tokenized if it differs from a tokenized text only in its constants
(`outline_text`):

- INV-TEMPLATE-4: an outline is stored only of a text in which the constants that `outline_text`
  finds are exactly its constant tokens. The text between constants is equal in every text of the
  outline, and a constant's value has no influence on where tokens end, so the other tokens are
  equal too.
- INV-TEMPLATE-5: what `tokenize` refuses is refused here too: a text that is not tokenized has no
  half of a surrogate pair, and is no longer than a constant may be.

Sharing a template is invisible: the bound query is equal to the one `bind` gives.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from millpond.catalog.objects import Definition
from millpond.cql.parse.tokens import LONGEST_STRING, tokenize
from millpond.cql.print.dialect import parse_query
from millpond.model.unicode_text import check_unicode
from millpond.planner.bind.bind import Binding, bind_with_definitions
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.bind.liftable import find_liftable
from millpond.planner.bind.text_outline import (
    CONSTANT,
    ShapeKey,
    find_constants,
    number_kind,
    outline_text,
    shape_of,
)
from millpond.planner.bind.text_pattern import TextPattern, make_pattern
from millpond.planner.resolve.names import Names

#: The most shapes stored, and the most templates of one shape; the oldest are dropped first.
_MOST_SHAPES = 2_000
_MOST_TEMPLATES = 1_000
#: Queries with long lists are large and serve as templates for no other; at most this many are
#: stored as they are.
_MOST_LONG = 8


@dataclass(frozen=True, eq=False)
class QueryTemplate:
    """A bound query and which of its constants another query may replace.

    Attributes:
        binding: The query and the definitions it rests on.
        lifted: (number among the query's constants, place in the template's text, form a string
            must have) of each lifted constant.
    """

    binding: Binding
    lifted: tuple[tuple[int, int, re.Pattern[str] | None], ...]

    def takes(self, values: Sequence[str]) -> bool:
        """Whether every string among a query's constants has the form that it needs."""
        for number, _, form in self.lifted:
            if form is not None and not form.fullmatch(values[number]):
                return False
        return True

    def make_pattern(self, text: str) -> TextPattern | None:
        """Make a pattern of texts that `Binder.bind` binds by this template, as it did `text`.

        Its constants are the lifted ones, in the order of their numbers. None: there is none.
        """
        pieces = CONSTANT.split(text)
        kinds = ["'" if c[0] == "'" else number_kind(c) for c in pieces[1::2]]
        pattern = make_pattern(pieces, kinds, {number for number, _, _ in self.lifted})
        if pattern is None:
            return None
        forms = [form for _, _, form in sorted(self.lifted, key=itemgetter(0))]
        needed = tuple((n, form) for n, form in enumerate(forms) if form is not None)
        return TextPattern(pattern, needed)

    def fill(self, text: str, values: Sequence[str]) -> BoundQuery:
        """Bind another text, whose constants it takes."""
        literals = {place: values[number] for number, place, _ in self.lifted}
        return self.binding.query.with_constants(text, literals)


@dataclass(eq=False)
class _Shape:
    """The templates of one token sequence, by the constants that are not lifted.

    `fixed` has the numbers of these constants. A constant that one template of the shape cannot
    lift is fixed for all of them.
    """

    fixed: tuple[int, ...] | None = None
    templates: dict[tuple[str, ...], QueryTemplate] = field(default_factory=dict)


class Binder:
    """Binds queries from their text, by template where one exists.

    Safe to use from several threads.

    Args:
        catalog: What names stand for.
        moment: Gives a number that is another one after every change of what names stand for (an
            epoch): between two of them a template is compared with the catalog once. None: each
            time.
    """

    def __init__(self, catalog: Names, moment: Callable[[], int] | None = None) -> None:
        self._catalog = catalog
        self._moment = moment
        #: The moment of the last look, and the bindings found current at it, by identity.
        self._current: tuple[int, dict[int, Binding]] = (-1, {})
        self._shapes: dict[ShapeKey, _Shape] = {}
        self._outlines: dict[str, ShapeKey] = {}
        self._long: dict[str, Binding] = {}
        self._filling = threading.Lock()

    def bind(self, text: str, seen: int | None = None) -> BoundQuery:
        """Bind a query.

        Args:
            text: The query.
            seen: The `text_epoch` of `bind`; equal for all texts that see equal columns.

        Raises:
            MillpondError: CQL-1xx, CQL-2xx or CQL-301, with its place in `text`.
        """
        sight = "" if seen is None else f"\0{seen}"
        if (long := self._long.get(text + sight)) is not None and self._is_current(long):
            return long.query
        outline, values = outline_text(text)
        outline += sight
        known = self._outlines.get(outline) if len(text) <= LONGEST_STRING else None
        check_unicode(text, "the text", "CQL-102")
        if known is not None and (template := self._find_known(known, values)) is not None:
            return template.fill(text, values)
        key, constants = shape_of(tokenize(text))
        key = (*key, sight) if sight else key
        written = [token.text for token in constants]
        if (template := self._find_known(key, written)) is not None:
            bound = template.fill(text, written)
        else:
            binding = bind_with_definitions(parse_query(text), text, self._catalog, seen)
            bound = binding.query
            if _has_long_list(bound.tree):
                self._keep_long(text + sight, binding)
                return bound
            self._keep(key, constants, binding)
        if values == written and find_constants(text) == [
            (token.start, token.end + 1) for token in constants
        ]:
            self._keep_outline(outline, key)
        return bound

    def find_template(self, text: str) -> QueryTemplate | None:
        """Find the template that the query of a text was bound by; None if there is none."""
        outline, values = outline_text(text)
        known = self._outlines.get(outline)
        return None if known is None else self._find_known(known, values)

    def _find_known(self, key: ShapeKey, values: list[str]) -> QueryTemplate | None:
        """Find a template of a known shape that is still current and takes these constants."""
        shape = self._shapes.get(key)
        if shape is None or shape.fixed is None:
            return None
        template = shape.templates.get(tuple([values[i] for i in shape.fixed]))
        if template is None or not self._is_current(template.binding):
            return None
        return template if template.takes(values) else None

    def _keep_outline(self, outline: str, key: ShapeKey) -> None:
        with self._filling:
            self._outlines[outline] = key
            while len(self._outlines) > _MOST_SHAPES:
                self._outlines.pop(next(iter(self._outlines)))

    def _keep_long(self, text: str, binding: Binding) -> None:
        with self._filling:
            self._long[text] = binding
            while len(self._long) > _MOST_LONG:
                self._long.pop(next(iter(self._long)))

    def _is_current(self, binding: Binding) -> bool:
        """Whether the query's names still have the definitions with which the query was bound."""
        # Thousands of queries are registered together, between two changes of the names.
        if self._moment is None:
            return self._is_same_still(binding)
        now = self._moment()
        known = self._current
        if known[0] != now:
            known = self._current = (now, {})
        if id(binding) in known[1]:
            return True
        is_current = self._is_same_still(binding)
        if is_current and self._moment() == now:
            known[1][id(binding)] = binding  # held, so that its id stays its own
        return is_current

    def _is_same_still(self, binding: Binding) -> bool:
        # Loops, because generators cost more.
        for name, definition in binding.used.items():
            if not _is_same(self._catalog.find(name), definition):
                return False
        for function in binding.functions.values():
            if self._catalog.function(function.name) != function:
                return False
        return all(self._catalog.summary(s.name) == s for s in binding.summaries)

    def _keep(self, key: ShapeKey, constants: list[Token], binding: Binding) -> None:
        lifted = find_liftable(binding.query, constants)
        free = {number for number, _, _ in lifted}
        fixed = {i for i in range(len(constants)) if i not in free}
        with self._filling:
            shape = self._shapes.pop(key, None) or _Shape()
            if shape.fixed is not None and not fixed <= set(shape.fixed):
                shape.templates = {}
                fixed |= set(shape.fixed)
            if shape.fixed is None or not shape.templates:
                shape.fixed = tuple(sorted(fixed))
            numbers = set(shape.fixed)
            template = QueryTemplate(
                binding, tuple(item for item in lifted if item[0] not in numbers)
            )
            templates = dict(shape.templates)
            templates[tuple(constants[i].text for i in shape.fixed)] = template
            while len(templates) > _MOST_TEMPLATES:
                templates.pop(next(iter(templates)))
            self._shapes[key] = _Shape(shape.fixed, templates)
            while len(self._shapes) > _MOST_SHAPES:
                self._shapes.pop(next(iter(self._shapes)))


def _has_long_list(tree: exp.Expr) -> bool:
    """Whether a list of constants is one value of the tree (`cql.expressions`)."""
    return any(type(node.args.get("expressions")) is tuple for node in tree.find_all(exp.In))


def _is_same(found: Definition | None, definition: Definition) -> bool:
    return found is definition or found == definition
