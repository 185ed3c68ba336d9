"""Texts to statements: split a script and read each statement."""

from __future__ import annotations

from sqlglot.tokenizer_core import Token, TokenType

from millpond.cql.parse.requests import FIRST_WORDS, StatementParser
from millpond.cql.parse.tokens import tokenize
from millpond.cql.print.dialect import CQL, translate_failures
from millpond.cql.tree.recursion import with_room
from millpond.cql.tree.statements import Statement
from millpond.errors import MillpondError, Span


def parse_script(text: str) -> list[Statement]:
    """Read the statements of a script, in order; none in a text of spaces and comments.

    Raises:
        MillpondError: CQL-1xx, 207, 210, 217, 218 or 301. The error's text is the whole script, its
            span a place in the script.
    """
    return [_parse(text, tokens) for tokens in _split(tokenize(text))]


def parse_statement(text: str) -> Statement:
    """Read the one statement of a text; a semicolon may end the statement.

    Raises:
        MillpondError: as `parse_script`, and CQL-101 for a text of none or several statements.
    """
    statements = _split(tokenize(text))
    if not statements:
        raise MillpondError(
            "CQL-101",
            "the text holds no statement",
            detail=f"Statements start with {', '.join(FIRST_WORDS[:-1])} or {FIRST_WORDS[-1]}.",
            text=text,
            span=Span(len(text), len(text)),
        )
    first = _parse(text, statements[0])
    if len(statements) > 1:
        second = statements[1]
        raise MillpondError(
            "CQL-101",
            "the text holds several statements where one is expected",
            hint="Send them one by one, or as a script.",
            text=text,
            span=Span(second[0].start, second[-1].end + 1),
        )
    return first


def _split(tokens: list[Token]) -> list[list[Token]]:
    """Split tokens by statement, without semicolons; leave out empty statements."""
    statements: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]


def _parse(script: str, tokens: list[Token]) -> Statement:
    offset, end = tokens[0].start, tokens[-1].end + 1
    text = script[offset:end]
    if offset:
        for token in tokens:
            token.start -= offset
            token.end -= offset

    def read() -> Statement:
        parser = StatementParser.over(CQL, text, tokens)
        parser.offset = offset
        return parser.statement()

    try:
        with translate_failures(text):
            return with_room(read)
    except MillpondError as error:
        if error.span is not None and error.text == text:
            error.text, error.span = script, error.span.shift(offset)
        raise
