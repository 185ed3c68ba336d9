"""What an answer, or a page of changes, may lack of what the query means: losses and bounds.

An answer is exact unless it says otherwise (docs/spec/pressure.md). Every reason for which an
answer may differ from the query's meaning is a `Loss`: retention dropped elements, their file was
damaged, the stream shed them, or the query tolerates that they are not read. So "is it complete?"
and "is it exact?" are one question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from millpond.model.time import format_instant


class Cause(StrEnum):
    """Why elements are missing."""

    EXPIRED = "expired"
    DAMAGED = "damaged"
    SHED = "shed"
    SAMPLED = "sampled"
    SHORTENED = "shortened"
    BUDGET = "budget"
    FILTERED = "filtered"


@dataclass(frozen=True)
class Loss:
    """Elements of one stream that an answer or a page of changes does not count.

    Attributes:
        stream: The stream's name.
        cause: 'expired' (RETAIN has dropped them), 'damaged' (their files were damaged or lost),
            'shed' (the stream sheds when there is too much to do), 'sampled' (the query tolerates
            a sample), 'shortened' (it tolerates a shorter window), 'budget' (the query has not
            looked at them within its budget, or not yet) or 'filtered' (none is missing, but a
            filter tells whether they are there).
        since: The first instant of which elements may be missing, in microseconds since 1970 UTC;
            None: from the beginning on.
        upto: The last such instant.
        elements: How many are missing; None where nobody could count them.
        missing: At most so many rows of the answer are missing, and none is wrong; None: there is
            no bound.
        kept: Of a sample, the share of the elements that was read, in per cent.
        wrong: Of a filter, of how many rows without a partner among the elements it may say that
            they have one, in per cent.
    """

    stream: str
    cause: Cause
    since: int | None
    upto: int
    elements: int | None = None
    missing: int | None = None
    kept: float | None = None
    wrong: float | None = None

    def __str__(self) -> str:
        """In one sentence, for people.

        >>> print(Loss("f", Cause.EXPIRED, None, 1_000_000))
        elements of stream "f" up to 1970-01-01 00:00:01 are not kept any more
        >>> str(Loss("f", Cause.SHED, 0, 1_000_000, 1, 1)).partition("; ")[2]
        'at most 1 row is missing'
        """
        one = self.elements == 1
        number = "" if self.elements is None else f"{self.elements:,} "
        upto = format_instant(self.upto)
        span = f"up to {upto}"
        if self.since is not None:
            span = f"from {format_instant(self.since)} to {upto}"
        fate = {
            Cause.EXPIRED: f"{'is' if one else 'are'} not kept any more",
            Cause.DAMAGED: f"{'was' if one else 'were'} lost with {'its' if one else 'their'} file",
            Cause.SHED: f"{'was' if one else 'were'} shed",
            Cause.SAMPLED: f"were sampled: {self.kept or 0:g} % of them were read",
            Cause.SHORTENED: "were not read, because the window was shortened",
            Cause.FILTERED: "are looked up in a filter, which says that one is there for"
            f" {self.wrong or 0:g} % of what is not",
            Cause.BUDGET: f"{'was' if one else 'were'} in part not looked at within the budget",
        }[self.cause]
        bound = ""
        if self.missing is not None:
            rows = "1 row is" if self.missing == 1 else f"{self.missing:,} rows are"
            bound = f"; at most {rows} missing"
        noun = "element" if one else "elements"
        return f'{number}{noun} of stream "{self.stream}" {span} {fate}{bound}'


@dataclass(frozen=True)
class Bounds:
    """Intervals that hold the values an exact answer would have.

    Attributes:
        confidence: With which probability, from 0 to 1, one interval holds, taken by itself; 1 for
            certain.
        columns: By the name of a column, for each row of the answer an interval (its ends
            included), or None where none can be given.
    """

    confidence: float
    columns: Mapping[str, Sequence[tuple[float, float] | None]]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        columns = {
            name: [None if cell is None else list(cell) for cell in cells]
            for name, cells in self.columns.items()
        }
        return {"confidence": self.confidence, "columns": columns}

    def list_rows(self) -> list[dict[str, Any]]:
        """As JSON values for each row of the answer.

        >>> Bounds(0.95, {"n": [(1.0, 2.0), None]}).list_rows()[0]
        {'confidence': 0.95, 'columns': {'n': [1.0, 2.0]}}
        """
        columns = self.to_json()["columns"]
        return [
            {"confidence": self.confidence, "columns": dict(zip(columns, cells, strict=True))}
            for cells in zip(*columns.values(), strict=True)
        ]

    @classmethod
    def from_json(cls, body: Mapping[str, Any] | None) -> Bounds | None:
        """The bounds of `to_json`; None of None."""
        if body is None:
            return None
        columns = {
            name: [None if cell is None else (float(cell[0]), float(cell[1])) for cell in cells]
            for name, cells in body["columns"].items()
        }
        return cls(body["confidence"], columns)


def merge_losses(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """Merge the losses of a query's leaves into one for each stream and cause, in that order."""
    found: dict[tuple[str, Cause], Loss] = {}
    for loss in losses:
        key = (loss.stream.lower(), loss.cause)
        before = found.get(key)
        found[key] = loss if before is None or before == loss else _join(before, loss)
    return tuple(found[key] for key in sorted(found))


def _join(one: Loss, other: Loss) -> Loss:
    """The loss over both spans; what nobody has counted over both is not said."""
    since = None if one.since is None or other.since is None else min(one.since, other.since)
    kept = None if one.kept is None or other.kept is None else min(one.kept, other.kept)
    wrong = None if one.wrong is None or other.wrong is None else max(one.wrong, other.wrong)
    return Loss(one.stream, one.cause, since, max(one.upto, other.upto), kept=kept, wrong=wrong)
