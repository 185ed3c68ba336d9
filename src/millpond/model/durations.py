"""Units of time; durations to text, and text outside of statements to durations."""

from __future__ import annotations

import re
from fractions import Fraction

#: Microseconds in each unit in which durations are printed, longest unit first.
UNITS: dict[str, int] = {
    "WEEK": 604_800_000_000,
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}

#: Microseconds in each unit, by every name of the unit.
UNIT_NAMES: dict[str, int] = {
    **UNITS,
    **{f"{unit}S": size for unit, size in UNITS.items()},
    **dict.fromkeys(("US", "USEC", "USECS"), 1),
    **dict.fromkeys(("MS", "MSEC", "MSECS"), 1_000),
    **dict.fromkeys(("S", "SEC", "SECS"), 1_000_000),
    **dict.fromkeys(("MIN", "MINS"), 60_000_000),
    **dict.fromkeys(("H", "HR", "HRS"), 3_600_000_000),
    "D": 86_400_000_000,
    "W": 604_800_000_000,
}

#: The longest duration: a longer one reaches beyond every instant.
LONGEST = 2**60

_AMOUNT = re.compile(r"\s*([+-]?\d{1,30}(?:\.\d{0,12})?)\s*([A-Za-z]*)\s*")


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


def amounts(text: str) -> list[tuple[str, str | None]]:
    """Read the (number, unit) pairs of an interval's string; the last may lack its unit.

    >>> amounts("1 hour 30"), amounts("soon")
    ([('1', 'HOUR'), ('30', None)], [])
    """
    found: list[tuple[str, str | None]] = []
    at = 0
    while at < len(text):
        match = _AMOUNT.match(text, at)
        if match is None or (found and found[-1][1] is None):
            return []
        found.append((match[1], match[2].upper() or None))
        at = match.end()
    return found
