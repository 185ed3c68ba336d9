"""Text to tokens: DuckDB's tokens without those that CQL does not use.

Text that cannot be a token of any statement is refused here, at its place, so that the parsers
read only well-formed names, numbers and strings, and balanced brackets.
"""

from __future__ import annotations

import re
from typing import ClassVar

from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from millpond.errors import MillpondError, Span
from millpond.model.unicode_text import check_unicode

#: The deepest nesting of brackets: each level takes a few stack frames to parse and print.
DEEPEST = 32
#: The longest text that is read, in characters. Tokens take a hundred times their text's memory.
LONGEST_TEXT = 4_194_304
#: The most tokens of a statement, or of one row of INSERT. What follows takes time for each, some
#: of it in calls that cannot be ended early.
MOST_TOKENS = 20_000
#: The longest string constant, and the longest number, in characters.
LONGEST_STRING = 1_048_576
LONGEST_NUMBER = 1_000

_DIGITS = r"[0-9]+(_[0-9]+)*"
_NUMBER = re.compile(rf"{_DIGITS}(\.({_DIGITS})?)?([eE][+-]?{_DIGITS})?")
_FRACTION = re.compile(rf"\.{_DIGITS}([eE][+-]?{_DIGITS})?")
_OPENING = {
    TokenType.L_PAREN: (TokenType.R_PAREN, "("),
    TokenType.L_BRACKET: (TokenType.R_BRACKET, "["),
}
_CLOSING = {TokenType.R_PAREN: ")", TokenType.R_BRACKET: "]"}
#: A parameter of a query: `$name`.
_PARAMETER = re.compile(r"\$[A-Za-z_]\w*")
_WORD_START = re.compile(r"[\w'\".$]")
_FOREIGN = {
    TokenType.L_BRACE,
    TokenType.R_BRACE,
    TokenType.BLOCK_START,
    TokenType.BLOCK_END,
    TokenType.PARAMETER,
    TokenType.PLACEHOLDER,
    TokenType.HASH,
    TokenType.BACKSLASH,
    TokenType.DAT,
    TokenType.DQMARK,
}
_QUOTES = "‘’‚‛“”„‟`´"


_Quotes = list[str | tuple[str, str]]


class CqlTokenizer(DuckDB.Tokenizer):
    """DuckDB's tokenizer with `$` in names and without statements kept as raw text."""

    HEREDOC_STRINGS: ClassVar[_Quotes] = []
    BYTE_STRINGS: ClassVar[_Quotes] = []
    BIT_STRINGS: ClassVar[_Quotes] = []
    HEX_STRINGS: ClassVar[_Quotes] = []
    COMMANDS: ClassVar[set[TokenType]] = set()
    VAR_SINGLE_TOKENS: ClassVar[set[str]] = set()
    SINGLE_TOKENS = {  # noqa: RUF012
        char: kind for char, kind in DuckDB.Tokenizer.SINGLE_TOKENS.items() if char not in "$`"
    }
    KEYWORDS = {  # noqa: RUF012
        word: kind
        for word, kind in DuckDB.Tokenizer.KEYWORDS.items()
        if not word.startswith(("{", "|>"))
    }


_DIALECT = DuckDB()


def tokenize(text: str) -> list[Token]:
    """Split a text into tokens, without comments.

    Raises:
        MillpondError: CQL-102, at the text that is no token; CQL-104, the text is too long, or a
            statement or a constant in it.
    """
    check_unicode(text, "the text", "CQL-102")
    if len(text) > LONGEST_TEXT:
        raise MillpondError(
            "CQL-104",
            f"the text has {len(text):,} characters",
            detail=f"At most {LONGEST_TEXT:,} are read at once.",
            hint="Send the statements in parts; rows can be pushed.",
        )
    try:
        tokens = CqlTokenizer(_DIALECT).tokenize(text)
    except TokenError:
        raise _find_unterminated(text) or _unreadable(text, Span(0, len(text))) from None
    if "/*" in text and (error := _find_unterminated(text)):
        raise error
    if len(text) > LONGEST_NUMBER:
        _check_lengths(text, tokens)
    _check(text, tokens)
    return tokens


