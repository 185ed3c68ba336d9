"""Reading lists of options: `(key = value, ...)` of queries, `(key 'value', ...)` of sources."""

from __future__ import annotations

from typing import Any

from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.durations import duration_text
from millpond.cql.parse.queries import QueryParser


class OptionParser(QueryParser):
    """Reads lists of options."""

    def options(self, sign: str) -> dict[str, Any]:
        """Read `(key value, ...)`; a `sign` "=" must stand between key and value."""
        self.expect_symbol(TokenType.L_PAREN, "(", "Options stand in brackets.")
        options: dict[str, Any] = {}
        while not self.accept_symbol(TokenType.R_PAREN):
            start = self.here()
            key = self._option_key()
            if key in options:
                raise self.fault(
                    f'option "{key}" is given twice',
                    hint="Keep one of them.",
                    span=self.since(start),
                )
            if sign:
                self.expect_symbol(TokenType.EQ, "=", f"Write {key} = value.")
            else:
                self.accept_symbol(TokenType.EQ)
            named = None if sign else self._secret()
            options[key] = self._option_value(key) if named is None else named
            if not self.accept_symbol(TokenType.COMMA) and not self.sees_symbol(TokenType.R_PAREN):
                self.fail_expecting('"," or ")" behind an option')
        return options

    def _secret(self) -> str | None:
        """Read `secret('name')`, which a source's option may have for a value; None if not ahead.

        It is kept as it is printed.
        """
        if not self.sees("SECRET"):
            return None
        self.accept("SECRET")
        shape = "Write secret('name'): the name of a secret in the server's file."
        self.expect_symbol(TokenType.L_PAREN, "(", shape)
        if self._curr.token_type is not TokenType.STRING or not self._curr.text:
            self.fail_expecting("the name of a secret in 'single quotes'", shape)
        self._advance()
        name = self._prev.text.replace("'", "''")
        self.expect_symbol(TokenType.R_PAREN, ")", shape)
        return f"secret('{name}')"

    def _option_key(self) -> str:
        if self._curr.token_type is TokenType.STRING:
            self._advance()
            return self._prev.text.lower()
        if self.accept("IDLE", "AFTER"):
            return "idle_after"
        key, _ = self.name("an option")
        while self.accept_symbol(TokenType.DOT):
            key += f".{self.name('an option')[0]}"
        return key.lower()

    def _option_value(self, key: str) -> Any:
        kind = self._curr.token_type
        if kind is TokenType.STRING:
            self._advance()
            return self._prev.text
        if self.sees("INTERVAL"):
            return duration_text(self.duration(f'option "{key}"', zero=True))
        if self.accept("TRUE"):
            return True
        if self.accept("FALSE"):
            return False
        negative = self.accept_symbol(TokenType.DASH)
        if self._curr.token_type is TokenType.NUMBER and len(self._curr.text) <= 30:
            self._advance()
            text = self._prev.text
            number: float = int(text) if text.isdigit() else float(text)
            if number != float("inf"):
                return -number if negative else number
            self._advance(-1)
        self.fail_expecting(
            f'a value of option "{key}": a string, a number, an INTERVAL, TRUE or FALSE',
            "Put words in 'single quotes'.",
        )
