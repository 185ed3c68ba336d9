"""A Data SteM in use: one stream's elements while a join probes them.

Its elements lie in parts (the segments, or the slice of a window), each with the runs that were
needed so far; a place is an element's number through all parts. Runs that the store has are
handed in; others are built when first probed, which is what makes SteMs lazy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from millpond.engine.arrangement import Run, build
from millpond.engine.join_keys import Axis, Coded, Mask, Numbers, coded, combined
from millpond.engine.join_plan import TS, ArrangementKey, Value
from millpond.engine.scalar import ScalarEvaluator


class Part:
    """Elements that lie together, in the order of time.

    Args:
        table: Their columns; the timestamp under `__ts`.
        offset: The place of the first.
        visible: Those that take part, or None for all.
        stored: Gives a run the store has for a key, or None.
    """

    def __init__(
        self,
        table: pa.Table,
        offset: int = 0,
        visible: Mask | None = None,
        stored: Callable[[ArrangementKey], Run | None] = lambda key: None,
    ) -> None:
        self.table = table
        self.offset = offset
        self.visible = visible
        self._stored = stored
        self._numbers: dict[Value, Coded] = {}
        self._runs: dict[ArrangementKey, Run] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def numbers(self, value: Value) -> Coded:
        """The value's number for every element.

        Raises:
            MillpondError: POND-404 when DuckDB cannot evaluate it.
        """
        found = self._numbers.get(value)
        if found is None:
            if value.column is not None:
                column = self.table[value.column]
            else:
                column = ScalarEvaluator.shared().values(self.table, value.sql)
            found = self._numbers[value] = coded(column, value.on)
        return found

    def run(self, key: ArrangementKey) -> Run:
        """The elements that take part, sorted by the key."""
        found = self._runs.get(key)
        if found is None:
            found = self._stored(key) if self.visible is None else None
            if found is None:
                found = self.arrange(key)
            self._runs[key] = found
        return found

    def arrange(self, key: ArrangementKey, shard: tuple[int, int] = (0, 1)) -> Run:
        """Builds the run of a shard."""
        keys, absent = None, None
        if key.values:
            keys, absent = combined([self.numbers(v) for v in key.values])
        order = self.numbers(key.order)
        for mask in (order.nulls, None if self.visible is None else ~self.visible):
            if mask is not None:
                absent = mask if absent is None else absent | mask
        return build(keys, np.ascontiguousarray(order.numbers), absent, shard)


class DataSteM:
    """The parts of one stream of a join; their offsets ascend without gaps."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        self._starts = np.array([p.offset for p in parts], np.int64)

    @property
    def count(self) -> int:
        return sum(len(part) for part in self.parts)

    def gather(self, value: Value, places: Numbers) -> Coded:
        """The value's numbers of the elements at some places."""
        if len(self.parts) == 1:
            own = self.parts[0].numbers(value)
            at = places - self.parts[0].offset
            return Coded(own.numbers[at], None if own.nulls is None else own.nulls[at])
        numbers = np.zeros(len(places), np.int64)
        nulls = np.zeros(len(places), np.bool_)
        part_of = np.searchsorted(self._starts, places, side="right") - 1
        for number in np.unique(part_of):
            part = self.parts[int(number)]
            mine = np.flatnonzero(part_of == number)
            own = part.numbers(value)
            at = places[mine] - part.offset
            numbers[mine] = own.numbers[at]
            if own.nulls is not None:
                nulls[mine] = own.nulls[at]
        return Coded(numbers, nulls if nulls.any() else None)


def with_time(table: pa.Table, column: str | None) -> pa.Table:
    """A slice whose timestamps are in a column of another name (or in none that is needed)."""
    if TS in table.column_names:
        return table
    if column is None or column not in table.column_names:
        stamps = pa.array(np.zeros(table.num_rows, np.int64))
    else:
        stamps = table[column].cast(pa.int64())
    return table.append_column(TS, stamps)


__all__ = ["Axis", "DataSteM", "Part", "with_time"]
