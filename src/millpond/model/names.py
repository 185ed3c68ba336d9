"""One rule for the names that people give to streams, relations, queries, summaries and columns.

Names are parts of paths (`/v1/streams/NAME`), of keys, of lines in logs and of tables in terminals.
So none may lead elsewhere in a path, end a line, or be more than a line. Owners, tags and keys of
pushes, which are no parts of paths, are one line each.
"""

from __future__ import annotations

import unicodedata

from millpond.errors import MillpondError, Span

#: The most characters of a name, of an owner and of a tag.
LONGEST_NAME = 200
#: The most characters of a push's key.
LONGEST_KEY = 1_000

_SEPARATORS = ("Cc", "Zl", "Zp")


def find_fault_of_line(text: str, longest: int = LONGEST_NAME) -> str | None:
    """Say why a text is not one printable line of that length; None if it is.

    >>> find_fault_of_line("a b/ü"), find_fault_of_line("a\\nb")
    (None, 'U+000A in it is no printable character.')
    """
    if len(text) > longest:
        return f"It has {len(text):,} characters, and may have {longest:,}."
    if text.isprintable():
        return None
    odd = next(c for c in text if not c.isprintable())
    return f"U+{ord(odd):04X} in it is no printable character."


def find_fault_of_name(name: str) -> str | None:
    """Say why a text cannot be the name of a stream, relation, query or summary; None if it can.

    >>> find_fault_of_name("flights 2026"), find_fault_of_name("..")
    (None, 'It would lead elsewhere in a path.')
    """
    if fault := find_fault_of_line(name):
        return fault
    if "/" in name or "\\" in name or name in (".", ".."):
        return "It would lead elsewhere in a path."
    if not name or name != name.strip():
        return "It is empty, or begins or ends with a space."
    return "A number alone is the id of a query." if name.isdecimal() else None


def find_fault_of_column(name: str) -> str | None:
    """Say why a text cannot be the name of a declared column; None if it can.

    >>> find_fault_of_column("a/b"), find_fault_of_column("a\\0b")
    (None, 'U+0000 in it separates lines or controls a terminal.')
    """
    if len(name) > LONGEST_NAME:
        return find_fault_of_line(name)
    odd = next((c for c in name if unicodedata.category(c) in _SEPARATORS), None)
    return odd and f"U+{ord(odd):04X} in it separates lines or controls a terminal."


def check_name(name: str, text: str | None = None, span: Span | None = None) -> None:
    """Refuse what cannot be the name of a stream, relation, query or summary.

    Raises:
        MillpondError: CQL-102, at the name's place in the statement, if that is given.
    """
    if fault := find_fault_of_name(name):
        raise name_error("the name", name, fault, text, span)


def name_error(
    what: str, name: str, fault: str, text: str | None = None, span: Span | None = None
) -> MillpondError:
    """Make the error of a name that cannot be one, with the beginning of the name."""
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in name[:40])
    return MillpondError(
        "CQL-102",
        f'{what} "{shown}{"…" if len(name) > 40 else ""}" cannot be taken',
        detail=fault,
        hint="Take another name; letters, digits, _ and - are always right.",
        text=text,
        span=span,
    )