def _check_lengths(text: str, tokens: list[Token]) -> None:
    """Refuse constants and statements that are too long. Rows of VALUES are counted one by one."""
    count, depth, rows, inserts = 0, 0, False, False
    for place, token in enumerate(tokens):
        kind = token.token_type
        most = LONGEST_NUMBER if kind is TokenType.NUMBER else LONGEST_STRING
        if token.end - token.start >= most:
            raise _too_long_error(text, token, f"a constant of more than {most:,} characters")
        if kind in _OPENING:
            depth += 1
        elif kind in _CLOSING:
            depth -= 1
        elif kind is TokenType.SEMICOLON:
            count, rows, inserts = -1, False, False
        elif depth == 0 and kind is TokenType.INSERT and count == 0:
            inserts = True
        elif depth == 0 and kind is TokenType.VALUES and count < 8:
            rows = inserts
        elif depth == 0 and kind is TokenType.COMMA and rows:
            count = 0
        count += 1
        if count > MOST_TOKENS:
            raise _too_long_error(text, tokens[place], f"more than {MOST_TOKENS:,} words and signs")


def _too_long_error(text: str, token: Token, what: str) -> MillpondError:
    return MillpondError(
        "CQL-104",
        f"the statement has {what}",
        hint="Put many values into a relation, and read it in the query; rows can be pushed.",
        text=text,
        span=Span(token.start, min(token.end, token.start + 40) + 1),
    )


def _check(text: str, tokens: list[Token]) -> None:
    """Refuse tokens that sqlglot reads but CQL does not have, and brackets that do not match.

    One loop without calls, because every query that is registered comes through here.
    """
    open_brackets: list[Token] = []
    previous: Token | None = None
    for token in tokens:
        kind = token.token_type
        token.comments = []
        if kind is TokenType.VAR:
            if not is_name(token.text):
                if not _PARAMETER.fullmatch(token.text):
                    raise _unreadable(text, Span(token.start, token.end + 1))
                token.token_type = TokenType.PARAMETER
        elif kind is TokenType.NUMBER:
            start = token.start
            pattern = _NUMBER
            if previous is not None and previous.token_type is TokenType.DOT:
                pattern = _FRACTION
                if previous.end + 1 == start:
                    start = previous.start
            if not pattern.fullmatch(text, start, token.end + 1):
                raise _malformed_number(text, start, token.end + 1)
        elif kind in _OPENING:
            open_brackets.append(token)
            if len(open_brackets) > DEEPEST:
                raise _nesting_error(text, token)
        elif kind in _CLOSING:
            if not open_brackets or _OPENING[open_brackets[-1].token_type][0] is not kind:
                raise _unbalanced_error(text, token, open_brackets[-1] if open_brackets else None)
            open_brackets.pop()
        elif kind is TokenType.SEMICOLON:
            if open_brackets:
                break
        elif kind is TokenType.IDENTIFIER:
            if not token.text:
                raise _empty_name(text, token)
        elif kind in _FOREIGN:
            raise _unreadable(text, Span(token.start, token.end + 1))
        if (
            previous is not None
            and previous.token_type is TokenType.NUMBER
            and previous.end + 1 == token.start
            and _WORD_START.match(text, token.start)
        ):
            raise _malformed_number(text, previous.start, token.end + 1)
        previous = token
    if open_brackets:
        raise _unclosed_error(text, open_brackets[-1])


def is_name(text: str) -> bool:
    """Whether a text can be a name without quotes."""
    return text.isidentifier() or (text[:1] != "$" and text.replace("$", "_").isidentifier())


def _nesting_error(text: str, token: Token) -> MillpondError:
    return MillpondError(
        "CQL-103",
        "brackets nest too deeply",
        detail=f"A statement may nest at most {DEEPEST} brackets.",
        hint="Name parts of the query with WITH, or drop superfluous brackets.",
        text=text,
        span=Span(token.start, token.end + 1),
    )


