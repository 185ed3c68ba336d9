"""The Results Structure: which elements match each query.

PSoup (VLDB 2002, section 3.3) keeps for a query a bit array or a list of tuples, whichever is
smaller; between the two there are a list of gaps (`engine/matching/gap_lists.py`) and bits with
like elements side by side (`engine/matching/clustered_rows.py`). A row of the table is one slot:
its number, how many elements match, the encoding, and the data, padded to whole words so that a
mapped file can be read in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.engine.matching.clustered_rows import NO_ORDER, Order, rows_of_clustered
from millpond.engine.matching.gap_lists import gaps_of_rows, most_bytes, rows_of_gaps
from millpond.model.bit_matrix import (
    bits_of_rows,
    find_ones_at_edges,
    rows_of_bits,
    words_for,
)
from millpond.model.kept_property import kept_property

Rows = npt.NDArray[np.int64]

#: One bit an element, 64 a word; words beyond the last element are zero.
DENSE = 0
#: Ascending row numbers, 32 bits each; an odd number of them is followed by four zero bytes.
LIST = 1
#: Every element; no data.
ALL = 2
#: Ascending row numbers by their gaps, see `millpond.engine.matching.gap_lists`.
GAPS = 3
#: Bits, with like elements side by side, see `millpond.engine.matching.clustered_rows`.
CLUSTERED = 4
#: No slot, but the order of elements in the clustered matches of the pieces that follow.
ORDER = 5

SCHEMA = pa.schema(
    [
        pa.field("slot", pa.uint32(), nullable=False),
        pa.field("count", pa.uint32(), nullable=False),
        pa.field("encoding", pa.uint8(), nullable=False),
        pa.field("data", pa.large_binary(), nullable=False),
    ]
)


#: The name that all other factors have together, where statistics name attributes.
OTHERS = ""


class FilterPassage(NamedTuple):
    """How elements passed the grouped filters of one attribute; estimated from a sample.

    Attributes:
        tuples_in: Elements that came with a query left, summed over blocks of queries.
        tuples_out: Elements that left with a query left.
        ns: Time spent on the attribute.
    """

    tuples_in: int
    tuples_out: int
    ns: int

    def plus(self, other: FilterPassage) -> FilterPassage:
        return FilterPassage(*(a + b for a, b in zip(self, other, strict=True)))


@dataclass
class Matches:
    """The matches of a batch.

    Attributes:
        rows: Elements in the batch.
        batches: Pieces of the table, each of `SCHEMA`; a slot is in one of them, or in none if
            nothing matches. There are none if they were handed over as they were made.
        matched: Pairs of a slot and an element that matches.
        failed: Slots whose predicate DuckDB could not evaluate, and why. They have no matches.
        stats: Per attribute, how elements passed; under `OTHERS`, how pairs passed other factors.
    """

    rows: int
    batches: list[pa.RecordBatch] = field(default_factory=list)
    matched: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    stats: dict[str, FilterPassage] = field(default_factory=dict)

    def to_table(self) -> pa.Table:
        """Join the pieces: slot, count, encoding, data; slots are in no particular order."""
        return pa.Table.from_batches(self.batches, SCHEMA)

    def reader(self) -> MatchReader:
        return MatchReader(self.to_table())


def piece(
    slots: npt.NDArray[Any], counts: npt.NDArray[Any], encoding: int, ends: Any, data: Any
) -> pa.RecordBatch:
    """Make a piece of the table whose slots share an encoding.

    Args:
        ends: Where each slot's data ends in `data`, in bytes; the first begins at 0.
        data: An object with the buffer protocol.
    """
    offsets = np.zeros(len(slots) + 1, np.int64)
    offsets[1:] = ends
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    column = pa.Array.from_buffers(
        pa.large_binary(), len(slots), [None, pa.py_buffer(offsets), buffer]
    )
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.asarray(slots, np.uint32)),
            pa.array(np.asarray(counts, np.uint32)),
            pa.array(np.full(len(slots), encoding, np.uint8)),
            column,
        ],
        schema=SCHEMA,
    )


def order_piece(order: Order) -> pa.RecordBatch:
    """Make the piece that gives the order of elements to the clustered matches behind it."""
    data = order.tobytes() + b"\0" * (-order.nbytes % 8)
    return piece(np.zeros(1, np.int64), np.array([len(order)]), ORDER, [len(data)], data)


def list_bytes(count: Any) -> Any:
    """Return the bytes of a list of so many rows, padding included."""
    return (count + 1) // 2 * 8


def choose_encoding(counts: Any, rows: int) -> Any:
    """Choose the encoding with the fewest bytes for so many of `rows` elements, by count.

    >>> choose_encoding(np.array([1, 40, 10_000, 30_000, 100_000]), 100_000).tolist()
    [1, 1, 3, 0, 2]
    """
    counts = np.asarray(counts)
    lists, gaps, dense = list_bytes(counts), most_bytes(counts, rows), 8 * words_for(rows)
    few = np.where(lists <= gaps, LIST, GAPS)
    chosen = np.where(np.minimum(lists, gaps) < dense, few, DENSE)
    return np.where(counts == rows, ALL, chosen)


def least_bytes(counts: Any, rows: int) -> Any:
    """Bound the bytes of so many of `rows` elements in the encoding chosen by count."""
    few = np.minimum(list_bytes(counts), most_bytes(counts, rows))
    return np.minimum(few, 8 * words_for(rows))


def encode(found: dict[int, npt.NDArray[Any]], rows: int) -> list[pa.RecordBatch]:
    """Make the table's pieces for slots whose matches are given as row numbers.

    Args:
        found: Slot to its ascending row numbers.
        rows: Elements in the batch.
    """
    chosen: dict[int, list[int]] = {DENSE: [], LIST: [], ALL: [], GAPS: []}
    for slot, numbers in found.items():
        if len(numbers):
            chosen[int(choose_encoding(len(numbers), rows))].append(slot)
    pieces = []
    for encoding, slots in chosen.items():
        if not slots:
            continue
        data: list[bytes] = []
        for slot in slots:
            if encoding == DENSE:
                data.append(bits_of_rows(found[slot], rows).tobytes())
            elif encoding == GAPS:
                data.append(gaps_of_rows(found[slot], rows).tobytes())
            elif encoding == LIST:
                text = np.asarray(found[slot], np.uint32).tobytes()
                data.append(text + b"\0" * (-len(text) % 8))
            else:
                data.append(b"")
        counts = np.array([len(found[slot]) for slot in slots])
        ends = np.cumsum([len(d) for d in data])
        pieces.append(piece(np.array(slots), counts, encoding, ends, b"".join(data)))
    return pieces


_NONE: Rows = np.zeros(0, np.int64)
_NO_BYTES = np.zeros(0, np.uint8)


class MatchReader:
    """Reads single slots of a table of matches, in place.

    The table may be mapped from a file; only the pages of slots that are read are touched.
    """

    def __init__(self, table: pa.Table) -> None:
        self._chunks: list[tuple[Any, ...]] = []
        order = NO_ORDER
        for batch in table.to_batches():
            slots, counts = (_view_fixed(batch, column, np.uint32) for column in (0, 1))
            encodings, (offsets, data) = _view_fixed(batch, 2, np.uint8), _view_binary(batch)
            first = 0
            for at in [*np.flatnonzero(encodings == ORDER).tolist(), len(slots)]:
                part = slice(first, at)
                if first < at:
                    numbers = slots[part], counts[part], encodings[part]
                    self._chunks.append((*numbers, offsets[first : at + 1], data, order))
                if at < len(slots):
                    order = data[offsets[at] : offsets[at + 1]].view(np.uint16)[: counts[at]]
                first = at + 1

    @kept_property
    def _index(self) -> tuple[npt.NDArray[np.uint32], Any, Any]:
        """(Slots ascending, their chunks, their rows in the chunk)."""
        slots = np.concatenate([np.zeros(0, np.uint32), *(c[0] for c in self._chunks)])
        sizes = [len(c[0]) for c in self._chunks]
        chunk = np.repeat(np.arange(len(sizes)), sizes)
        place = np.concatenate([_NONE, *(np.arange(size) for size in sizes)])
        order = np.argsort(slots, kind="stable")
        return slots[order], chunk[order], place[order]

    def _find(self, slot: int) -> tuple[tuple[Any, ...], int] | None:
        slots, chunk, place = self._index
        at = int(np.searchsorted(slots, np.uint32(slot)))
        if at == len(slots) or slots[at] != slot:
            return None
        return self._chunks[chunk[at]], int(place[at])

    @property
    def slots(self) -> npt.NDArray[np.uint32]:
        """The slots with a match, ascending."""
        return self._index[0]

    def count(self, slot: int) -> int:
        """Count the elements that match a slot."""
        found = self._find(slot)
        return int(found[0][1][found[1]]) if found else 0

    def open(self, slot: int) -> SlotMatches:
        """Open the matches of one slot."""
        found = self._find(slot)
        if found is None:
            return SlotMatches(LIST, 0, _NO_BYTES)
        (_, counts, encodings, offsets, data, order), i = found
        own = data[offsets[i] : offsets[i + 1]]
        return SlotMatches(int(encodings[i]), int(counts[i]), own, order)

    def rows(self, slot: int, low: int, high: int) -> Rows:
        """Return the matching row numbers in [low, high), ascending."""
        return self.open(slot).rows(low, high)


class SlotMatches:
    """The matches of one slot."""

    def __init__(
        self, encoding: int, count: int, data: npt.NDArray[np.uint8], order: Order = NO_ORDER
    ) -> None:
        self._encoding, self._count, self._order = encoding, count, order
        if encoding == LIST:
            self._data: Any = data[: 4 * count].view(np.uint32)
        elif encoding == DENSE:
            self._data = (data.copy() if data.ctypes.data % 8 else data).view(np.uint64)
        else:
            self._data = data

    def rows(self, low: int, high: int) -> Rows:
        """Return the matching row numbers in [low, high), ascending."""
        low = max(low, 0)
        if low >= high:
            return _NONE
        if self._encoding == DENSE:
            return rows_of_bits(self._data, low, min(high, 64 * len(self._data)))
        if self._encoding == ALL:
            return np.arange(low, max(low, min(high, self._count)))
        if self._encoding == GAPS:
            return rows_of_gaps(self._data, self._count, low, high)
        if self._encoding == CLUSTERED:
            return self.find_at_edges(low, high, high, high)
        ends = np.array([low, min(high, 2**32 - 1)], np.uint32)
        start, end = np.searchsorted(self._data, ends)
        found: Rows = self._data[start:end].astype(np.int64)
        return found

    def find_at_edges(self, low: int, begin: int, end: int, high: int) -> Rows:
        """Return the matching row numbers in [low, begin) and [end, high), ascending.

        All lie in [0, the number of elements].
        """
        if self._encoding == DENSE:
            found: Rows = find_ones_at_edges(self._data, low, begin, end, high)
            return found
        if self._encoding == CLUSTERED:
            return rows_of_clustered(self._data, self._order, self._count, low, begin, end, high)
        return np.concatenate([self.rows(low, begin), self.rows(end, high)])


def _view_fixed(batch: pa.RecordBatch, column: int, dtype: Any) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = batch.column(column).to_numpy(zero_copy_only=True)
    return values.view(dtype)


def _view_binary(batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    column = batch.column(3)
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64, column.offset + len(column) + 1)[column.offset :]
    return ends, np.frombuffer(data if data is not None and data.size else b"", np.uint8)
