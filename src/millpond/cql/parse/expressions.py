"""Reading expressions: restrict sqlglot's parser to CQL.

Calls keep their names (see `millpond.cql.tree.function_calls`), lists have no gaps, names are no
reserved words, and brackets behind an expression are refused where a window was meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, cast

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.windows import WindowParser
from millpond.cql.tree import function_calls
from millpond.cql.tree.nodes import SummaryEstimate
from millpond.cql.tree.places import TokenPlace, place, span_of
from millpond.model.summaries import ESTIMATES

_T = TypeVar("_T")

_NEVER_NAMES = {
    TokenType.ALL,
    TokenType.ANY,
    TokenType.CASE,
    TokenType.EXISTS,
    TokenType.FALSE,
    TokenType.IN,
    TokenType.IS,
    TokenType.ISNULL,
    TokenType.SOME,
    TokenType.TRUE,
}
_NEVER_ALIASES = {
    TokenType.BEGIN,
    TokenType.END,
    TokenType.LIMIT,
    TokenType.OFFSET,
    TokenType.WINDOW,
}
#: What a window in brackets begins with, and what stands behind a column of such a name.
_WINDOW_WORDS = ("RANGE", "ROWS", "NOW", "PARTITION")
_BEHIND_INDEX = {TokenType.R_BRACKET, TokenType.COLON, TokenType.DOT}
_CONSTANTS = {TokenType.STRING, TokenType.NUMBER}
#: A longer list of constants is one value of the tree; its constants cannot be lifted.
_LONG = 500
_LONGEST_INTERVAL = 100


class ExpressionParser(WindowParser):
    """Reads scalar expressions."""

    FUNCTIONS = function_calls.FUNCTIONS
    FUNCTION_PARSERS = function_calls.FUNCTION_PARSERS
    NO_PAREN_FUNCTION_PARSERS = function_calls.NO_PAREN_FUNCTION_PARSERS
    FUNCTIONS_WITH_ALIASED_ARGS: ClassVar[set[str]] = set()
    SUPPORTS_TABLE_QUERY = False
    LAMBDAS = {  # noqa: RUF012 - `->` is that of JSON
        kind: read for kind, read in Parser.LAMBDAS.items() if kind is not TokenType.ARROW
    }
    JSON_OPERATORS = {  # noqa: RUF012
        TokenType.ARROW: lambda self, this, path: self.member(this, path, "->"),
        TokenType.DARROW: lambda self, this, path: self.member(this, path, "->>"),
    }
    PLACEHOLDER_PARSERS = {  # noqa: RUF012
        **DuckDBParser.PLACEHOLDER_PARSERS,
        TokenType.PARAMETER: lambda self: self.fail_parameter(self._prev),
    }
    ID_VAR_TOKENS = Parser.ID_VAR_TOKENS - _NEVER_NAMES
    ALIAS_TOKENS = Parser.ALIAS_TOKENS - _NEVER_NAMES - _NEVER_ALIASES
    TABLE_ALIAS_TOKENS = Parser.TABLE_ALIAS_TOKENS - _NEVER_NAMES - _NEVER_ALIASES
    WINDOW_ALIAS_TOKENS = Parser.WINDOW_ALIAS_TOKENS - _NEVER_NAMES

    def scalar(self, what: str) -> exp.Expression:
        """Read a scalar expression; the caller checks its shape."""
        value = self._parse_disjunction()
        if value is None:
            self.fail_expecting(what)
        return cast(exp.Expression, value)

    def member(self, this: exp.Expr, path: exp.Expr | None, sign: str) -> exp.Expr:
        """Make `this -> path` or `this ->> path`: a member of JSON, as JSON or as text."""
        key = path.this if isinstance(path, exp.Neg) else path
        if not isinstance(key, exp.Literal) or path is None:
            raise self.fault(
                f"what stands behind {sign} is no constant",
                detail=f"{sign} takes a member of JSON; there are no lambda expressions.",
                hint=f"Write value {sign} 'key', value {sign} '$.path', or json_extract(value, x).",
                span=span_of(path) if path is not None else None,
            )
        name = "json_extract" if sign == "->" else "json_extract_string"
        found = exp.Anonymous(this=name, expressions=[this, path])
        if (span := span_of(this)) is not None:
            place(found, self.since(span))
        return found

    def _parse_csv(
        self, parse_method: Callable[[], _T | None], sep: TokenType = TokenType.COMMA
    ) -> list[_T]:
        # sqlglot's own method accepts a missing item between commas.
        item = parse_method()
        if item is None:
            if self.sees_symbol(sep):
                self.fail_expecting("an expression")
            return []
        items = [item]
        while self._match(sep):
            item = parse_method()
            if item is None:
                self.fail_expecting("an expression")
            items.append(item)
        return items

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        values, length = self._constants() if self.sees_symbol(TokenType.L_PAREN) else ([], 0)
        if not values:
            return super()._parse_in(this, alias)
        self._advance(length)
        # A tuple is shared by copies of the tree and passed over by walks: a list of thousands
        # would cost a tenth of a second for each, and binding makes dozens.
        listed = values if len(values) <= _LONG else tuple(values)
        return self.expression(exp.In(this=this, expressions=listed))

    def _constants(self) -> tuple[list[exp.Expr], int]:
        """Read a list of plain constants up to its bracket, if one follows, and count its tokens.

        Reading thousands of constants as expressions would take ten times as long.
        """
        found: list[exp.Expr] = []
        tokens, place = self._tokens, self._index + 1
        while place + 1 < len(tokens):
            is_negative = tokens[place].token_type is TokenType.DASH
            token, behind = tokens[place + is_negative], place + is_negative + 1
            kind = token.token_type
            if kind not in _CONSTANTS or (is_negative and kind is TokenType.STRING):
                break
            literal: exp.Expr = exp.Literal(this=token.text, is_string=kind is TokenType.STRING)
            literal._meta = TokenPlace(token)
            found.append(exp.Neg(this=literal) if is_negative else literal)
            if behind == len(tokens):
                break
            if tokens[behind].token_type is TokenType.R_PAREN:
                return found, behind + 1 - self._index
            if tokens[behind].token_type is not TokenType.COMMA:
                break
            place = behind + 1
        return [], 0

    def _parse_type(
        self, parse_interval: bool = True, fallback_to_identifier: bool = False
    ) -> exp.Expr | None:
        # DATE '2024-01-01'::INT casts the date; sqlglot's own would cast the string first.
        kind = self._curr.token_type
        if (
            self._next.token_type is TokenType.STRING
            and kind in self.TYPE_TOKENS
            and kind is not TokenType.INTERVAL
            and (to := self._parse_types(check_func=False, allow_identifiers=False))
        ):
            cast_ = exp.Cast(this=self._parse_primary(), to=to)
            return self._parse_column_ops(cast_)
        return super()._parse_type(parse_interval, fallback_to_identifier)

    def _parse_interval(
        self, require_interval: bool = True, parse_function_unit: bool = True
    ) -> exp.Add | exp.Interval | None:
        length = self._next if self.sees("INTERVAL") else self._curr
        if length.token_type in _CONSTANTS and len(length.text) > _LONGEST_INTERVAL:
            # sqlglot splits an interval's text in time quadratic in its length.
            self._advance()
            raise self.fault("the length of an INTERVAL is too long a text")
        interval = super()._parse_interval(require_interval, parse_function_unit)
        if isinstance(interval, exp.Add):
            raise self.fault(
                "an INTERVAL has several parts",
                hint="Write INTERVAL '1 day 2 hours', or add two intervals.",
                span=span_of(interval) or self.behind(),
            )
        return interval

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:
        if self._next.token_type is TokenType.FROM and self.accept_symbol(TokenType.ALIAS):
            self.fail_expecting("a name behind AS", 'Write AS "from" for that name.')
        aliased = super()._parse_alias(this, explicit)
        if self._prev.token_type is TokenType.ALIAS:
            self.fail_expecting("a name behind AS")
        return aliased

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        if this is None or not self.sees_symbol(TokenType.L_BRACKET):
            return super()._parse_bracket(this)
        self._advance()
        if self._curr.text.upper() in _WINDOW_WORDS and self._next.token_type not in _BEHIND_INDEX:
            self._advance(-1)
            raise self.fault(
                "a window stands behind an expression",
                detail="Windows stand behind the name of a stream in FROM.",
                hint="Write value[1] for an element of an array.",
            )
        found = self._part(this)
        if (span := span_of(this)) is not None:
            place(found, self.since(span))
        return self._parse_bracket(found)

    def _part(self, this: exp.Expr) -> exp.Expr:
        """Read `1]`, `'name']`, `2:3]`, `2:]` or `:3]`: an element, a field or a slice."""
        first: exp.Expr = exp.Literal.number(1)
        last: exp.Expr = exp.Neg(this=exp.Literal.number(1))
        if not self.sees_symbol(TokenType.COLON):
            first = self.scalar("an index")
        sliced = self.accept_symbol(TokenType.COLON)
        if sliced and not self.sees_symbol(TokenType.R_BRACKET):
            last = self.scalar("the last index of a slice")
        self.expect_symbol(TokenType.R_BRACKET, "]", "Write value[1], value['name'] or value[2:3].")
        if sliced:
            return exp.Anonymous(this="array_slice", expressions=[this, first, last])
        return exp.Anonymous(this="array_extract", expressions=[this, first])

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        window = super()._parse_window(this, alias)
        if isinstance(window, exp.Window):
            spec = window.args.get("spec")
            if spec is not None and spec.args.get("end") is None:
                spec.set("end", "CURRENT ROW")  # ROWS 3 PRECEDING ends at the current row
        return window

    def _parse_user_defined_type(self, identifier: exp.Identifier) -> exp.Expr | None:
        raise self.fault(
            f'the type "{identifier.name}" is unknown',
            code="CQL-210",
            hint="The types are those columns may have: BIGINT, DOUBLE, VARCHAR, TIMESTAMP, ...",
            span=span_of(identifier),
        )

    def _summary_estimate(self) -> SummaryEstimate:
        """Read `SUMMARY(name).ESTIMATE.COUNT(value, …)`."""
        start = self.here()
        self._advance(2)
        name, span = self.name("a summary")
        identifier = exp.Identifier(this=name, quoted=self._prev.token_type is TokenType.IDENTIFIER)
        place(identifier, span)
        self.expect_symbol(TokenType.R_PAREN, ")")
        shape = f"Write SUMMARY({name}).ESTIMATE.COUNT(value)."
        self.expect_symbol(TokenType.DOT, ".", shape)
        self.expect("ESTIMATE", hint=shape)
        self.expect_symbol(TokenType.DOT, ".", shape)
        kind = next((k for k in ESTIMATES if self.accept(k.upper())), None)
        if kind is None:
            self.fail_expecting(f"one of {', '.join(k.upper() for k in ESTIMATES)}", shape)
        self.expect_symbol(TokenType.L_PAREN, "(", shape)
        values = [] if self.sees_symbol(TokenType.R_PAREN) else self._parse_csv(self._value)
        self.expect_symbol(TokenType.R_PAREN, ")")
        asked = ESTIMATES[kind]
        if not asked.least <= len(values) <= asked.most:
            many = "no value" if asked.most == 0 else "one value, or two: from and to"
            raise self.fault(f"{kind.upper()} takes {many}", code="CQL-217", span=self.since(start))
        node = SummaryEstimate(this=identifier, kind=kind, expressions=values)
        place(node, self.since(start))
        return node

    def _value(self) -> exp.Expr:
        return self.scalar("a value")

    def _parse_function_call(
        self,
        functions: dict[str, Any] | None = None,
        anonymous: bool = False,
        optional_parens: bool = True,
        any_token: bool = False,
    ) -> exp.Expr | None:
        token = self._curr
        if self.sees("SUMMARY") and self._next.token_type is TokenType.L_PAREN:
            return self._summary_estimate()
        call = super()._parse_function_call(functions, anonymous, optional_parens, any_token)
        if call is not None:
            if isinstance(call, exp.Anonymous) and isinstance(call.this, str):
                call.args["this"] = call.this.lower()
            meta = call.meta
            meta["start"], meta["end"] = token.start, self._prev.end
        return call
