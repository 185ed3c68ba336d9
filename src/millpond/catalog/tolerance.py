"""What a query tolerates, and how far it is reduced, as texts of options (STREAM, 5.1, 5.2).

Both are lists of clauses with commas between them:

    window 10 minutes, sample 5 %, error 2 % at 95 %, false positives 1 %

`window` is the length below which no window of time is shortened, `sample` the share of elements
below which no stream is sampled, `error` how wide the interval of an estimate may be, at which
confidence; `false positives` of how many rows that are not there a filter may say that they are. A
reduction has no error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from millpond.model.durations import duration_text, parse_duration

#: What a query tolerates that does not say so.
NOTHING = "nothing"
#: The confidence of the bounds of queries that name none, in per cent.
_CONFIDENCE = 95.0
#: The least share a query may tolerate to be sampled by, in per cent: below, nothing would be left.
_LEAST_SAMPLE = 0.0001
#: The least and greatest share of false positives, in per cent.
_FALSE_POSITIVES = (0.01, 50.0)

_NUMBER = r"(\d{1,3}(?:\.\d{1,9})?)\s*%"
_SAMPLE = re.compile(rf"(?i)sample\s+{_NUMBER}")
_SAMPLES = re.compile(r"(?i)sample\s+[\d.]+\s*%(?:\s*/\s*[\d.]+\s*%)+")
_ERROR = re.compile(rf"(?i)error\s+{_NUMBER}(?:\s+at\s+{_NUMBER})?")
_FALSE = re.compile(rf"(?i)false\s+positives\s+{_NUMBER}")
_WINDOW = re.compile(r"(?i)window\s+(.+)")


@dataclass(frozen=True)
class Reduction:
    """How far a query is reduced.

    Attributes:
        window: The length to which longer windows of time are shortened, in microseconds; None:
            windows are as written.
        sample: The share of the elements that is read, in per cent; None: all. Where shares differ,
            the least of them.
        samples: Where shares differ, that of each occurrence of a stream, in the query's order.
        false_positives: Of how many rows that are not there a filter may say that they are, in per
            cent; None: conditions on whether rows are there are exact.
    """

    window: int | None = None
    sample: float | None = None
    samples: tuple[float, ...] = ()
    false_positives: float | None = None

    @classmethod
    def of_shares(cls, shares: Sequence[float]) -> Reduction:
        """The reduction that reads these shares of the occurrences, in per cent.

        >>> str(Reduction.of_shares([100, 5])), str(Reduction.of_shares([5, 5]))
        ('sample 100 % / 5 %', 'sample 5 %')
        """
        if len(set(shares)) == 1:
            return cls(None, shares[0] if shares[0] < 100 else None)
        return cls(None, min(shares), tuple(shares))

    def sample_of(self, number: int) -> float | None:
        """The share of one occurrence that is read; None: all."""
        share = self.samples[number] if self.samples else self.sample
        return None if share == 100 else share

    @property
    def reads_less(self) -> bool:
        """Whether fewer elements are read, in invocations too."""
        return self.window is not None or self.sample is not None

    def __bool__(self) -> bool:
        return self != NO_REDUCTION

    def __str__(self) -> str:
        """The reduction as text.

        >>> str(Reduction(600_000_000, 5.0)), str(Reduction())
        ('window 10 MINUTES, sample 5 %', 'nothing')
        """
        parts = []
        if self.window is not None:
            parts.append(f"window {duration_text(self.window)}")
        if self.sample is not None:
            shares = self.samples or (self.sample,)
            parts.append("sample " + " / ".join(f"{share:.12g} %" for share in shares))
        if self.false_positives is not None:
            parts.append(f"false positives {self.false_positives:.12g} %")
        return ", ".join(parts) or NOTHING


#: That of a query as it is written.
NO_REDUCTION = Reduction()


@dataclass(frozen=True)
class Tolerance:
    """What a query tolerates; without anything, nothing.

    Attributes:
        least: The furthest reduction.
        error: How far the ends of an estimate's interval may be from it, in per cent; None: at any
            distance.
        confidence: With which probability an interval holds, in per cent.
    """

    least: Reduction = NO_REDUCTION
    error: float | None = None
    confidence: float = _CONFIDENCE

    def __bool__(self) -> bool:
        return bool(self.least)

    def __str__(self) -> str:
        parts = [str(self.least)] if self.least else []
        if self.error is not None:
            parts.append(f"error {self.error:.12g} % at {self.confidence:.12g} %")
        return ", ".join(parts) or NOTHING


#: That of a query that does not say.
NO_TOLERANCE = Tolerance()


def parse_tolerance(text: str) -> Tolerance:
    """Read a tolerance.

    Raises:
        ValueError: it is none; the message is a sentence.

    >>> str(parse_tolerance("WINDOW 600 s"))
    'window 10 MINUTES'
    >>> str(parse_tolerance("error 2 % at 99 %, sample 5 %"))
    'sample 5 %, error 2 % at 99 %'
    >>> bool(parse_tolerance("nothing"))
    False
    """
    if text.strip().lower() == NOTHING:
        return Tolerance()
    window: int | None = None
    sample: float | None = None
    error: tuple[float, float] | None = None
    wrong: float | None = None
    for clause in text.split(","):
        word = clause.strip()
        if (found := _WINDOW.fullmatch(word)) and window is None:
            window = parse_duration(found[1])
            if window == 0:
                raise ValueError("A window is longer than nothing")
        elif (found := _SAMPLE.fullmatch(word)) and sample is None:
            sample = float(found[1])
            if not _LEAST_SAMPLE <= sample < 100:
                raise ValueError(f"A sample is at least {_LEAST_SAMPLE} % and less than 100 %")
        elif (found := _ERROR.fullmatch(word)) and error is None:
            error = float(found[1]), float(found[2] or _CONFIDENCE)
            if not 0 < error[0] < 100 or not 0 < error[1] < 100:
                raise ValueError("Error and confidence are more than 0 % and less than 100 %")
        elif (found := _FALSE.fullmatch(word)) and wrong is None:
            wrong = float(found[1])
            low, high = _FALSE_POSITIVES
            if not low <= wrong <= high:
                raise ValueError(f"False positives are at least {low} % and at most {high:g} %")
        else:
            raise ValueError(f"It has no clause {word[:40]!r}, or has it twice")
    if error is not None and sample is None:
        raise ValueError("An error needs a sample: say how small it may be, as in 'sample 1 %'")
    least = Reduction(window, sample, false_positives=wrong)
    return Tolerance(least) if error is None else Tolerance(least, *error)


def parse_reduction(text: str) -> Reduction:
    """Read the text of a reduction.

    >>> parse_reduction("window 10 MINUTES, sample 100 % / 5 %").samples
    (100.0, 5.0)
    """
    several = _SAMPLES.search(text)
    if several is None:
        return parse_tolerance(text).least
    shares = [float(one.strip(" %")) for one in several[0][len("sample") :].split("/")]
    rest = re.sub(r",\s*,", ",", text.replace(several[0], "")).strip(", ")
    given = Reduction.of_shares(shares)
    if not rest:
        return given
    other = parse_tolerance(rest).least
    return replace(given, window=other.window, false_positives=other.false_positives)
