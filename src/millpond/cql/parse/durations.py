"""Durations to text, and text outside of statements to durations."""

from __future__ import annotations

from fractions import Fraction

from millpond.cql.parse.windows import LONGEST, UNIT_NAMES, UNITS, amounts


def duration_text(microseconds: int) -> str:
    """Write a duration in the longest unit that needs no fraction.

    >>> duration_text(900_000_000), duration_text(1), duration_text(86_400_000_000)
    ('15 MINUTES', '1 MICROSECOND', '1 DAY')
    """
    for unit, size in UNITS.items():
        if microseconds % size == 0 and microseconds:
            count = microseconds // size
            return f"{count} {unit}" if count == 1 else f"{count} {unit}S"
    return "0 SECONDS"


def parse_duration(text: str) -> int:
    """Read a duration's text, as in `INTERVAL`, as microseconds; zero is allowed.

    Raises:
        ValueError: the text is no duration, or a negative or too long one; the message is a
            sentence.

    >>> parse_duration("15 minutes"), parse_duration("1 hour 30 s"), parse_duration("0.5 SECONDS")
    (900000000, 3630000000, 500000)
    """
    total = Fraction(0)
    parts = amounts(text)
    if not parts:
        raise ValueError("Write a number and a unit, for example 15 minutes")
    for number, unit in parts:
        if unit is None:
            raise ValueError("A number needs a unit of time")
        if unit not in UNIT_NAMES:
            raise ValueError(f'"{unit.lower()}" is no unit of time of a fixed length')
        total += Fraction(number) * UNIT_NAMES[unit]
    if total.denominator != 1:
        raise ValueError("A length of time is a whole number of microseconds")
    if total < 0:
        raise ValueError("A length of time is not negative")
    if total > LONGEST:
        raise ValueError("No length of time is longer than all instants there are")
    return int(total)
