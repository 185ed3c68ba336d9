"""CQL as a sqlglot dialect: text to query trees and back, and trees to DuckDB's SQL.

`parse_query` reads a query alone; whole statements and scripts are `millpond.cql.script`'s. The
nodes CQL adds to SQL's are exported here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.generators.duckdb import DuckDBGenerator
from sqlglot.tokenizer_core import TokenType

from millpond.cql.cursor import SyntaxFault
from millpond.cql.duckdb_words import RESERVED
from millpond.cql.durations import duration_text
from millpond.cql.nodes import (
    BY_ATTRIBUTES,
    PERIOD,
    STREAM_SAMPLE,
    WINDOW,
    Period,
    PeriodBound,
    RelationToStream,
    StreamWindow,
)
from millpond.cql.places import span_of
from millpond.cql.queries import QueryParser
from millpond.cql.stack import with_room
from millpond.cql.tokens import CqlTokenizer, tokenize
from millpond.errors import MillpondError, Span
from millpond.model.time import format_instant

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


class CqlGenerator(DuckDBGenerator):
    """Prints trees as CQL."""

    RESERVED_KEYWORDS: set[str] = set()  # noqa: RUF012
    TRANSFORMS = {  # noqa: RUF012
        **DuckDBGenerator.TRANSFORMS,
        StreamWindow: lambda self, e: self.streamwindow_sql(e),
        Period: lambda self, e: self.period_sql(e),
        PeriodBound: lambda self, e: self.periodbound_sql(e),
        RelationToStream: lambda self, e: self.relationtostream_sql(e),
    }
    AFTER_HAVING_MODIFIER_TRANSFORMS = {  # noqa: RUF012
        **DuckDBGenerator.AFTER_HAVING_MODIFIER_TRANSFORMS,
        PERIOD: lambda self, e: f" {self.sql(e, PERIOD)}" if e.args.get(PERIOD) else "",
    }

    def table_sql(self, expression: exp.Table, sep: str = " AS ") -> str:
        window = self.sql(expression, WINDOW)
        alias = self.sql(expression, "alias")
        joins = "".join(self.sql(join) for join in expression.args.get("joins") or ())
        return (
            self.table_parts(expression)
            + (f" {window}" if window else "")
            + (f"{sep}{alias}" if alias else "")
            + self._sample(expression)
            + joins
        )

    def subquery_sql(self, expression: exp.Subquery, sep: str = " AS ") -> str:
        sql = super().subquery_sql(expression, sep)
        return sql + self._sample(expression)

    def _sample(self, expression: exp.Expr) -> str:
        percentage = self.sql(expression, STREAM_SAMPLE)
        return f" SAMPLE({percentage})" if percentage else ""

    def set_operations(self, expression: exp.SetOperation) -> str:
        spine: list[exp.SetOperation] = []
        first: exp.Expr = expression
        while isinstance(first, exp.SetOperation):
            spine.append(first)
            first = first.this
        parts = [self.sql(first)]
        for operation in reversed(spine):
            parts += [self.set_operation(operation), self.sql(operation, "expression")]
            if by := operation.args.get(BY_ATTRIBUTES):
                parts.append(f"BY ({', '.join(self.sql(name) for name in by)})")
        return self.prepend_ctes(expression, self.query_modifiers(expression, " ".join(parts)))

    def streamwindow_sql(self, expression: StreamWindow) -> str:
        args = expression.args
        match args["kind"]:
            case "now":
                text = "NOW"
            case "unbounded":
                text = "RANGE UNBOUNDED"
            case "range":
                text = f"RANGE {duration_text(args['size'])}"
                if args.get("slide"):
                    text += f" SLIDE {duration_text(args['slide'])}"
            case _:
                by = ", ".join(self.sql(name) for name in args.get("by") or ())
                text = f"PARTITION BY {by} " if by else ""
                text += f"ROWS {args['rows']}"
        where = self.sql(expression, "where")
        return f"[{text} WHERE {where}]" if where else f"[{text}]"

    def period_sql(self, expression: Period) -> str:
        return f"BEGIN {self.sql(expression, 'begin')} END {self.sql(expression, 'end')}"

    def periodbound_sql(self, expression: PeriodBound) -> str:
        instant, offset = expression.args.get("instant"), expression.args.get("offset")
        if instant is not None:
            return f"'{format_instant(instant)}'"
        assert offset is not None
        if offset == 0:
            return "NOW"
        return f"NOW {'-' if offset < 0 else '+'} INTERVAL {duration_text(abs(offset))}"

    def relationtostream_sql(self, expression: RelationToStream) -> str:
        return f"{expression.args['kind']}({self.sql(expression, 'this')})"


class Cql(DuckDB):
    """The CQL dialect."""

    Tokenizer = CqlTokenizer
    Parser = QueryParser
    Generator = CqlGenerator


class _DuckDBGenerator(DuckDBGenerator):
    """DuckDB's SQL with every word quoted that DuckDB would not take as a name."""

    RESERVED_KEYWORDS = RESERVED | DuckDBGenerator.RESERVED_KEYWORDS


#: The dialect as an object.
CQL = Cql()
_DUCKDB = DuckDB()
_STYLE: dict[str, Any] = {"comments": False, "normalize_functions": "lower"}


def parse_query(text: str) -> exp.Expression:
    """The tree of a query's text; spans in it are offsets in `text`.

    Raises:
        MillpondError: CQL-1xx, 207 or 218, with its place.
    """
    tokens = tokenize(text)
    if tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()

    def read() -> exp.Expression:
        parser = QueryParser.over(CQL, text, tokens)
        query = parser.query()
        parser.expect_end()
        return query

    with failures(text):
        return with_room(read)


def print_query(query: exp.Expr) -> str:
    """The CQL of a query's (or an expression's) tree."""
    return with_room(lambda: CqlGenerator(dialect=CQL, **_STYLE).generate(query))


def to_duckdb(expr: exp.Expr) -> str:
    """The DuckDB SQL of a tree, or of a scalar expression, without Millpond's nodes in it."""
    return with_room(lambda: _DuckDBGenerator(dialect=_DUCKDB, **_STYLE).generate(expr))


@contextmanager
def failures(text: str) -> Iterator[None]:
    """Turn whatever reading `text` raises into a `MillpondError` with a place."""
    try:
        yield
    except MillpondError:
        raise
    except SyntaxFault as fault:
        raise _explained(fault, text) from None
    except RecursionError:
        raise MillpondError(
            "CQL-103",
            "the statement nests too deeply",
            hint="Name parts of the query with WITH, or drop superfluous brackets.",
            text=text,
            span=Span(0, len(text)),
        ) from None


def _explained(fault: SyntaxFault, text: str) -> MillpondError:
    token = fault.token
    message = str(fault)
    if token:
        span = Span(token.start, token.end + 1)
        found = f'found "{text[span.start : span.end]}"'
    else:
        span = Span(len(text.rstrip()), len(text.rstrip()))
        found = "the statement ends"
    if message.startswith("Required argument"):
        primary = f"expected an expression, but {found}"
    elif message.startswith("Expect"):
        primary = f"{message[:1].lower()}{message[1:]}, but {found}"
    else:
        primary = f"the query cannot be read here: {found}"
    return MillpondError("CQL-103", primary, text=text, span=span)
