"""Reading lists of options: `(key = value, ...)` of queries, `(key 'value', ...)` of sources.

Among a query's options may be values of its parameters: `(weight = 2, $most = 12.5)`.
"""

from __future__ import annotations

import math
from typing import Any

from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.queries import QueryParser
from millpond.cql.parse.tokens import tokenize
from millpond.model.durations import duration_text


class OptionParser(QueryParser):
    """Reads lists of options."""

    def options(self, sign: str, constants: dict[str, str] | None = None) -> dict[str, Any]:
        """Read `(key value, ...)`; a `sign` "=" must stand between key and value.

        Values of parameters, `$name = value`, are put into `constants`, where there are any.
        """
        self.expect_symbol(TokenType.L_PAREN, "(", "Options stand in brackets.")
        options: dict[str, Any] = {}
        while not self.accept_symbol(TokenType.R_PAREN):
            start = self.here()
            is_parameter = constants is not None and self.accept_symbol(TokenType.PARAMETER)
            key = self._prev.text if is_parameter else self._option_key()
            if key in options or (is_parameter and key[1:] in (constants or ())):
                raise self.fault(
                    f'{"parameter" if is_parameter else "option"} "{key}" is given twice',
                    hint="Keep one of them.",
                    span=self.since(start),
                )
            if sign:
                self.expect_symbol(TokenType.EQ, "=", f"Write {key} = value.")
            else:
                self.accept_symbol(TokenType.EQ)
            named = None if sign else self._secret()
            if is_parameter and constants is not None:
                constants[key[1:]] = self._parameter_value(key)
            else:
                options[key] = self._option_value(key) if named is None else named
            if not self.accept_symbol(TokenType.COMMA) and not self.sees_symbol(TokenType.R_PAREN):
                self.fail_expecting('"," or ")" behind an option')
        return options

    def _parameter_value(self, key: str) -> str:
        """Read the value of a parameter: a constant, which is written as `write_constant` does."""
        in_brackets = self.accept_symbol(TokenType.L_PAREN)
        sign = "-" if self.accept_symbol(TokenType.DASH) else ""
        kind = None
        if not sign:
            kind = next((k for k in ("TIMESTAMP", "DATE") if self.sees(k)), None)
            word = next((w for w in ("NULL", "TRUE", "FALSE") if self.sees(w)), None)
            if kind is not None:
                self.accept(kind)
            elif word is not None and self.accept(word):
                found = word
        if kind is not None or (not sign and self.sees_symbol(TokenType.STRING)):
            value, _ = self.string(f"the value of {key}")
            found = f"{kind} " * (kind is not None) + "'" + value.replace("'", "''") + "'"
        elif sign or word is None:
            if not self.accept_symbol(TokenType.NUMBER):
                self.fail_expecting(
                    f"the value of {key}: a string, a number, TRUE, FALSE, NULL, a DATE or a "
                    "TIMESTAMP"
                )
            if "e" in self._prev.text.lower() and math.isinf(float(self._prev.text)):
                raise self.fault(
                    f'the value of "{key}" is none that CQL has a constant for',
                    hint="It is beyond the largest DOUBLE.",
                )
            found = f"({sign}{self._prev.text})" if sign else self._prev.text
        if in_brackets:
            self.expect_symbol(TokenType.R_PAREN, ")")
        return found

    def fill_parameters(self, constants: dict[str, str]) -> tuple[str, str]:
        """Put the constants of parameters in their places, in the tokens that are not read yet.

        A constant has the place of its parameter. Returns what is not read yet as text with the
        constants, and with the parameters: one space between two tokens.

        Raises:
            MillpondError: CQL-102, a parameter has no value; CQL-103, a value has no parameter.
        """
        begin = max(self._index, 0)
        tokens, written = [], []
        pieces: list[str] = []
        at = self.here().start
        used = set()
        for token in self._tokens[begin:]:
            written.append(self.sql[token.start : token.end + 1])
            if token.token_type is not TokenType.PARAMETER:
                tokens.append(token)
                continue
            name = token.text[1:]
            if name not in constants:
                self.fail_parameter(token)
            used.add(name)
            pieces += self.sql[at : token.start], constants[name]
            at = token.end + 1
            for constant in tokenize(constants[name]):
                constant.start, constant.end = token.start, token.end
                tokens.append(constant)
        if left := sorted(constants.keys() - used):
            raise self.fault(
                f'the query has no parameter "${left[0]}"',
                hint="Leave the value out, or write the parameter in the query.",
            )
        end = self._tokens[-1].end + 1
        self._tokens[begin:] = tokens
        self._tokens_size = len(self._tokens)
        self._index = begin - 1
        self._advance()
        return "".join((*pieces, self.sql[at:end])), " ".join(written)

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
