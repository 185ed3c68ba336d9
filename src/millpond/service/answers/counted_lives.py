"""When elements leave a window of rows, where more elements may come in any order of time.

The operator of such windows takes elements in the order of their timestamps. An element that comes
late has the operator begin again, with what is in the window.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.model.schema import arrow_type
from millpond.model.time import BEGINNING
from millpond.model.windows import Rows
from millpond.operators.protocol.delta import Delta, positional_schema
from millpond.operators.windows.rows_window import RowsWindowing
from millpond.state.segment_file import TIMESTAMP

Ints = npt.NDArray[np.int64]


class CountedLives:
    """The elements in `[ROWS n]` or `[PARTITION BY … ROWS n]`; for use by one thread at a time."""

    def __init__(self, window: Rows, stream: StreamDef) -> None:
        self._window = window
        found = [stream.schema.find(name) for name in window.by]
        types = [arrow_type(field.type) for field in found if field is not None]
        self._schema = positional_schema([pa.int64(), *types])
        self._youngest: int = BEGINNING
        self._operator = self._make_operator()

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory it takes."""
        return self._operator.size() * (24 + 16 * len(self._schema))

    def add(self, elements: pa.Table, numbers: Ints) -> tuple[Ints, Ints]:
        """Take in elements; return the numbers of those that leave, and when they do.

        An element that is in the window at no instant leaves at its own timestamp.

        Args:
            elements: In the order of their timestamps and arrival, in one chunk.
            numbers: Greater than all numbers before, one an element.
        """
        stamps = elements[TIMESTAMP].to_numpy()
        keys = [elements[name].combine_chunks() for name in self._window.by]
        columns = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip([pa.array(numbers), *keys], self._schema, strict=True)
        ]
        new = Delta.of(pa.RecordBatch.from_arrays(columns, schema=self._schema), stamps)
        if stamps[0] < self._youngest:
            held = self._operator.list_elements()
            rows = pa.concat_batches([held.rows, new.rows])
            at = np.concatenate([held.at, new.at])
            # Of one timestamp, the number says who came first.
            order = np.lexsort((rows.column(0).to_numpy(), at))
            new = Delta.of(rows.take(pa.array(order)), at[order])
            self._operator = self._make_operator()
        self._youngest = max(self._youngest, int(stamps[-1]))
        given = self._operator.advance([new], self._youngest, DuckDBScalars())
        found, came = given.rows.column(0).to_numpy(), given.weight > 0
        never = ~np.isin(new.rows.column(0).to_numpy(), found[came])
        left = np.concatenate([found[~came], new.rows.column(0).to_numpy()[never]])
        return left, np.concatenate([given.at[~came], new.at[never]])

    def _make_operator(self) -> RowsWindowing:
        by = tuple(range(1, len(self._schema)))
        return RowsWindowing(self._window.count, by, self._schema)
