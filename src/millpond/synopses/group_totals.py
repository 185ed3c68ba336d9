"""Totals by group: of each group of a bag of rows, how many rows it has, and of some columns the
number of values, their sum, the least and the greatest.

They are merged in any order and are exact: DuckDB adds whole numbers up in 128 bits. Doubles are
not added up, because their sum would depend on the order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: What is measured of a column: its values that are not NULL, their sum, the least, the greatest.
MEASURES = "cslh"
#: What the text of a `Grouped` begins with.
_PREFIX = "groups "


class Grouped(NamedTuple):
    """What totals by group are of.

    Attributes:
        keys: The columns whose values make a group.
        columns: Each measured column, and what is measured of it, letters of `MEASURES`.
    """

    keys: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]

    def write(self) -> str:
        """Write it as a text, which `read` reads."""
        return _PREFIX + json.dumps([self.keys, self.columns])

    @staticmethod
    def read(text: str) -> Grouped | None:
        """Read what `write` wrote; None of any other text."""
        if not text.startswith(_PREFIX):
            return None
        keys, columns = json.loads(text.removeprefix(_PREFIX))
        return Grouped(tuple(keys), tuple((name, measures) for name, measures in columns))

    def write_totals_sql(self) -> str:
        """Write the SELECT of the totals of rows, whose columns are k0, … and v0, …."""
        return self._write("count(*)", "count(v{0})", "sum(v{0})", "min(v{0})", "max(v{0})")

    def write_merge_sql(self) -> str:
        """Write the SELECT that merges totals."""
        count, values = "CAST(sum(n) AS BIGINT)", "CAST(sum(c{0}) AS BIGINT)"
        return self._write(count, values, "sum(s{0})", "min(l{0})", "max(h{0})")

    def _write(self, rows: str, *measures: str) -> str:
        items = [f"k{i}" for i in range(len(self.keys))] + [f"{rows} AS n"]
        for i, (_, wanted) in enumerate(self.columns):
            for name, measure in zip(MEASURES, measures, strict=True):
                if name in wanted:
                    items.append(f"{measure.format(i)} AS {name}{i}")
        by = ", ".join(f"k{i}" for i in range(len(self.keys)))
        return f"SELECT {', '.join(items)} FROM rows_under_test GROUP BY {by}"


@dataclass(frozen=True, eq=False)
class GroupTotals:
    """The totals of each group.

    Attributes:
        table: A row a group: the keys k0, …; n, its rows; and of the i-th column what is measured
            of it: ci, its values that are not NULL; si, their sum; li and hi, the least and
            greatest.
    """

    table: pa.Table

    @property
    def nbytes(self) -> int:
        """Bytes kept."""
        return int(self.table.nbytes)

    def pack(self) -> npt.NDArray[np.int64]:
        """Pack the totals for a file; `unpack` is the inverse."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        written = sink.getvalue().to_pybytes()
        return np.frombuffer(written + bytes(-len(written) % 8), np.int64)

    @classmethod
    def unpack(cls, packed: npt.NDArray[np.int64]) -> GroupTotals:
        """Read what `pack` wrote."""
        return cls(pa.ipc.open_stream(pa.py_buffer(packed)).read_all())


def join_parts(parts: Iterable[GroupTotals]) -> pa.Table:
    """Lay the totals of parts of a bag one behind the other, not merged yet."""
    return pa.concat_tables(part.table for part in parts)
