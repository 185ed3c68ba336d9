"""The distinct rows an operator has seen, numbered, and one copy of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.operators.protocol.delta import Bools, Ints
from millpond.operators.structures.key_numbers import KeyNumbers
from millpond.operators.structures.row_store import RowStore


@dataclass(frozen=True)
class ExpiringRows:
    """Distinct rows that are there at an instant, as one operator hands them over to another.

    Attributes:
        rows: The rows.
        until: When the last copy of each expires.
        position: The instant.
    """

    rows: pa.RecordBatch
    until: Ints
    position: int


class DistinctRows:
    """Numbers 0, 1, … for distinct rows, in the order of their first appearance."""

    def __init__(self, schema: pa.Schema) -> None:
        self._keys = KeyNumbers(schema.types)
        self._rows = RowStore(schema)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def width(self) -> int:
        """About how many bytes the values of a row take."""
        return self._rows.width

    def number(self, rows: pa.RecordBatch) -> Ints:
        """Number each row; a row not seen before gets a new number and is kept."""
        numbers = self._keys.number(rows.columns)
        known = len(self._rows)
        if len(self._keys) > known:
            fresh = np.flatnonzero(numbers >= known)
            _, places = np.unique(numbers[fresh], return_index=True)
            self._rows.add(rows.take(pa.array(fresh[places])))
        return numbers

    def pick(self, numbers: Ints) -> pa.RecordBatch:
        """Pick the rows of these numbers, in the order of the numbers given."""
        return self._rows.pick(numbers)

    def is_worth_compacting(self, living: int) -> bool:
        """Whether compaction is worth its cost when only `living` rows are still needed."""
        return not living or self._keys.is_worth_compacting(living)

    def compact(self, alive: Bools) -> Ints:
        """Forget the rows where `alive` is false; return each row's new number, -1 if gone."""
        moved = self._keys.compact(alive)
        self._rows.keep(alive)
        return moved
