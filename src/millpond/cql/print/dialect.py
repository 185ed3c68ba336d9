"""CQL as a sqlglot dialect: text to query trees and back, and trees to DuckDB's SQL.

`parse_query` reads a query alone; `millpond.cql.script` reads statements and scripts. The nodes CQL
adds to SQL's are exported here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.queries import QueryParser
from millpond.cql.parse.token_reader import SyntaxFault
from millpond.cql.parse.tokens import CqlTokenizer, tokenize
from millpond.cql.print.generators import STYLE, CqlGenerator, EngineGenerator
from millpond.cql.tree.nodes import (
    BY_ATTRIBUTES,
    PERIOD,
    STREAM_SAMPLE,
    WINDOW,
    Period,
    PeriodBound,
    RelationToStream,
    StreamWindow,
)
from millpond.cql.tree.places import span_of
from millpond.cql.tree.recursion import with_room
from millpond.errors import MillpondError, Span

__all__ = [
    "BY_ATTRIBUTES",
    "PERIOD",
    "STREAM_SAMPLE",
    "WINDOW",
    "Cql",
    "Period",
    "PeriodBound",
    "RelationToStream",
    "StreamWindow",
    "parse_query",
    "span_of",
    "to_duckdb",
]


class Cql(DuckDB):
    """The CQL dialect."""

    Tokenizer = CqlTokenizer
    Parser = QueryParser
    Generator = CqlGenerator


#: The dialect as an object.
CQL = Cql()
_DUCKDB = DuckDB()


def parse_query(text: str) -> exp.Expression:
    """Read a query's text to a tree; spans in the tree are offsets in `text`.

    Raises:
        MillpondError: CQL-1xx, 207 or 218, at the wrong part of the text.
    """
    tokens = tokenize(text)
    if tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()

    def read() -> exp.Expression:
        parser = QueryParser.over(CQL, text, tokens)
        query = parser.query()
        parser.expect_end()
        return query

    with translate_failures(text):
        return with_room(read)


def print_query(query: exp.Expr) -> str:
    """Print the CQL of a query's (or an expression's) tree."""
    return with_room(lambda: CqlGenerator(dialect=CQL, **STYLE).generate(query))


def to_duckdb(expr: exp.Expr) -> str:
    """Print the DuckDB SQL of a tree or a scalar expression without Millpond's own nodes."""
    return with_room(lambda: EngineGenerator(dialect=_DUCKDB, **STYLE).generate(expr))


@contextmanager
def translate_failures(text: str) -> Iterator[None]:
    """Turn every error that reading `text` raises into a `MillpondError` with a place."""
    try:
        yield
    except MillpondError:
        raise
    except SyntaxFault as fault:
        raise _explain_fault(fault, text) from None
    except (SqlglotError, ValueError, TypeError, LookupError, AttributeError) as error:
        # No text is known to come here. If one does, the text is at fault, not the server.
        raise MillpondError(
            "CQL-103",
            "the statement cannot be read",
            detail=f"{type(error).__name__}: {error}"[:200],
            text=text,
            span=Span(0, len(text)),
        ) from error
    except RecursionError:
        raise MillpondError(
            "CQL-103",
            "the statement nests too deeply",
            hint="Name parts of the query with WITH, or drop superfluous brackets.",
            text=text,
            span=Span(0, len(text)),
        ) from None


#: The name of the missing part, by the kind of the node that lacks it.
_MISSING = {
    "Union'": "a query",
    "Except'": "a query",
    "Intersect'": "a query",
    "Order'": "columns behind ORDER BY",
    "Where'": "a predicate behind WHERE",
    "Having'": "a predicate behind HAVING",
}


def _explain_fault(fault: SyntaxFault, text: str) -> MillpondError:
    token = fault.token
    message = str(fault)
    if token:
        span = Span(token.start, token.end + 1)
        found = f'found "{text[span.start : span.end]}"'
    else:
        span = Span(len(text.rstrip()), len(text.rstrip()))
        found = "the statement ends"
    if message.startswith("Required keyword"):
        what = next((what for kind, what in _MISSING.items() if kind in message), "an expression")
        primary = f"expected {what}, but {found}"
    elif message.startswith("Expect"):
        primary = f"{message[:1].lower()}{message[1:]}, but {found}"
    else:
        primary = f"the query cannot be read here: {found}"
        if "number of provided arguments" in message:
            primary = "a function has too many arguments"
    return MillpondError("CQL-103", primary, text=text, span=span)
