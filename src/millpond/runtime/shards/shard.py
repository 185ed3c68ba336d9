"""A shard of a job: which elements are its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engine.joins.keys import Axis, code_column, mix_numbers

#: The upper half of a hash says which shard an element is of.
_HALF = np.uint64(32)


@dataclass(frozen=True)
class Shard:
    """The elements of a job whose column has a hash of the shard's own.

    Attributes:
        columns: By stream, the column.
        number: Which shard it is.
        of: How many there are.
    """

    columns: Mapping[str, str]
    number: int
    of: int

    def select(self, stream: str, elements: pa.Table) -> pa.Table:
        """Select the elements of a stream that are of this shard, in their order."""
        return elements.filter(
            pa.array(self._number(elements[self.columns[stream]]) == self.number)
        )

    def _number(self, column: pa.ChunkedArray) -> np.ndarray:
        """Find which shard each value is of; equal values are of one, and so are NULLs."""
        axis = Axis.TEXT if pa.types.is_string(column.type) else Axis.INTEGER
        coded = code_column(column, axis)
        hashes = mix_numbers(coded.numbers)
        if coded.nulls is not None:
            hashes[coded.nulls] = 0
        numbers: np.ndarray = ((hashes >> _HALF) * np.uint64(self.of)) >> _HALF
        return numbers
