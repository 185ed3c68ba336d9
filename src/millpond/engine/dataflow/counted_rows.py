"""The rows of an answer, counted as they come and leave (PSoup-C)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.operators.structures.distinct_rows import DistinctRows
from millpond.synopses.mapped_memory import grow_array

#: What a distinct row takes beside its values: a number, a count, a place.
_ROW_BYTES = 48


class CountedRows:
    """A bag of rows to which changes are added.

    Equal rows are one row with a count. A change costs as much as it has rows; the answer is laid
    out when somebody reads it.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Start without rows.

        Args:
            schema: Of the changes: `__at`, `__sign` and the answer's columns.
        """
        fields = list(schema)[2:]
        self._names = [field.name for field in fields]
        # Columns by place: an answer may have two of one name.
        self._schema = pa.schema([pa.field(f"c{n}", f.type) for n, f in enumerate(fields)])
        self._rows = DistinctRows(self._schema)
        self._counts = np.zeros(0, np.int64)
        #: By row, the place at which it came last, among all that ever came.
        self._places = np.zeros(0, np.int64)
        self._came = 0
        self._living = 0
        self._laid_out: pa.Table | None = None

    def __len__(self) -> int:
        """The number of distinct rows."""
        return self._living

    @property
    def nbytes(self) -> int:
        """About how many bytes the rows take."""
        return len(self._rows) * (_ROW_BYTES + self._rows.width)

    def add(self, changes: pa.Table) -> None:
        """Add changes.

        Raises:
            ValueError: a row leaves that is not there; the bag is of no use any more.
        """
        if not changes.num_rows:
            return
        self._laid_out = None
        changes = changes.combine_chunks()
        columns = [column.chunk(0) for column in changes.columns[2:]]
        numbers = self._rows.number(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        signs = changes.column(1).chunk(0).cast(pa.int64()).to_numpy()
        self._counts = grow_array(self._counts, len(self._rows), 0)
        self._places = grow_array(self._places, len(self._rows), 0)
        coming = np.flatnonzero(signs > 0)
        fresh = coming[self._counts[numbers[coming]] <= 0][::-1]
        self._places[numbers[fresh]] = self._came + fresh  # of several, the first stays
        self._came += len(numbers)
        touched = np.unique(numbers)
        self._living -= int((self._counts[touched] > 0).sum())
        np.add.at(self._counts, numbers, signs)
        if bool((self._counts[touched] < 0).any()):
            raise ValueError("a row leaves an answer that does not have it")
        self._living += int((self._counts[touched] > 0).sum())
        if self._rows.is_worth_compacting(self._living):
            alive = self._counts[: len(self._rows)] > 0
            self._rows.compact(alive)
            self._counts = self._counts[: len(alive)][alive]
            self._places = self._places[: len(alive)][alive]

    def read(self) -> pa.Table:
        """The rows, in the order in which they came."""
        if self._laid_out is None:
            alive = np.flatnonzero(self._counts[: len(self._rows)] > 0)
            alive = alive[np.argsort(self._places[alive], kind="stable")]
            counts = self._counts[alive]
            if bool((counts > 1).any()):
                alive = np.repeat(alive, counts)
            rows = pa.Table.from_batches([self._rows.pick(alive)], schema=self._schema)
            self._laid_out = rows.rename_columns(self._names)
        return self._laid_out
