"""Finds the end of a statement while it is being typed.

The grammar needs whole statements, so a prompt first has to find out whether a statement is whole.
Only quotes and comments matter here, since they can hide a semicolon.
"""

from __future__ import annotations

import re

_HIDING = re.compile(
    r"""
      '(?:[^']|'')*(?P<string>'|\Z)
    | "(?:[^"]|"")*(?P<name>"|\Z)
    | --[^\n]*
    | /\*.*?(?P<comment>\*/|\Z)
    | ;
    """,
    re.VERBOSE | re.DOTALL,
)

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


def split(text: str) -> tuple[list[str], str]:
    """Split a text into its complete statements, without their semicolons, and the rest.

    >>> split("SELECT ';' FROM s; -- one;\\nSELECT")
    (["SELECT ';' FROM s"], ' -- one;\\nSELECT')
    """
    statements, start = [], 0
    for match in _HIDING.finditer(text):
        if match[0] == ";":
            if not is_blank(text[start : match.start()]):
                statements.append(text[start : match.start()].strip())
            start = match.end()
    return statements, text[start:]


def is_blank(text: str) -> bool:
    """Whether a text holds nothing but space and comments.

    >>> is_blank(" -- nothing\\n"), is_blank("SHOW STREAMS")
    (True, False)
    """
    return not _COMMENT.sub("", text).strip()
