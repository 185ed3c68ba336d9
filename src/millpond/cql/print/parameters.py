"""Parameters of a query's text: `$name` stands for one typed value.

A value becomes one constant of CQL, by its type, and never anything else: a text is a string
however it looks. So thousands of queries of one text are registered with a table of values, and a
value that somebody else has typed cannot change what a query means.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.tokens import tokenize
from millpond.errors import MillpondError, Span
from millpond.model.time import check_value


def fill_parameters(text: str, values: Mapping[str, Any]) -> str:
    """Put a constant for each parameter of a text.

    Args:
        text: CQL with parameters, `SELECT * FROM s WHERE price < $most`.
        values: Their values by name: texts, numbers, booleans, None, dates and times.

    Raises:
        MillpondError: CQL-102, a parameter has no value; CQL-103, a value belongs to no parameter,
            or is none that CQL has a constant for.

    >>> fill_parameters("SELECT * FROM s WHERE k = $k AND v < $v -- $5", {"k": "it's", "v": -1})
    "SELECT * FROM s WHERE k = 'it''s' AND v < (-1) -- $5"
    """
    constants = {name: write_constant(value, name) for name, value in values.items()}
    return fill_constants(text, constants)


def fill_constants(text: str, constants: Mapping[str, str]) -> str:
    """Put constants, which `write_constant` wrote, for the parameters of a text.

    Raises:
        MillpondError: as `fill_parameters`.
    """
    pieces: list[str] = []
    at = 0
    for name, span in _find_parameters(text):
        if name not in constants:
            raise MillpondError(
                "CQL-102",
                f'the parameter "${name}" has no value',
                hint='Give its value with params: {"' + name + '": …}.',
                text=text,
                span=span,
            )
        pieces += text[at : span.start], constants[name]
        at = span.end
    if left := sorted(constants.keys() - {name for name, _ in _find_parameters(text)}):
        raise MillpondError(
            "CQL-103",
            f'the query has no parameter "${left[0]}"',
            hint="Leave the value out, or write the parameter in the query.",
            text=text,
        )
    return "".join((*pieces, text[at:]))


def find_filled(text: str, constants: Mapping[str, str]) -> Iterator[tuple[Span, Span]]:
    """Find the parameters of a text: the place of each, and of its constant in the filled text."""
    moved = 0
    for name, span in _find_parameters(text):
        start, constant = span.start + moved, constants[name]
        moved += len(constant) - (span.end - span.start)
        yield span, Span(start, start + len(constant))


@lru_cache(maxsize=16)
def _find_parameters(text: str) -> tuple[tuple[str, Span], ...]:
    """The parameters of a text with their places; many queries of one text are filled in turn.

    They are what the parser takes for parameters: nothing in strings, quoted names and comments.
    """
    return tuple(
        (token.text[1:], Span(token.start, token.end + 1))
        for token in tokenize(text)
        if token.token_type is TokenType.PARAMETER
    )


def write_constant(value: Any, name: str = "value") -> str:
    """Write a value as a constant of CQL.

    Raises:
        MillpondError: CQL-103, CQL has no constant for it.
    """
    match check_value(value, name):
        case None:
            return "NULL"
        case bool() as truth:
            return "TRUE" if truth else "FALSE"
        case int() as whole:
            return str(whole) if whole >= 0 else f"({whole})"
        case float() as number:
            return repr(number) if math.copysign(1, number) > 0 else f"({number!r})"
        case Decimal() as exact:
            return f"{exact:f}" if not exact.is_signed() else f"({exact:f})"
        case datetime() as moment:
            return f"TIMESTAMP '{moment.isoformat(' ')}'"
        case date() as day:
            return f"DATE '{day.isoformat()}'"
        case text:
            return "'" + text.replace("'", "''") + "'"
