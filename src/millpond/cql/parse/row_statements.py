"""Reading the statements that change contents: INSERT, UPDATE, DELETE and HEARTBEAT."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.check_shape import check_scalar
from millpond.cql.parse.definitions import DefinitionParser
from millpond.cql.tree.places import span_of
from millpond.cql.tree.statements import Delete, Heartbeat, Insert, Update


class RowStatementParser(DefinitionParser):
    """Reads the statements that change contents."""

    def insert(self) -> Insert:
        """Read what follows INSERT."""
        self.expect("INTO")
        name, name_span = self.name("a stream or a relation")
        columns: list[str] = []
        if self.accept_symbol(TokenType.L_PAREN):
            columns.append(self.name("a column")[0])
            while self.accept_symbol(TokenType.COMMA):
                columns.append(self.name("a column")[0])
            self.expect_symbol(TokenType.R_PAREN, ")")
        if not self.sees("VALUES") and self._starts_query():
            start = self.here()
            query = self.query()
            span = self.since(start)
            return Insert(
                name=name,
                columns=tuple(columns),
                query=query,
                query_span=span,
                at=self.at_timestamp(),
                name_span=name_span,
                **self.frame(),
            )
        self.expect("VALUES", hint="Write INSERT INTO name VALUES (...), (...).")
        rows = [self._row(len(columns) or None, "columns")]
        while self.accept_symbol(TokenType.COMMA):
            rows.append(self._row(len(rows[0]), "values as the first row"))
        at = self.at_timestamp()
        return Insert(
            name=name,
            columns=tuple(columns),
            rows=tuple(rows),
            at=at,
            name_span=name_span,
            **self.frame(),
        )

    def _row(self, width: int | None, of: str) -> tuple[exp.Expression, ...]:
        start = self.here()
        self.expect_symbol(TokenType.L_PAREN, "(", "A row stands in brackets: VALUES (1, 'a').")
        values = [self._constant()]
        while self.accept_symbol(TokenType.COMMA):
            values.append(self._constant())
        self.expect_symbol(TokenType.R_PAREN, ")")
        if width is not None and len(values) != width:
            noun = "value" if len(values) == 1 else "values"
            raise self.fault(
                f"a row has {len(values)} {noun}, not {width}",
                code="CQL-217",
                detail=f"Every row has as many {of}.",
                span=self.since(start),
            )
        return tuple(values)

    def _constant(self) -> exp.Expression:
        value = self.scalar("a value")
        check_scalar(value, self.sql, subqueries=False)
        column = value.find(exp.Column)
        if column is not None:
            raise self.fault(
                f'the column "{column.name}" stands among the values of INSERT',
                detail="A value is a constant expression.",
                hint=f"Put strings in single quotes: '{column.name}'.",
                span=span_of(column),
            )
        return value

    def update(self) -> Update:
        """Read what follows UPDATE."""
        name, name_span = self.name("a relation")
        self.expect("SET", hint="Write UPDATE name SET column = value WHERE ...")
        assignments = [self._assignment({})]
        seen = {assignments[0][0].lower(): None}
        while self.accept_symbol(TokenType.COMMA):
            assignments.append(self._assignment(seen))
            seen[assignments[-1][0].lower()] = None
        where = self._where()
        at = self.at_timestamp()
        return Update(
            name=name,
            assignments=tuple(assignments),
            where=where,
            at=at,
            name_span=name_span,
            **self.frame(),
        )

    def _assignment(self, seen: dict[str, None]) -> tuple[str, exp.Expression]:
        column, span = self.name("a column")
        if column.lower() in seen:
            raise self.fault(f'column "{column}" is set twice', hint="Keep one.", span=span)
        self.expect_symbol(TokenType.EQ, "=", "Write SET column = value.")
        value = self.scalar(f'a value for column "{column}"')
        check_scalar(value, self.sql, subqueries=True)
        return column, value

    def delete(self) -> Delete:
        """Read what follows DELETE."""
        self.expect("FROM")
        name, name_span = self.name("a relation")
        where = self._where()
        at = self.at_timestamp()
        return Delete(name=name, where=where, at=at, name_span=name_span, **self.frame())

    def _where(self) -> exp.Expression | None:
        if not self._match(TokenType.WHERE):
            return None
        where = self.scalar("a predicate behind WHERE")
        check_scalar(where, self.sql, subqueries=True)
        return where

    def heartbeat(self) -> Heartbeat:
        """Read what follows HEARTBEAT."""
        name, name_span = self.name("a stream")
        at = self.at_timestamp()
        if at is None:
            self.fail_expecting(
                "AT TIMESTAMP", "Write HEARTBEAT name AT TIMESTAMP '2024-01-01 00:00'."
            )
        return Heartbeat(name=name, at=at, name_span=name_span, **self.frame())
