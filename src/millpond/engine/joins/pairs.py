"""The Results Structure of joins: which elements join, in zones of the oldest timestamp.

PSoup (VLDB 2002, section 4.3) keeps with a result tuple the ids and timestamps of its base tuples
and orders results by the oldest timestamp, because a window's moving edge cuts by that. Here a
file holds the arrival numbers of the constituents, 4 bytes each. By these the elements and their
timestamps are found wherever merging has put them. The tuples are laid in 64 *zones* of the oldest
timestamp, so that an invocation reads from the first zone its windows reach. Inside a zone there is
no order: laying zones costs a third of sorting, and an invocation looks at each tuple's windows
anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import int64, types, uint64

from millpond.engine.joins.keys import Numbers
from millpond.model.compiled import I64, READ_I64, compiled

#: Few enough that writing into all of them at once stays within the caches.
ZONES = 64
_BASES, _STARTS, _EDGES = b"millpond.bases", b"millpond.starts", b"millpond.edges"
_U8 = types.Array(types.uint8, 1, "C")


def to_table(arrivals: Sequence[Numbers], oldest: Numbers) -> pa.Table:
    """Lay joined tuples out as they are stored.

    Args:
        arrivals: For each stream the arrival number of every tuple's constituent.
        oldest: The least timestamp of every tuple's constituents.
    """
    count = len(oldest)
    low = int(oldest.min()) if count else 0
    high = int(oldest.max()) if count else 0
    shift = zone_shift(low, high)
    zone_of = np.empty(count, np.uint8)
    starts = np.zeros(ZONES + 1, np.int64)
    _zones(oldest, low, shift, zone_of, starts)
    columns, bases = [], []
    for own in arrivals:
        base = int(own.min()) if count else 0
        narrow = count == 0 or int(own.max()) - base < 2**32
        bases.append(base if narrow else 0)
        laid = np.empty(count, np.int64)
        _lay(own, zone_of, starts[:-1].copy(), bases[-1], laid)
        columns.append(pa.array(laid.astype(np.uint32) if narrow else laid))
    return lay_table(columns, bases, starts, low, shift)


def zone_shift(low: int, high: int) -> int:
    """Return the exponent of a zone's width: 2**exponent is the least width that covers the span.

    The span goes from `low` to `high`.
    """
    return max(0, (high - low).bit_length() - ZONES.bit_length() + 1)


def lay_table(
    columns: Sequence[pa.Array], bases: Sequence[int], starts: Numbers, low: int, shift: int
) -> pa.Table:
    """Make the stored table of columns whose tuples lie in the order of their zones already.

    Args:
        columns: For each stream the arrival numbers, less the base.
        bases: For each stream the base.
        starts: Where each zone begins; the last entry is the number of tuples.
        low: Where the first zone begins.
        shift: See `zone_shift`.
    """
    edges = [min(low + (zone << shift), 2**63 - 1) for zone in range(ZONES + 1)]
    table = pa.table({f"a{i}": column for i, column in enumerate(columns)})
    return table.replace_schema_metadata(
        {
            _BASES: np.array(bases, np.int64).tobytes(),
            _STARTS: starts.tobytes(),
            _EDGES: np.array(edges, np.int64).tobytes(),
        }
    )


@dataclass(frozen=True, eq=False)
class PairsReader:
    """A file of joined tuples.

    Attributes:
        columns: For each stream the arrival numbers, less the base.
        bases: For each stream the number to add to its column.
        starts: Where each zone begins; the last entry is the number of tuples.
        edges: Zone z has the oldest timestamps in [edges[z], edges[z + 1]).
    """

    columns: tuple[npt.NDArray[Any], ...]
    bases: tuple[int, ...]
    starts: Numbers
    edges: Numbers

    @staticmethod
    def of(table: pa.Table) -> PairsReader:
        """Read a stored table in place."""
        metadata = table.schema.metadata
        columns = tuple(c.combine_chunks() for c in table.columns)
        return PairsReader(
            tuple(
                (c.chunk(0) if isinstance(c, pa.ChunkedArray) else c).to_numpy() for c in columns
            ),
            tuple(np.frombuffer(metadata[_BASES], np.int64).tolist()),
            np.frombuffer(metadata[_STARTS], np.int64),
            np.frombuffer(metadata[_EDGES], np.int64),
        )

    def first(self, since: int) -> int:
        """Return the first tuple that may have no constituent before the instant `since`."""
        zone = int(np.searchsorted(self.edges, since, side="right")) - 1
        return int(self.starts[min(max(zone, 0), ZONES)])

    def count(self, since: int) -> int:
        """Count the tuples an invocation looks at whose windows begin at `since`."""
        return int(self.starts[-1]) - self.first(since)

    def after(self, since: int) -> list[Numbers]:
        """Return these tuples' arrival numbers, for each stream."""
        first = self.first(since)
        return [
            own[first:].astype(np.int64) + base
            for own, base in zip(self.columns, self.bases, strict=True)
        ]


@compiled(types.void(READ_I64, int64, int64, _U8, I64))
def _zones(
    oldest: Any, low: Any, shift: Any, zone_of: Any, starts: Any
) -> None:  # pragma: no cover - compiled
    for i in range(len(oldest)):
        # Unsigned, so that a span of more than 2**63 is right too.
        zone = int64((uint64(oldest[i]) - uint64(low)) >> uint64(shift))
        zone_of[i] = zone
        starts[zone + 1] += 1
    for zone in range(len(starts) - 1):
        starts[zone + 1] += starts[zone]


@compiled(types.void(READ_I64, types.Array(types.uint8, 1, "C"), I64, int64, I64))
def _lay(
    numbers: Any, zone_of: Any, cursor: Any, base: Any, out: Any
) -> None:  # pragma: no cover - compiled
    for i in range(len(numbers)):
        at = cursor[zone_of[i]]
        cursor[zone_of[i]] = at + 1
        out[at] = numbers[i] - base
