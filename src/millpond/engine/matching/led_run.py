"""A batch of elements against an index of led queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millpond.engine.matching.lead_kernels import copy_lists, find_led, group_pairs
from millpond.engine.matching.led_queries import LedQueries
from millpond.engine.matching.predicate_columns import Numbers
from millpond.engine.matching.results_structure import list_bytes
from millpond.engine.values.region_codes import CodableColumn

#: Pairs of query and element held at a time, eight bytes each, unless one query has more.
MOST_PAIRS = 8_000_000

#: Queries by their places, ascending; how many elements each matches; the elements of all of them,
#: one query's after the other's, ascending.
Found = tuple[Numbers, Numbers, npt.NDArray[np.uint32]]


class LedRun:
    """One batch of elements against one index.

    Attributes:
        came: For each attribute that leads, how many elements were led to a query.
    """

    def __init__(self, led: LedQueries, columns: Sequence[CodableColumn], rows: int) -> None:
        self._led = led
        self._codes = np.empty((len(columns), rows), np.int32)
        for i, column in enumerate(columns):
            column.code(led.coders[i], int(led.of_null[i]), self._codes[i])
        self._arguments = led.arguments()
        self._came = np.zeros(len(led.arrays["lead_axis"]), np.int64)
        self.came: dict[str, int] = {}

    def find(self, gone: Numbers) -> Iterator[Found]:
        """Find the queries that elements match, and the elements; each query comes once.

        Args:
            gone: The places of queries that are left out.
        """
        rows, queries = self._codes.shape[1], len(self._led)
        entries = 1 + len(self._led.arrays["entries"])
        room = entries + max(MOST_PAIRS, rows)
        is_gone = np.zeros(queries if len(gone) else 0, np.uint8)
        is_gone[gone] = 1
        pairs, done = self._pairs(0, 0, queries, min(room, entries + 8 * rows))
        if done < rows and room > entries + 8 * rows:
            pairs, done = self._pairs(0, 0, queries, room)
        axes = self._led.columns.axes
        for axis, came in zip(
            self._led.arrays["lead_axis"].tolist(), self._came.tolist(), strict=True
        ):
            name = axes[axis].attribute
            self.came[name] = max(self.came.get(name, 0), came)
        if done == rows:
            yield _group(pairs, queries, is_gone)
            return
        # More pairs than are held at a time: first only counted, then found some queries at a time.
        counts = np.zeros(queries, np.int64)
        done = 0
        while done < rows:
            pairs, done = self._pairs(done, 0, queries, room)
            counts += np.bincount((pairs >> np.uint64(32)).astype(np.int64), minlength=queries)
        counts[gone] = 0
        low = 0
        while low < queries:
            upto = np.cumsum(counts[low:])
            high = low + max(1, int(np.searchsorted(upto, room - entries, "right")))
            yield _group(self._pairs(0, low, high, room)[0], queries, is_gone)
            low = high

    def _pairs(
        self, first: int, low: int, high: int, room: int
    ) -> tuple[npt.NDArray[np.uint64], int]:
        """Find pairs of element `first` and later ones with queries [low, high), up to `room`.

        Returns:
            The pairs, and the first element not done.
        """
        pairs = np.empty(room, np.uint64)
        self._came[:] = 0
        found, done = find_led(self._codes, *self._arguments, first, low, high, pairs, self._came)
        return pairs[:found], done


def _group(pairs: npt.NDArray[np.uint64], queries: int, gone: npt.NDArray[np.uint8]) -> Found:
    members, counts = np.empty(len(pairs), np.int64), np.empty(len(pairs), np.int64)
    rows = np.empty(len(pairs), np.uint32)
    known, upto = group_pairs(pairs, np.empty_like(pairs), queries, gone, members, counts, rows)
    return members[:known], counts[:known], rows[:upto]


def list_ends(counts: npt.NDArray[Any]) -> Numbers:
    """Return where the lists of so many rows end, in bytes, padding included."""
    return np.cumsum(list_bytes(counts))


def pad_lists(
    rows: npt.NDArray[np.uint32], counts: Numbers, ends: Numbers, chosen: npt.NDArray[np.bool_]
) -> npt.NDArray[np.uint32]:
    """Lay out lists of rows as the table keeps them: an odd number of rows is followed by a zero.

    Args:
        rows: The rows of all queries, one query's after the other's.
        counts: How many each query has.
        ends: Where each query's end.
        chosen: The queries whose lists are laid out.
    """
    to = list_ends(counts[chosen]) // 4
    lists = np.zeros(int(to[-1]) if len(to) else 0, np.uint32)
    copy_lists(rows, counts, ends, chosen, to, lists)
    return lists
