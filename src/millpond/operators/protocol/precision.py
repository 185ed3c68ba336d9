"""How exact the rows on an edge are: rates of false negatives and false positives (STREAM, 5.3).

An edge of a reduced plan lacks some of the exact rows and may have wrong ones. Each node says what
it makes of its inputs' precision by the formulas below, from the sources to the answer. They are
derived in docs/design/pressure.md, and hold where rows are missing independently of one another,
values are equally frequent, and wrong rows meet partners as often as right ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from millpond.operators.protocol.cost_model import EdgeEstimate


@dataclass(frozen=True)
class Precision:
    """How exact the rows on an edge are.

    Attributes:
        missing: The chance that a row of the exact edge is missing: FN.
        wrong: How many rows that the exact edge does not have are expected for each row it has.
    """

    missing: float = 0.0
    wrong: float = 0.0

    @property
    def false_positives(self) -> float:
        """The chance that a row of the edge is wrong: FP."""
        given = 1 - self.missing + self.wrong
        return self.wrong / given if given else 0.0

    @property
    def kept(self) -> float:
        """The chance that a row of the exact edge is there."""
        return 1 - self.missing

    @property
    def _wrong_before(self) -> float:
        """Wrong rows for each exact row, had none been missing; they are missing as right ones."""
        return self.wrong / self.kept if self.kept else 0.0


EXACT = Precision()


def _make(kept: float, wrong_before: float) -> Precision:
    return Precision(1 - kept, wrong_before * kept)


def sample_rows(given: Precision, share: float) -> Precision:
    """A share of the rows, right or wrong, chosen independently of their values."""
    return _make(given.kept * share, given._wrong_before)


def join_rows(left: Precision, right: Precision) -> Precision:
    """Pairs: each needs both of its rows, and is wrong if one of them is."""
    wrong = (1 + left._wrong_before) * (1 + right._wrong_before) - 1
    return _make(left.kept * right.kept, wrong)


def unite_rows(inputs: Sequence[Precision], rows: Sequence[float]) -> Precision:
    """The rows of all inputs: the mean, weighted by how many rows each has."""
    total = sum(rows)
    if not total:
        return EXACT
    weights = [own / total for own in rows]
    return Precision(
        sum(i.missing * w for i, w in zip(inputs, weights, strict=True)),
        sum(i.wrong * w for i, w in zip(inputs, weights, strict=True)),
    )


def eliminate_duplicates(given: Precision, copies: float) -> Precision:
    """Each value once: it is missing only if all of its rows are.

    Args:
        given: The rows.
        copies: The rows for each value that may occur, λ. Values occur by chance (Poisson), so of
            those that do, (1 - e^(-λ·kept)) / (1 - e^(-λ)) still do where rows are missing.
    """
    if given.kept <= 0 or copies <= 0:
        return given
    return _make(math.expm1(-copies * given.kept) / math.expm1(-copies), given._wrong_before)


def subtract_rows(left: Precision, right: Precision, common: float) -> Precision:
    """Rows of the left without a value of the right; the right has each value once.

    A value that is missing on the right makes wrong rows, a wrong one makes rows missing.

    Args:
        left: The left rows.
        right: The values of the right.
        common: The share of the left rows that the exact right side has.
    """
    common = min(max(common, 0.0), 1.0)
    alone = 1 - common
    if not alone:
        return Precision(0.0, math.inf if right.missing else 0.0)
    # Wrong values of the right are values of the left as often as right ones are.
    hidden = min(1.0, right.wrong * common / alone)
    wrong = common / alone * left.kept * right.missing + left.wrong * (1 - hidden)
    return Precision(1 - left.kept * (1 - hidden), wrong)


def let_through(given: Precision, common: float, share: float) -> Precision:
    """The rows a condition selects, and a share of those that it does not.

    Args:
        given: The rows it selects.
        common: The share of all rows that it selects.
        share: The share of the others that come through.
    """
    others = (1 - common) / common if common else math.inf
    return Precision(given.missing, given.wrong + share * others)


def copies_of(edge: EdgeEstimate, places: Sequence[int]) -> float:
    """Estimate how many rows there are for each value of some columns that may occur."""
    return edge.rows / max(edge.of(places).distinct, 1.0)


def find_common(left: EdgeEstimate, right: EdgeEstimate, places: Sequence[int]) -> float:
    """Estimate the share of the left values that are on the right too."""
    distinct = max(left.of(places).distinct, right.of(places).distinct, 1.0)
    return min(1.0, right.count_distinct(places) / distinct)
