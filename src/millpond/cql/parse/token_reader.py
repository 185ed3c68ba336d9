"""The reader of tokens: reads words, names and literals, and fails at a place in the text.

The CQL parser is a chain of subclasses, each in the module named for the clauses it reads. This is
the first: token_reader → windows → expressions → values → windowing → queries → definitions →
row_statements → requests.
"""

from __future__ import annotations

from typing import NoReturn, Self

from sqlglot.dialects.dialect import DialectType
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from millpond.errors import MillpondError, Span
from millpond.model.time import parse_instant
from millpond.work import check_work


class SyntaxFault(ParseError):
    """An error of sqlglot's own parsing methods: a message and the token it is about.

    Some of these methods catch the error of one reading and try another reading. So the error
    becomes a `MillpondError` only when it leaves the parser.
    """

    def __init__(self, message: str, token: Token | None) -> None:
        super().__init__(message)
        self.token = token


class TokenReader(DuckDBParser):
    """Moves over a statement's tokens."""

    @classmethod
    def over(cls, dialect: DialectType, text: str, tokens: list[Token]) -> Self:
        """Make a parser at the start of a statement's tokens; places are offsets in `text`."""
        parser = cls(error_level=ErrorLevel.IMMEDIATE, dialect=dialect)
        parser._open(text, tokens)
        return parser

    def _open(self, text: str, tokens: list[Token]) -> None:
        self.sql = text
        self._tokens = tokens
        self._tokens_size = len(tokens)
        self._index = -1
        self._advance()

    def raise_error(self, message: str, token: Token | None = None) -> None:
        raise SyntaxFault(message, token or self._curr or None)

    def _advance(self, times: int = 1) -> None:
        """Move on by some tokens. Raises POND-405 when the request's time is over."""
        check_work()
        super()._advance(times)

    # Places

    def here(self) -> Span:
        """Return the current token's place; the end of the last token if none is left."""
        if self._curr:
            return Span(self._curr.start, self._curr.end + 1)
        end = self._tokens[-1].end + 1 if self._tokens else 0
        return Span(end, end)

    def behind(self) -> Span:
        """Return the place of the token just read."""
        return Span(self._prev.start, self._prev.end + 1)

    def since(self, start: Span) -> Span:
        """Return the place from `start` to the token just read."""
        return Span(start.start, max(start.end, self._prev.end + 1))

    def describe_current(self) -> str:
        """Describe the current token, for a message."""
        if not self._curr:
            return "the statement ends"
        return f'found "{self.sql[self._curr.start : self._curr.end + 1]}"'

    # Failing

    def fault(
        self,
        primary: str,
        *,
        code: str = "CQL-103",
        detail: str | None = None,
        hint: str | None = None,
        span: Span | None = None,
    ) -> MillpondError:
        """Make an error at `span`, or at the current token."""
        return MillpondError(
            code, primary, detail=detail, hint=hint, text=self.sql, span=span or self.here()
        )

    def fail_expecting(self, what: str, hint: str | None = None) -> NoReturn:
        """Fail because the current token is not `what`."""
        raise self.fault(f"expected {what}, but {self.describe_current()}", hint=hint)

    def fail_parameter(self, token: Token) -> NoReturn:
        """Fail because a parameter, `$name`, has no value."""
        raise self.fault(
            f'the parameter "{token.text}" has no value',
            code="CQL-102",
            hint=f"Write CREATE QUERY name WITH ({token.text} = value) AS query, or give params: "
            + '{"'
            + token.text[1:]
            + '": value}.',
            span=Span(token.start, token.end + 1),
        )

    # Reading

    def sees(self, *words: str) -> bool:
        """Whether the next tokens are these keywords."""
        return self._match_text_seq(*words, advance=False)

    def accept(self, *words: str) -> bool:
        """Read these keywords if they come next."""
        return self._match_text_seq(*words)

    def expect(self, *words: str, hint: str | None = None) -> None:
        """Read these keywords, or fail."""
        for word in words:
            if not self._match_text_seq(word):
                self.fail_expecting(" ".join(words), hint)

    def accept_symbol(self, kind: TokenType) -> bool:
        return self._match(kind)

    def expect_symbol(self, kind: TokenType, symbol: str, hint: str | None = None) -> None:
        if not self._match(kind):
            self.fail_expecting(f'"{symbol}"', hint)

    def sees_symbol(self, kind: TokenType) -> bool:
        return self._curr.token_type is kind

    def at_end(self) -> bool:
        return not self._curr

    def expect_end(self) -> None:
        """Fail unless the statement ends here."""
        if self._curr:
            raise self.fault(
                f"unexpected {self._quote(self._curr)}",
                hint="End the statement here, or separate statements with a semicolon.",
            )

    def name(self, what: str) -> tuple[str, Span]:
        """Read a name, quoted or not, that is no reserved word."""
        if self._curr and self._curr.token_type in self.ID_VAR_TOKENS:
            self._advance()
            return self._prev.text, self.behind()
        hint = None
        if self._curr and self._curr.text.isidentifier():
            hint = f'"{self._curr.text}" is a reserved word: put it in double quotes to use it.'
        self.fail_expecting(f"the name of {what}", hint)

    def string(self, what: str) -> tuple[str, Span]:
        """Read a string in single quotes."""
        if self._curr.token_type is not TokenType.STRING:
            self.fail_expecting(f"{what} in 'single quotes'")
        self._advance()
        return self._prev.text, self.behind()

    def timestamp(self) -> int:
        """Read a timestamp's literal; microseconds since 1970."""
        text, span = self.string("a timestamp")
        try:
            return int(parse_instant(text))
        except (ValueError, OverflowError):
            raise self.fault(
                f"{text!r} is not a timestamp",
                hint="Write it as 'YYYY-MM-DD' or 'YYYY-MM-DD HH:MM:SS'.",
                span=span,
            ) from None

    def at_timestamp(self) -> int | None:
        """Read `AT TIMESTAMP '...'` if it comes next."""
        if not self.accept("AT"):
            return None
        self.expect("TIMESTAMP", hint="Write AT TIMESTAMP 'YYYY-MM-DD HH:MM:SS'.")
        return self.timestamp()

    def whole_number(self, what: str) -> tuple[int, Span]:
        """Read an integer, with its sign if it has one; the caller checks its range."""
        start = self.here()
        negative = self.accept_symbol(TokenType.DASH)
        token = self._curr
        if token.token_type is not TokenType.NUMBER:
            self.fail_expecting(what)
        self._advance()
        span = self.since(start)
        if not token.text.isdigit() or len(token.text) > 30:
            raise self.fault(f'"{token.text[:40]}" is not a usable whole number', span=span)
        return (-int(token.text) if negative else int(token.text)), span

    def _quote(self, token: Token) -> str:
        return f'"{self.sql[token.start : token.end + 1]}"'
