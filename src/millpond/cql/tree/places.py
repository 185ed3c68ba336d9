"""Places in a text: the spans that errors point at."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from millpond.errors import Span


def span_of(expr: exp.Expr) -> Span | None:
    """Find the smallest span that covers an expression's tokens, as far as places are known.

    Offsets are relative to the text the expression was parsed from. None for an expression no
    part of which came from a text.
    """
    start, end = -1, -1
    stack: list[exp.Expr] = [expr]
    while stack:
        node = stack.pop()
        meta = node._meta
        if meta and (first := meta.get("start")) is not None:
            last = meta["end"] + 1
            if start < 0 or first < start:
                start = first
            if last > end:
                end = last
        for value in node.args.values():
            if isinstance(value, exp.Expr):
                stack.append(value)
            elif type(value) in (list, tuple):
                stack.extend(item for item in value if isinstance(item, exp.Expr))
    return Span(start, end) if start >= 0 else None


def place(node: exp.Expr, span: Span) -> None:
    """Write a node's place into the node as sqlglot would."""
    node.meta["start"] = span.start
    node.meta["end"] = span.end - 1


class TokenPlace(dict[str, Any]):
    """The `meta` of a node that is one token: a dictionary whose deep copy is a flat copy.

    sqlglot copies trees often. Deep copies of places would be half of the cost of copying a list
    of thousands of constants.
    """

    def __init__(self, token: Token) -> None:
        super().__init__(line=token.line, col=token.col, start=token.start, end=token.end)

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        copied = TokenPlace.__new__(TokenPlace)
        copied.update(self)
        return copied
