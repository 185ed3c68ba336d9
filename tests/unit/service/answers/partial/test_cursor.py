"""Cursors of answers in parts."""

from __future__ import annotations

import pytest

from millpond.errors import MillpondError
from millpond.service.answers.partial.cursor import ResumePoint, read_place


def test_a_cursor_is_read_as_it_was_written():
    place = ResumePoint(-5, 1_000, 17, ((64, 12, -(2**62)), (0, 0, 7)))
    text = place.write("3f2a9c", "SELECT 1")
    assert read_place(text, "3f2a9c", "SELECT 1", 2) == place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "3f2a9c.x.1.2.3.3,4,5",
        "3f2a9c.{query}.1.2.3,4,5",
        "3f2a9c.{query}.1.-2.3.3,4,5",
        "3f2a9c.{query}.1.2.-3.3,4,5",
        "3f2a9c.{query}.1.2.3.3,4",
        "3f2a9c.{query}.1.2.3.3,4,5_3,4,5",
        "3f2a9c.{query}.a.2.3.3,4,5",
        "other.{query}.1.2.3.3,4,5",
    ],
)
def test_what_is_no_cursor_is_refused(text):
    query = ResumePoint(1, 2, 3, ()).write("3f2a9c", "SELECT 1").split(".")[1]
    with pytest.raises(MillpondError, match="POND-412"):
        read_place(text.format(query=query), "3f2a9c", "SELECT 1", 1)
