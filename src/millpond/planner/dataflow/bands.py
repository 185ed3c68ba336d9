"""Bands: joins by a value that lies within some distance of another, as equalities of buckets.

    L ⋈ R on r + low ≤ l ≤ r + high    =    L ⋈ (R₀ + R₁) on bucket(l) = b and the band

Values are put into buckets as wide as the band. What lies in the band of `r` is in the bucket of
`r + low` or in the next one, so each right row is there twice, once for each, and each left row
once: no pair is found twice. So a row meets the rows near its value and not all that are held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from millpond.planner.dataflow.column_types import find_expression_types
from millpond.planner.dataflow.frame import Frame
from millpond.planner.joins import MIRRORED, list_comparisons, split_shift

#: Says whether the left frame alone has the columns of one expression, the right one of the other.
Splits = Callable[[exp.Expr, exp.Expr], bool]

#: Constants beyond it are not looked at: buckets have to be numbers of 64 bits.
_MOST = 1 << 62
_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


@dataclass(frozen=True)
class Band:
    """`right + low <= left <= right + high`.

    Attributes:
        left, right: SQL over the columns of each side.
        low, high: Whole numbers, of microseconds if the values are timestamps.
        of_time: Whether they are.
    """

    left: str
    right: str
    low: int
    high: int
    of_time: bool

    @property
    def width(self) -> int:
        return max(2, self.high - self.low + 1)

    def left_bucket(self) -> str:
        """Write in which bucket a left row is."""
        return self._bucket(self.left, 0, 0)

    def right_buckets(self) -> tuple[str, str]:
        """Write in which two buckets a right row's partners are."""
        return self._bucket(self.right, self.low, 0), self._bucket(self.right, self.low, 1)

    def _bucket(self, value: str, shift: int, further: int) -> str:
        """Write a number that never falls as the value grows; of so many values each is one."""
        number = f"epoch_us({value})" if self.of_time else f"({value})"
        found = f"((CAST({number} AS HUGEINT) + ({shift})) // {self.width} + {further})"
        if not self.of_time:
            return f"CAST({found} AS BIGINT)"
        # Infinite timestamps are near each other, and near nothing else.
        ends = (
            "NULL"
            if further
            else f"CASE WHEN {value} > TIMESTAMP '2000-01-01' THEN {_END} ELSE -{_END} END"
        )
        return f"CASE WHEN isfinite({value}) THEN CAST({found} AS BIGINT) ELSE {ends} END"


_END = (1 << 63) - 1


def find_band(left: Frame, right: Frame, conjuncts: list[exp.Expr], splits: Splits) -> Band | None:
    """Find a band among the conjuncts of a condition over two frames.

    Args:
        left, right: The frames.
        conjuncts: The conjuncts.
        splits: See there.
    """
    for of_time in (False, True):
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for conjunct in conjuncts:
            for one, op, other, apart in _list_distances(conjunct, of_time, splits):
                key = left.sql(one), right.sql(other)
                low, high = found.get(key, (-_MOST, _MOST))
                found[key] = (max(low, apart), high) if op[0] == ">" else (low, min(high, apart))
        for (ours, theirs), (low, high) in found.items():
            if -_MOST < low <= high < _MOST:
                types = (
                    *find_expression_types([ours], left.node.schema),
                    *find_expression_types([theirs], right.node.schema),
                )
                if all(t == pa.timestamp("us") if of_time else t in _WHOLE for t in types):
                    return Band(ours, theirs, low, high, of_time)
    return None


def _list_distances(
    conjunct: exp.Expr, of_time: bool, splits: Splits
) -> Iterator[tuple[exp.Expr, str, exp.Expr, int]]:
    """List (l, op, r, k) of what a conjunct says as l - r op k, with op of <, <=, > and >=."""
    for one, op, other in list_comparisons(conjunct):
        if op == "=":
            continue
        for first, way, second in ((one, op, other), (other, MIRRORED[op], one)):
            if splits(first, second):
                left, plus = split_shift(first.unnest(), of_time=of_time)
                right, minus = split_shift(second.unnest(), of_time=of_time)
                yield left, way, right, minus - plus
