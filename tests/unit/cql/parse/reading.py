"""Reads a statement and prints it, or says where it is refused."""

from __future__ import annotations

import pytest

from millpond.cql import parse_statement, print_statement
from millpond.errors import MillpondError


def read(text: str) -> str:
    """What a statement is read as, printed; reading that again changes nothing."""
    printed = print_statement(parse_statement(text))
    assert print_statement(parse_statement(printed)) == printed
    return printed


def refuse(text: str) -> tuple[str, str]:
    """The code of the error of a statement, and the part of the text that it marks."""
    with pytest.raises(MillpondError) as raised:
        parse_statement(text)
    error = raised.value
    assert error.span is not None
    return error.code, text[error.span.start : error.span.end]
