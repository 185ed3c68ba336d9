"""Durations as text."""

from __future__ import annotations

from millpond.cql.windows import UNITS


def duration_text(microseconds: int) -> str:
    """A duration in the longest unit that measures it without a fraction.

    >>> duration_text(900_000_000), duration_text(1), duration_text(86_400_000_000)
    ('15 MINUTES', '1 MICROSECOND', '1 DAY')
    """
    for unit, size in UNITS.items():
        if microseconds % size == 0 and microseconds:
            count = microseconds // size
            return f"{count} {unit}" if count == 1 else f"{count} {unit}S"
    return "0 SECONDS"
