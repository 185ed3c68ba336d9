"""Budgets: how much a query may look at before it has to answer.

A budget in time is recorded as the probes it allowed, because a clock repeats nothing; tests and
whoever wants the same answer twice give a budget in probes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

#: Units of a budget in time, in microseconds.
_UNITS = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": 1_000_000,
    "second": 1_000_000,
    "minute": 60_000_000,
}
_BUDGET = re.compile(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([a-z]+)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Budget:
    """A budget in probes, or in microseconds; one of the two is set.

    Of a followed query it is for each element that arrives, and may be a fraction of a probe.
    """

    probes: float | None = None
    microseconds: int | None = None

    def __str__(self) -> str:
        """The text that `parse_budget` reads.

        >>> str(Budget(probes=5000)), str(Budget(microseconds=20_000))
        ('5000 probes', '20 ms')
        """
        if self.probes is not None:
            return f"{self.probes:.3f}".rstrip("0").rstrip(".") + " probes"
        length = self.microseconds or 0
        return f"{length} us" if length % 1_000 else f"{length // 1_000} ms"


def parse_budget(text: str, fractions: bool = False) -> Budget:
    """Read a budget's text.

    Args:
        text: The text.
        fractions: Whether it may be a fraction of a probe: of a budget for each element that comes.

    Raises:
        ValueError: the text is no budget, or its budget is too small for one probe; the message is
            a sentence.

    >>> parse_budget("5000 probes"), parse_budget("0.5 seconds")
    (Budget(probes=5000.0, microseconds=None), Budget(probes=None, microseconds=500000))
    >>> parse_budget("0.25 probes", fractions=True)
    Budget(probes=0.25, microseconds=None)
    """
    found = _BUDGET.fullmatch(text)
    unit = found[2].lower() if found else ""
    if found and unit in ("probe", "probes"):
        budget = Budget(probes=float(round(Decimal(found[1]), 3)))
    elif found and (size := _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))):
        budget = Budget(microseconds=round(Decimal(found[1]) * size))
    else:
        raise ValueError("Write a number and probes, ms or seconds, for example 5000 probes")
    if not (budget.probes or budget.microseconds):
        raise ValueError("A budget is enough for one probe at least")
    if not fractions and budget.probes is not None and budget.probes != int(budget.probes):
        raise ValueError("The probes of one answer are a whole number, 1 at least")
    return budget
