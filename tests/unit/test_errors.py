"""Errors show their place."""

from __future__ import annotations

import pytest

from millpond.errors import MillpondError, Span


@pytest.mark.parametrize("start", [0, 7, 5_000, 9_990])
@pytest.mark.parametrize("length", [1, 10, 2_000])
def test_a_snippet_of_a_long_line_is_what_is_around_the_place(start: int, length: int) -> None:
    text = "first line\n" + "".join(chr(97 + i % 26) for i in range(10_000))
    span = Span(11 + start, min(11 + start + length, len(text)))
    error = MillpondError("CQL-103", "x", text=text, span=span)
    shown = error.snippet()
    assert shown is not None
    line, marker = shown.split("\n")
    assert len(line) < 500
    at = marker.index("^")
    marked = line[at : len(marker)]
    assert text[span.start : span.end].startswith(marked)
    assert len(marked) == min(span.end - span.start, 240)
    assert (error.line, error.column) == (2, start + 1)