def _empty_name(text: str, token: Token) -> MillpondError:
    return MillpondError(
        "CQL-102",
        "a quoted name is empty",
        hint="Write the name between the double quotes.",
        text=text,
        span=Span(token.start, token.end + 1),
    )


def _unclosed_error(text: str, opened: Token) -> MillpondError:
    closing, bracket = _OPENING[opened.token_type]
    return MillpondError(
        "CQL-103",
        f'"{bracket}" is never closed',
        hint=f"Add the missing {_CLOSING[closing]}.",
        text=text,
        span=Span(opened.start, opened.end + 1),
    )


def _unbalanced_error(text: str, token: Token, opened: Token | None) -> MillpondError:
    closing = _CLOSING[token.token_type]
    if opened is None:
        detail = f"No bracket is open before this {closing}."
    else:
        opening = _OPENING[opened.token_type][1]
        detail = f'The bracket open here is "{opening}" at offset {opened.start}.'
    return MillpondError(
        "CQL-103",
        f'"{closing}" closes no bracket',
        detail=detail,
        hint="Balance the brackets.",
        text=text,
        span=Span(token.start, token.end + 1),
    )


def _malformed_number(text: str, start: int, end: int) -> MillpondError:
    return MillpondError(
        "CQL-102",
        f'"{text[start:end]}" is neither a number nor a name',
        detail="A number ends at a space or an operator; a name does not start with a digit.",
        hint="Put a space behind the number, or the name in double quotes.",
        text=text,
        span=Span(start, end),
    )


def _unreadable(text: str, span: Span) -> MillpondError:
    piece = text[span.start : span.end]
    odd = next(
        (i for i, c in enumerate(piece) if not (c.isalnum() or c in "_$")),
        0,
    )
    char = piece[odd : odd + 1]
    at = span.start + odd
    if char in _QUOTES and char:
        hint = "Put strings in 'single quotes' and names in \"double quotes\"."
    elif char == "#":
        hint = "A comment starts with --; put odd names in double quotes."
    elif char in "{}" and char:
        hint = (
            "CQL has no templates and no struct literals: write a struct as the JSON text "
            "'{\"a\": 1}', which is cast to the type of its column."
        )
    elif char in "?@\\$" and char:
        hint = (
            "CQL has no variables: write the value itself, a parameter $name, or read it from a "
            "relation; put odd names in double quotes."
        )
    else:
        hint = "Put a name with such characters in double quotes."
    return MillpondError(
        "CQL-102",
        f"the character {char!r} cannot be read here",
        hint=hint,
        text=text,
        span=Span(at, at + max(1, len(char))),
    )


_LEXEME = re.compile(r"--[^\r\n]*|'|\"|/\*")


def _find_unterminated(text: str) -> MillpondError | None:
    """Make the error of a string, quoted name or comment that never ends, if there is one."""
    at = 0
    while match := _LEXEME.search(text, at):
        start, lexeme = match.start(), match[0]
        if lexeme == "/*":
            end = _comment_end(text, start)
        elif lexeme in "'\"":
            end = _quoted_end(text, start, lexeme)
        else:
            end = match.end()
        if end < 0:
            what, closing = {
                "/*": ("comment", "*/"),
                "'": ("string", "'"),
                '"': ("quoted name", '"'),
            }[lexeme]
            hint = f"Close it with {closing}"
            hint += (
                " (a quote inside a string is written twice: 'it''s')." if what == "string" else "."
            )
            return MillpondError(
                "CQL-102",
                f"the {what} never ends",
                hint=hint,
                text=text,
                span=Span(start, _line_end(text, start)),
            )
        at = end
    return None


def _quoted_end(text: str, start: int, quote: str) -> int:
    at = start + 1
    while (end := text.find(quote, at)) >= 0:
        if text[end + 1 : end + 2] != quote:
            return end + 1
        at = end + 2
    return -1


def _comment_end(text: str, start: int) -> int:
    depth = 0
    for match in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return start + match.end()
    return -1


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else max(end, start + 1)
