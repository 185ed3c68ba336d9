"""What can be asked of a summary: `SUMMARY(name).ESTIMATE.COUNT(x)` and its relatives."""

from __future__ import annotations

from dataclasses import dataclass


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
