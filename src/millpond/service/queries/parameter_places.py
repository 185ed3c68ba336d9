"""Where parameters may stand: a parameter is a value, and never names a column.

A whole number in ORDER BY, GROUP BY or DISTINCT ON is the place of a column of the answer. A text
that has a parameter there would let a value choose what the query means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sqlglot import exp

from millpond.cql import parse_statement
from millpond.cql.print.dialect import parse_query
from millpond.cql.print.parameters import find_filled
from millpond.cql.tree import statements
from millpond.cql.tree.places import span_of
from millpond.errors import MillpondError

#: What stands before a key, but for comments. Only texts with such a parameter are read here.
_BEFORE_KEY = re.compile(r"(?i)(\b(BY|ON|SETS|ROLLUP|CUBE)|[,(*])\s*$|\*/\s*$|--[^\n]*\n\s*$")
_HAS_KEYS = re.compile(r"(?i)\b(ORDER|GROUP|DISTINCT)\b")


def check_places(text: str, constants: Mapping[str, str], filled: str) -> None:
    """Refuse a parameter that stands where a number is the place of a column.

    Args:
        text: A query, or CREATE QUERY, with parameters.
        constants: The constants of the parameters.
        filled: The text with the constants.

    Raises:
        MillpondError: CQL-103, at the parameter.
    """
    if not _HAS_KEYS.search(text):
        return
    places = list(find_filled(text, constants))
    if not any(_BEFORE_KEY.search(text, 0, span.start) for span, _ in places):
        return
    begin = len(filled) - len(filled.lstrip())
    spans = [span for key in _find_keys(filled[begin:]) if (span := span_of(key)) is not None]
    for parameter, place in places:
        own = place.shift(-begin)
        if any(own.start <= span.start and span.end <= own.end for span in spans):
            written = text[parameter.start : parameter.end]
            raise MillpondError(
                "CQL-103",
                f'the parameter "{written}" stands where a column is named',
                detail="A parameter is a value; ORDER BY, GROUP BY and DISTINCT ON take columns.",
                hint="Write the column in the text, and register a text for each of the columns.",
                text=text,
                span=parameter,
            )


def _find_keys(filled: str) -> Iterator[exp.Expr]:
    """The keys of a filled text, with their places; none of a text that cannot be read."""
    try:
        if filled[:6].upper() != "CREATE":
            query: exp.Expr = parse_query(filled)
        else:
            statement = parse_statement(filled)
            if not isinstance(statement, statements.CreateQuery):
                return
            query = statement.query
    except MillpondError:
        return  # registering says what is wrong
    for clause in query.find_all(exp.Order, exp.Group, exp.Distinct):
        if isinstance(clause, exp.Order) and not isinstance(clause.parent, exp.Query):
            continue  # in OVER (…) and in aggregates a number is a number
        yield from _split(clause.args.get("on") if isinstance(clause, exp.Distinct) else clause)


def _split(node: exp.Expr | None) -> Iterator[exp.Expr]:
    match node:
        case exp.Group():
            for part in node.args.values():
                for item in part if isinstance(part, list) else ():
                    yield from _split(item)
        case exp.Order() | exp.GroupingSets() | exp.Rollup() | exp.Cube() | exp.Tuple():
            for item in node.expressions:
                yield from _split(item)
        case exp.Ordered() | exp.Paren():
            yield from _split(node.this)
        case exp.Expr():
            yield node
