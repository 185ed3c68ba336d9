"""What a summary may be declared as, and be asked: `SUMMARY(name).ESTIMATE.COUNT(x)`."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: The shortest newest granularity: its grid has 64 lines, of whole microseconds.
SHORTEST_GRANULARITY = 1_000
#: The greatest rate and depth of COLLAPSE. Their zones are bounded by them, and so is the memory.
MOST_RATE, MOST_DEPTH = 64, 16
#: What a summary may take that does not say so, and the least and the most it may be given.
DEFAULT_MEMORY, LEAST_MEMORY, MOST_MEMORY = 4 << 20, 64 << 10, 64 << 20
#: What all summaries of a pond may be declared to take together.
MOST_TOGETHER = 1 << 30

_UNITS = {"byte": 1, "bytes": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_SIZE = re.compile(r"\s*(\d{1,12})\s*([a-z]+)\s*", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Read a summary's memory, as bytes.

    Raises:
        ValueError: the text is no size, or too small or too large a size; the message is a
            sentence.

    >>> parse_size("2 MB")
    2097152
    """
    found = _SIZE.fullmatch(text)
    unit = _UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise ValueError("Write a number and KB or MB, for example 4 MB")
    size = int(found[1]) * unit
    if not LEAST_MEMORY <= size <= MOST_MEMORY:
        raise ValueError("A summary may take between 64 KB and 64 MB")
    return size


@dataclass(frozen=True)
class EstimateKind:
    """One question.

    Attributes:
        least: The least number of values asked about.
        most: The greatest number.
        says: The answer, for people.
    """

    least: int
    most: int
    says: str


#: The questions by their names. All answers are DOUBLE and are never negative.
ESTIMATES: dict[str, EstimateKind] = {
    "count": EstimateKind(1, 2, "how many elements have the value, or one between two values"),
    "frequency": EstimateKind(1, 2, "the same, as a share of all elements"),
    "error": EstimateKind(1, 2, "how far COUNT of the same may be off, 95 times in 100"),
    "total": EstimateKind(0, 0, "how many elements the summary has, which is exact"),
    "confidence": EstimateKind(0, 0, "how sure the summary is, between 0 and 1"),
}
