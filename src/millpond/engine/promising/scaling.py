"""Aggregates of a part of the rows, as estimates of those of all rows (section 4.3).

AVG and MEDIAN are those of the part: a WEIGHTED part is a faithful sample. COUNT and SUM are those
of the part, and what the rest is expected to add: as many matches as among the elements that were
looked at, with the mean that they have. Where the sum of the rest's values is known, because the
column that is summed is the one that ranks, that sum is used and not the mean: the paper wants the
greatest products of value and frequency first, so the mean of what was looked at is too large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def scale(
    table: pa.Table,
    aggregates: Sequence[str],
    seen: int,
    total: int,
    rest: Mapping[int, float] | None = None,
    matched: int = 0,
) -> pa.Table:
    """Estimate the whole aggregate from that of a part.

    Args:
        table: The one row of the part's aggregates.
        aggregates: The function of each column.
        seen: How many elements were looked at.
        total: How many there are.
        rest: By column that is a SUM, the sum of its values over the elements not looked at.
        matched: How many of the elements that were looked at match.
    """
    if not seen or seen >= total:
        return table
    for number, name in enumerate(aggregates):
        if name in ("count", "sum"):
            column = table.column(number)
            if rest is not None and number in rest:
                value = _add(column[0].as_py(), rest[number] * matched / seen)
            else:
                value = _scale(column[0].as_py(), total / seen)
            made = pa.array([value])
            if not made.type.equals(column.type):
                made = pc.cast(pa.array([value]), column.type, safe=False)
            table = table.set_column(number, table.column_names[number], made)
    return table


def _scale(value: Any, factor: float) -> Any:
    if value is None:
        return None
    if isinstance(value, int):
        return round(value * factor)
    return value * Decimal(factor) if isinstance(value, Decimal) else value * factor


def _add(value: Any, more: float) -> Any:
    if value is None:
        return None
    if isinstance(value, int):
        return value + round(more)
    return value + Decimal(more) if isinstance(value, Decimal) else value + more
