"""What a call of `advance` takes in, and how it is cut into slices of instants.

Input waits where it is: a slice is read when it is its turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.operators.source import TIMESTAMP


class StepInputs(Protocol):
    """The elements of streams and the changes of relations between two instants."""

    def find_end(self, after: int, upto: int, size: int) -> int:
        """Find the last instant of the slice that begins after an instant.

        Args:
            after: The last instant of the slice before.
            upto: The last instant of all.
            size: About how many bytes the slice has at most, or it has one instant with input.
        """
        ...

    def measure(self, after: int, upto: int) -> int:
        """Estimate the bytes of the input in (after, upto]; 0 if there are few."""
        ...

    def read(self, name: str, after: int, upto: int) -> pa.Table | None:
        """Read what a stream or relation has in (after, upto]; None: nothing."""
        ...


#: Instants in order, and the bytes of the row of each.
Instants = tuple[npt.NDArray[np.int64], float]

#: Fewer rows than these are never cut, nor measured.
FEW = 4_096


class GivenInputs:
    """Tables in memory, by the names of their streams and relations."""

    def __init__(self, tables: Mapping[str, pa.Table], few: int = FEW) -> None:
        """Take tables in; fewer than `few` rows are not cut."""
        self._tables, self._few = dict(tables), few
        #: By name, the instants of the rows, and the bytes of each; only if there are many rows.
        self._instants: dict[str, Instants] = {}
        self._first = 0

    def find_end(self, after: int, upto: int, size: int) -> int:
        if sum(table.num_rows for table in self._tables.values()) < self._few:
            return upto
        return find_end(self.list_instants(after, upto), upto, size)

    def list_instants(self, after: int, upto: int) -> list[Instants]:
        """The instants of the rows in (after, upto] by table, and the bytes of each row."""
        if not self._instants:
            self._first = after
            self._instants = {name: self._sort(name) for name in self._tables}
        found = []
        for instants, width in self._instants.values():
            low, high = np.searchsorted(instants, (after, upto), side="right")
            if low < high:
                found.append((instants[low:high], width))
        return found

    def _sort(self, name: str) -> Instants:
        """Put a table in the order of its instants."""
        table = self._tables[name]
        column = TIMESTAMP if TIMESTAMP in table.column_names else "__at"
        found = table.column(column).cast(pa.int64()).to_numpy()
        if len(found) > 1 and not bool((found[1:] >= found[:-1]).all()):
            order = np.argsort(found, kind="stable")
            self._tables[name] = table.take(pa.array(order))
            found = found[order]
        return found, table.nbytes / max(len(found), 1)

    def measure(self, after: int, upto: int) -> int:
        some = self.list_instants(after, upto) if self._instants else []
        return int(sum(len(instants) * width for instants, width in some))

    def read(self, name: str, after: int, upto: int) -> pa.Table | None:
        if name not in self._instants:
            return self._tables.get(name)
        instants, _ = self._instants[name]
        low = 0 if after == self._first else int(np.searchsorted(instants, after, side="right"))
        high = int(np.searchsorted(instants, upto, side="right"))
        return self._tables[name].slice(low, high - low)


def find_end(some: Sequence[Instants], upto: int, size: int) -> int:
    """Find the last instant up to which rows have at most `size` bytes, and that of the first row.

    Args:
        some: Ascending instants of rows, with the bytes of each row.
        upto: The instant if all rows are fewer.
        size: The bytes.
    """
    if sum(len(instants) * width for instants, width in some) <= size:
        return upto
    least = low = min(int(instants[0]) for instants, _ in some)
    high = max(int(instants[-1]) for instants, _ in some)
    while low < high:  # the last instant at which not too much has come
        middle = (low + high + 1) // 2
        found = sum(
            float(np.searchsorted(instants, middle, side="right")) * width
            for instants, width in some
        )
        low, high = (middle, high) if found <= size else (low, middle - 1)
    return max(low, least)
