"""Names and literals, one token after the other."""

from __future__ import annotations

import pytest
from tests.unit.cql.parse.reading import read, refuse


@pytest.mark.parametrize(
    "text",
    [
        'INVOKE "a""b"',
        'INVOKE "select"',
    ],
)
def test_it_is_printed_as_it_was_written(text: str) -> None:
    assert read(text) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("INVOKE q AT TIMESTAMP '2020-01-01'", "INVOKE q AT TIMESTAMP '2020-01-01 00:00:00'"),
    ],
)
def test_what_is_read_is_printed_in_full(text: str, meant: str) -> None:
    assert read(text) == meant


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("INVOKE", ""),
        ("INVOKE select", "select"),
        ("FETCH q LIMIT x", "x"),
        ("FETCH q LIMIT -1", "-1"),
        ("DROP QUERY q q2", "q2"),
        ("HEARTBEAT s AT TIMESTAMP '2020-02-30 00:00:00'", "'2020-02-30 00:00:00'"),
    ],
)
def test_it_is_refused_at_its_place(text: str, place: str) -> None:
    assert refuse(text) == ("CQL-103", place)
