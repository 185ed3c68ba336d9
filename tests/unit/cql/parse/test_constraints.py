"""Constraints of streams, among the declared columns."""

from __future__ import annotations

import pytest
from tests.unit.cql.parse.reading import read, refuse


def declare(constraint: str) -> str:
    return f"CREATE STREAM s (a INT, ts TIMESTAMP, {constraint})"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("CONSTRAINT c CLUSTERED BY (a, ts)", "CONSTRAINT c CLUSTERED BY (a, ts) WITHIN 0 ROWS"),
        ("CONSTRAINT c ORDERED BY (ts) WITHIN 5 ROWS", None),
        ("CONSTRAINT c FOREIGN KEY (a) REFERENCES t WITHIN 3 ROWS", None),
        ("CONSTRAINT c UNIQUE (a)", None),
        ("UNIQUE (a)", "CONSTRAINT unique_a UNIQUE (a)"),
        ("constraint INT, unique INT", None),  # columns that are called so
    ],
)
def test_it_is_read(written: str, meant: str | None) -> None:
    assert read(declare(written)) == declare(meant or written)


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("CONSTRAINT c ORDERED BY (a, ts) WITHIN 5 ROWS", "(a, ts)"),
        ("CONSTRAINT c CLUSTERED BY (a) WITHIN 2000000 ROWS", "2000000 ROWS"),
        ("CONSTRAINT c CHECK (a > 1)", "CHECK"),
    ],
)
def test_it_is_refused_at_its_place(written: str, place: str) -> None:
    assert refuse(declare(written)) == ("CQL-103", place)
