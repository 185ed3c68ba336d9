"""All rows of a group in their order, for the list or the text of their values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from millpond.errors import MillpondError
from millpond.model.compiled import I64, READ_I64, READ_U8, U8, compiled
from millpond.model.kept_property import kept_property
from millpond.model.patterns import Pattern
from millpond.operators.aggregation.measures import Argument, Batch, Measure, MeasureState
from millpond.operators.aggregation.row_measures import RowOrdering
from millpond.operators.protocol.delta import Bools, Ints
from millpond.synopses.key_lists import KeyHistory, KeyLists
from millpond.synopses.text_numbers import TextNumbers, read_texts
from millpond.synopses.valued_orders import ValuedKeys, read_values

#: More values, or bytes of texts, are not laid out in one step.
MOST_VALUES, MOST_BYTES = 1 << 26, 1 << 30


@compiled(types.int64(READ_I64, READ_I64, READ_I64, types.int64, I64))
def _measure(offsets, entries, starts, between, ends):  # type: ignore[no-untyped-def]
    """Find where each joined text ends."""
    used = 0
    for i in range(len(offsets) - 1):
        for n in range(offsets[i], offsets[i + 1]):
            used += starts[entries[n] + 1] - starts[entries[n]]
        used += between * max(0, offsets[i + 1] - offsets[i] - 1)
        ends[i + 1] = used
    return used


@compiled(types.void(READ_I64, READ_I64, READ_I64, READ_U8, READ_U8, U8))
def _join(offsets, entries, starts, data, between, out):  # type: ignore[no-untyped-def]
    """Write texts one behind the other, with something between them."""
    used = 0
    for i in range(len(offsets) - 1):
        for n in range(offsets[i], offsets[i + 1]):
            if n > offsets[i]:
                for k in range(len(between)):
                    out[used] = between[k]
                    used += 1
            for k in range(starts[entries[n]], starts[entries[n] + 1]):
                out[used] = data[k]
                used += 1


@compiled(types.void(READ_I64, READ_U8, types.Array(types.boolean, 1, "C")))
def _compare_texts(starts, data, differs):  # type: ignore[no-untyped-def]
    """Set for each text but the last whether the next one differs; what is set stays."""
    for i in range(len(differs)):
        if differs[i]:
            continue
        length = starts[i + 1] - starts[i]
        differs[i] = length != starts[i + 2] - starts[i + 1]
        k = 0
        while k < length and not differs[i]:
            differs[i] = data[starts[i] + k] != data[starts[i + 1] + k]
            k += 1


@dataclass(frozen=True)
class ListedRows(Measure):
    """All rows of each group in their order: a trace of `ListedHistory`.

    Attributes:
        argument: The rows that take part.
        ordering: What orders the rows.
        value: The column of the value.
        of: The column's type.
    """

    argument: Argument
    ordering: RowOrdering
    value: int | str
    of: pa.DataType

    def start(self, leaving: Pattern) -> MeasureState:
        return ListedRowsState(self)


@dataclass(frozen=True, eq=False)
class ListedHistory:
    """The rows of a batch's groups.

    Attributes:
        history: The rows' keys, and at which places each is there.
        texts: The texts of the values by which rows were written: equal for equal values.
        of: The values' type.
    """

    history: KeyHistory
    texts: pa.Array
    of: pa.DataType

    @kept_property
    def values(self) -> pa.Array:
        """The value of each key."""
        return read_values(self.texts, self.of)

    @kept_property
    def numbers(self) -> Ints:
        """A number for each key, equal for equal values."""
        return TextNumbers().number(self.texts)


class ListedRowsState(MeasureState):
    """Keeps `ListedRows`."""

    def __init__(self, measure: ListedRows) -> None:
        self._measure = measure
        self._order = ValuedKeys(measure.ordering.order, measure.of)
        self._held = KeyLists()
        self._order.on_rekey = self._held.rekey

    def advance(self, batch: Batch) -> ListedHistory:
        own = self._measure
        placed = batch.placed_weights(own.argument)
        keys = self._order.encode(own.ordering.write(batch, own.value), placed)
        self._held.reserve(batch.groups)
        history = self._held.walk(batch.cells, placed.take(batch.cells.order), keys)
        return ListedHistory(history, self._order.cut_values(history.keys, None), own.of)

    def renumber(self, moved: Ints, groups: int) -> None:
        self._held.renumber(moved, groups)

    def size(self) -> int:
        return self._held.size() + self._order.size()


@dataclass(frozen=True, eq=False)
class ListTrace:
    """A trace of the lists of all values; NULL where there are none."""

    rows: ListedHistory
    type: pa.DataType

    def differs(self) -> Bools:
        history = self.rows.history
        differs = np.diff(history.counts) != 0
        comes = np.zeros(len(history.counts) + 1, np.bool_)
        comes[history.enters] = True
        comes[history.first] = False
        others = np.flatnonzero(~differs & comes[1 : len(history.counts)])
        differs[others] = history.compare(others, self.rows.numbers)
        return differs

    def values(self, places: Ints) -> pa.Array:
        history = self.rows.history
        counts = history.counts.take(places)
        if int(counts.sum()) > MOST_VALUES:
            raise _refuse("values", MOST_VALUES)
        offsets, entries = history.lay_out(places)
        values = self.rows.values.take(pa.array(entries))
        mask = pa.array(counts == 0) if not counts.all() else None
        lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, mask=mask)
        return lists if lists.type == self.type else lists.cast(self.type)


@dataclass(frozen=True, eq=False)
class JoinedTrace:
    """A trace of the values' texts, with something between them; NULL where there are none."""

    rows: ListedHistory
    separator: str

    def differs(self) -> Bools:
        """Compare the texts themselves: `a,b` may be one value or two."""
        starts, data = read_texts(self._texts)
        present = self.rows.history.counts > 0
        differs: Bools = np.diff(present)
        _compare_texts(starts, data, differs)
        return differs

    def values(self, places: Ints) -> pa.Array:
        return self._texts.take(pa.array(places)).cast(pa.string())

    @kept_property
    def _texts(self) -> pa.Array:
        """The text at each place."""
        history = self.rows.history
        offsets, entries = history.lay_out(np.arange(len(history.counts)))
        starts, data = read_texts(self.rows.texts)
        between = np.frombuffer(self.separator.encode(), np.uint8)
        ends = np.zeros(len(offsets), np.int64)
        total = _measure(offsets, entries, starts, len(between), ends)
        if total > MOST_BYTES:
            raise _refuse("bytes", MOST_BYTES)
        out: npt.NDArray[np.uint8] = np.empty(total, np.uint8)
        _join(offsets, entries, starts, data, between, out)
        present = pa.py_buffer(np.packbits(history.counts > 0, bitorder="little"))
        buffers = [present, pa.py_buffer(ends), pa.py_buffer(out)]
        return pa.Array.from_buffers(pa.large_string(), len(history.counts), buffers)


def _refuse(what: str, most: int) -> MillpondError:
    return MillpondError(
        "POND-405",
        "the lists of the query's changes are too long",
        detail=f"In one step groups have lists of more than {most:,} {what}, as often as they"
        " change.",
        hint="Group by more columns, or shorten the windows.",
    )
