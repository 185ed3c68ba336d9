"""Reading VALUES as a query: the union of its rows, each a SELECT of constants."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.expressions import ExpressionParser
from millpond.cql.tree.places import place

#: Rows of VALUES are united in groups of at most this many, so that trees do not get deep.
_UNITED = 32


class ValuesParser(ExpressionParser):
    """Reads VALUES."""

    def values(self) -> exp.Query:
        """Read `VALUES (1, 'a'), (2, 'b')`: a union of constant rows with columns col0, …."""
        self._advance()
        rows: list[exp.Query] = [self._values_row(None)]
        width = len(rows[0].selects)
        while self.accept_symbol(TokenType.COMMA):
            rows.append(self._values_row(width))
        return unite(rows)

    def _values_row(self, width: int | None) -> exp.Select:
        start = self.here()
        self.expect_symbol(TokenType.L_PAREN, "(", "A row stands in brackets: VALUES (1, 'a').")
        values: list[exp.Expr] = [self.scalar("a value")]
        while self.accept_symbol(TokenType.COMMA):
            values.append(self.scalar("a value"))
        self.expect_symbol(TokenType.R_PAREN, ")")
        span = self.since(start)
        if width is not None and len(values) != width:
            raise self.fault(
                f"a row has {len(values)} value{'s' * (len(values) > 1)}, not {width}",
                code="CQL-217",
                detail="Every row has as many values as the first row.",
                span=span,
            )
        if width is None:
            values = [exp.alias_(value, f"col{i}") for i, value in enumerate(values)]
        row = exp.Select(expressions=values)
        place(row, span)
        return row


def unite(rows: Sequence[exp.Query]) -> exp.Query:
    """Unite queries by UNION ALL."""
    rows = list(rows)
    while len(rows) > 1:
        rows = [_unite(rows[i : i + _UNITED]) for i in range(0, len(rows), _UNITED)]
    return rows[0]


def _unite(rows: list[exp.Query]) -> exp.Query:
    """Unite a group of queries; queries that are unions already get brackets."""
    united, *others = [
        exp.Subquery(this=row) if isinstance(row, exp.SetOperation) else row for row in rows
    ]
    for row in others:
        united = exp.Union(this=united, expression=row, distinct=False)
    return united
