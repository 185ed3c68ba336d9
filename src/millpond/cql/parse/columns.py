"""Reading the declared columns of streams and relations, with their types and keys."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.check_shape import check_scalar
from millpond.cql.parse.constraints import ConstraintParser
from millpond.cql.parse.other_dialects import type_error
from millpond.cql.tree.statements import ColumnDef
from millpond.errors import Span
from millpond.model.constraints import Constraint

_MORE_TYPE_WORDS = (
    ("PRECISION",),
    ("VARYING",),
    ("WITH", "TIME", "ZONE"),
    ("WITHOUT", "TIME", "ZONE"),
)


class ColumnParser(ConstraintParser):
    """Reads declared columns."""

    def columns(
        self, kind: str
    ) -> tuple[tuple[ColumnDef, ...], tuple[tuple[str, ...], Span] | None, tuple[Constraint, ...]]:
        """Read the columns in parentheses; the primary key and its place; the constraints."""
        self.expect_symbol(
            TokenType.L_PAREN,
            "(",
            f"Declare columns, CREATE {kind.upper()} name (column TYPE, ...), or derive it: "
            f"CREATE {kind.upper()} name AS SELECT ...",
        )
        columns: list[ColumnDef] = []
        keys: tuple[tuple[str, ...], Span] | None = None
        constraints: list[Constraint] = []
        while True:
            start = self.here()
            if self._primary_key():
                found = self._key_columns(), self.since(start)
                keys = self._only_key(keys, found)
            elif kind == "stream" and self.sees_constraint():
                constraints.append(self.constraint())
            else:
                columns.append(self.column())
                key_start = self.here()
                if self._primary_key():
                    keys = self._only_key(keys, ((columns[-1].name,), self.since(key_start)))
                    if self.accept("NOT", "NULL"):
                        columns[-1] = replace(columns[-1], required=True)
            if not self.accept_symbol(TokenType.COMMA):
                break
        if not self.sees_symbol(TokenType.R_PAREN):
            self.fail_expecting('"," or ")" behind a column')
        if not columns:
            raise self.fault("no column is declared", hint="Write (column TYPE, ...).")
        self._advance()
        return tuple(columns), keys, tuple(constraints)

    def _primary_key(self) -> bool:
        return self.accept("PRIMARY KEY") or self.accept("PRIMARY", "KEY")

    def _key_columns(self) -> tuple[str, ...]:
        self.expect_symbol(TokenType.L_PAREN, "(", "Write PRIMARY KEY (column, ...).")
        names = [self.name("a key column")[0]]
        while self.accept_symbol(TokenType.COMMA):
            names.append(self.name("a key column")[0])
        self.expect_symbol(TokenType.R_PAREN, ")")
        return tuple(names)

    def _only_key(
        self,
        keys: tuple[tuple[str, ...], Span] | None,
        found: tuple[tuple[str, ...], Span],
    ) -> tuple[tuple[str, ...], Span]:
        if keys is not None:
            raise self.fault(
                "a second primary key",
                hint="Write one PRIMARY KEY (column, ...) over all its columns.",
                span=found[1],
            )
        return found

    def column(self) -> ColumnDef:
        """Read one declared column, its type and what it is computed from."""
        start = self.here()
        name, _ = self.name("a column")
        behind = (TokenType.COMMA, TokenType.R_PAREN)
        if self.at_end() or any(map(self.sees_symbol, behind)):
            self.fail_expecting(f'the type of column "{name}"', "Write for example: delay DOUBLE.")
        words = [self.name(f'the type of column "{name}"')[0]]
        for more in _MORE_TYPE_WORDS:
            if self.accept(*more):
                words += more
        type_text = " ".join(words)
        if (error := type_error(self, type_text)) is not None:
            raise error
        type_text += self._type_parts()
        computed = self._expression()
        span = self.since(start)
        return ColumnDef(name, type_text, span, self.accept("NOT", "NULL"), computed)

    def _expression(self) -> exp.Expression | None:
        """Read `AS (expression)`, if it stands here: what a column is computed from."""
        if self.accept("GENERATED"):
            self.expect("ALWAYS")
            self.expect("AS")
        elif not self.accept_symbol(TokenType.ALIAS):
            return None
        self.expect_symbol(TokenType.L_PAREN, "(", "Write AS (expression).")
        value = self.scalar("an expression over the other columns")
        self.expect_symbol(TokenType.R_PAREN, ")")
        check_scalar(value, self.sql, subqueries=False)
        return value

    def _type_parts(self) -> str:
        """Read what may stand behind a type's name: `(10, 2)`, `(a INTEGER, b DATE[])`, `[]`."""
        first, place, depth = self.here(), self._index, 0
        while depth or self._curr.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET):
            if self.at_end():
                self.fail_expecting('")" or "]" behind a type')
            if self._curr.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET):
                depth += 1
            elif self._curr.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET):
                depth -= 1
            self._advance()
        if self._index == place:
            return ""
        span = self.since(first)
        return self.sql[span.start : span.end]
