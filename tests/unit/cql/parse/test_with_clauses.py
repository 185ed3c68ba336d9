"""WITH before a query in brackets that has a WITH of its own."""

from __future__ import annotations

import pytest
from tests.unit.cql.parse.reading import read


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (
            "WITH a AS (SELECT v FROM s) (WITH b AS (SELECT v FROM a) SELECT v FROM b)",
            "WITH a AS (SELECT v FROM s), b AS (SELECT v FROM a) SELECT v FROM b",
        ),
        (
            "WITH a AS (SELECT v FROM s) (WITH a AS (SELECT v FROM r) SELECT v FROM a)",
            'WITH "a_1" AS (SELECT v FROM s), a AS (SELECT v FROM r) SELECT v FROM a',
        ),
        (
            "WITH a AS (SELECT v FROM s) (WITH a AS (SELECT v FROM a) SELECT v FROM a)",
            'WITH "a_1" AS (SELECT v FROM s), a AS (SELECT v FROM "a_1" AS a) SELECT v FROM a',
        ),
    ],
)
def test_what_is_read_is_printed_in_full(text: str, meant: str) -> None:
    assert read(text) == meant
