"""What texts have in common that differ in their constants: the shape and the outline.

A shape is made of tokens, an outline of the text itself. See `templates` for what they are good for
and why that is right; nothing here binds, so that what is only asked of texts needs no binding.
"""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import Token, TokenType

#: The tokens of a text, with kinds in the places of constants.
ShapeKey = tuple[str, ...]

#: A string, or a number that touches no name, point or sign of an exponent. What stands before it
#: is looked at behind its first character, because `re` skips fast to one of these characters.
CONSTANT = re.compile(
    r"(['\d](?:(?<=')(?<![\w$]')(?:[^']|'')*'|(?<=\d)(?<![\w$.]\d)\d*(?:\.\d+)?(?![\w$.])))"
)


def shape_of(tokens: list[Token]) -> tuple[ShapeKey, list[Token]]:
    """Replace every constant of a token sequence by its kind; return it and the constants."""
    key: list[str] = []
    constants: list[Token] = []
    number, string = TokenType.NUMBER, TokenType.STRING
    quoted = TokenType.IDENTIFIER
    for token in tokens:
        kind = token.token_type
        if kind is number:
            constants.append(token)
            key.append(number_kind(token.text))
        elif kind is string:
            constants.append(token)
            key.append("'s")
        elif kind is quoted:
            key.append('"' + token.text)
        else:
            key.append(token.text)
    return tuple(key), constants


def outline_text(text: str) -> tuple[str, list[str]]:
    """Replace the constants of a text by their kinds; return the text and the constants.

    >>> outline_text("SELECT a FROM s WHERE b > 60 AND c = 'it''s'")
    ("SELECT a FROM s WHERE b > \\x00'i AND c = \\x00'", ['60', "it's"])
    """
    values: list[str] = []
    pieces = CONSTANT.split(text)
    for place in range(1, len(pieces), 2):
        constant = pieces[place]
        if constant[0] == "'":
            values.append(constant[1:-1].replace("''", "'"))
            pieces[place] = "\0'"
        else:
            values.append(constant)
            pieces[place] = "\0" + number_kind(constant)
    return "".join(pieces), values


def find_constants(text: str) -> list[tuple[int, int]]:
    """Find where `outline_text` sees constants in a text: the beginning and the end of each."""
    return [match.span() for match in CONSTANT.finditer(text)]


def number_kind(text: str) -> str:
    """Return the kind of a number, by its type in DuckDB; long numbers are one more kind.

    >>> [number_kind(n) for n in ("60", "6000000000", "0.5", "1e3")]
    ["'i", "'l", "'d", "'f"]
    """
    if len(text) > 18:
        return "'" + text
    if text.isdigit():
        return "'i" if len(text) < 10 else "'l"
    return "'f" if "e" in text or "E" in text else "'d"
