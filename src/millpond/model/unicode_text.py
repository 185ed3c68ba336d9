"""Checks texts from outside: Python's may hold half of a surrogate pair, which is no character.

Such a text comes from JSON (`"\\ud800"`), or from file names and terminals that are not UTF-8. No
file can store it and no protocol can send it, so it is refused where it comes in.
"""

from __future__ import annotations

from millpond.errors import MillpondError, Span


def find_lone_surrogate(text: str) -> int | None:
    """Find the place of half of a surrogate pair in a text; None if there is none.

    >>> find_lone_surrogate("ab\\ud800"), find_lone_surrogate("😀")
    (2, None)
    """
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def check_unicode(text: str, what: str, code: str) -> str:
    """Return the text itself if no half of a surrogate pair stands in it.

    Args:
        text: A text from outside.
        what: The name of the text for the error.
        code: The error's code.

    Raises:
        MillpondError: `code`, half of a surrogate pair stands in the text.
    """
    at = find_lone_surrogate(text)
    if at is None:
        return text
    raise MillpondError(
        code,
        f"{what} is not Unicode",
        detail=f"\\u{ord(text[at]):04x} is half of a surrogate pair, and its other half is not"
        " there.",
        hint="Write a character beyond U+FFFF as itself, or as both halves.",
        text=text,
        span=Span(at, at + 1),
    )
