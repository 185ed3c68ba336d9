"""Where errors point: the text of an expression, with its brackets."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millpond.cql.parse.tokens import tokenize
from millpond.cql.tree.places import span_of
from millpond.errors import Span


def mark(node: exp.Expr, text: str) -> Span | None:
    """Find the place of an expression, with the brackets and keywords that belong to it.

    Trees have the places of names and constants only. The rest is found among the tokens: a call's
    closing bracket, the SELECT of a query.
    """
    span = span_of(node)
    if span is None:
        return None
    tokens = tokenize(text)
    first = next((i for i, t in enumerate(tokens) if t.start >= span.start), None)
    inside = [i for i, t in enumerate(tokens) if t.end < span.end]
    if first is None or not inside:
        return span
    last = inside[-1]
    if isinstance(node, exp.Select | exp.Subquery):
        at = first
        while at > 0 and tokens[at].token_type is not TokenType.SELECT:
            at -= 1
        if tokens[at].token_type is TokenType.SELECT:
            first = at
    if isinstance(node, exp.Func) and first == last and _is(tokens, last + 1, _OPENING):
        last += 1
    while True:
        depth = lowest = 0
        for token in tokens[first : last + 1]:
            depth += token.token_type in _OPENING
            depth -= token.token_type in _CLOSING
            lowest = min(lowest, depth)
        if depth > lowest and _is(tokens, last + 1, _CLOSING):
            last += 1
        elif lowest < 0 and _is(tokens, first - 1, _OPENING):
            first -= 1
        else:
            break
    return Span(tokens[first].start, tokens[last].end + 1)


def mark_word(word: str, text: str) -> Span | None:
    """Find the place of the first token that is a word, in any case."""
    for token in tokenize(text):
        if token.text.lower() == word.lower() and token.token_type is not TokenType.STRING:
            return Span(token.start, token.end + 1)
    return None


_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)


def _is(tokens: list[Token], index: int, kinds: tuple[TokenType, ...]) -> bool:
    return 0 <= index < len(tokens) and tokens[index].token_type in kinds
