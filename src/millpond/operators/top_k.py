"""ORDER BY … LIMIT k OFFSET m over a bag that changes: k rows, from the m-th on in order.

Every row has a sort key that DuckDB makes: of the columns that the query orders by, then all
selected columns. So rows with equal sort keys are equal, and the k rows depend on the bag alone.
Sort keys get labels, whole numbers in the same order, and the labels are kept in a counted tree. A
change costs some looks at the tree, however many rows k and m are. The nth row that comes has the
nth sort key, so rows and sort keys have the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.model.patterns import RULES, Edge
from millpond.operators.protocol.delta import Delta, Ints, positional_schema
from millpond.operators.protocol.node import Operator, Scalars, Unary
from millpond.operators.structures.key_numbers import KeyNumbers
from millpond.operators.structures.row_store import RowStore
from millpond.synopses.mapped_memory import choose_like, grow_array
from millpond.synopses.ordered_multiset import OrderedMultisets
from millpond.synopses.ordered_texts import OrderedTexts
from millpond.synopses.text_numbers import to_texts


@dataclass(frozen=True)
class SortColumn:
    """A column that rows are ordered by.

    Attributes:
        place: The column's place.
        descending: Whether the greatest value comes first.
        nulls_first: Whether NULLs come before all values.
    """

    place: int
    descending: bool = False
    nulls_first: bool = False

    @property
    def sql(self) -> str:
        """The column as two arguments of DuckDB's `create_sort_key`."""
        way = "DESC" if self.descending else "ASC"
        return f"c{self.place}, '{way} NULLS {'FIRST' if self.nulls_first else 'LAST'}'"


@dataclass(frozen=True, eq=False)
class TopK(Unary):
    """The first rows of its input in order.

    Attributes:
        input: The rows; columns from `shown` on serve only to order them.
        shown: The number of columns in the output.
        by: The columns that rows are ordered by first; after these come all output columns.
        count: k.
        skip: m.
        text: The ORDER BY and LIMIT as the query wrote them, for EXPLAIN.
    """

    shown: int
    by: tuple[SortColumn, ...]
    count: int
    skip: int = 0
    text: str = ""

    takes_expirations = False
    name = "top"
    state = "rows in order"
    announces = True

    @property
    def schema(self) -> pa.Schema:
        return positional_schema(self.input.schema.types[: self.shown])

    @property
    def edge(self) -> Edge:
        return RULES["limit"]([self.input.edge])

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.shown, tuple(c.sql for c in self.by), self.count, self.skip)

    def operator(self) -> Operator:
        ordered = {c.place for c in self.by}
        rest = [SortColumn(place) for place in range(self.shown) if place not in ordered]
        return TakingTop(self.input.schema, self.shown, (*self.by, *rest), self.count, self.skip)


class TakingTop:
    """Runs `TopK`: keeps all rows in order, by label."""

    def __init__(
        self,
        schema: pa.Schema,
        shown: int,
        by: tuple[SortColumn, ...],
        count: int,
        skip: int,
    ) -> None:
        self._given = positional_schema(schema.types[:shown])
        self._count, self._skip = count, skip
        self._sort_key = f"create_sort_key({', '.join(c.sql for c in by)})"
        self._used = tuple(dict.fromkeys([*range(shown), *(c.place for c in by)]))
        self._keys = KeyNumbers([schema.field(place).type for place in self._used])
        self._rows = RowStore(self._given)
        #: For each row's number its copies; and how many rows have any.
        self._copies = np.zeros(0, np.int64)
        self._alive = 0
        self._sort_keys = OrderedTexts()
        self._ordered = OrderedMultisets()
        self._sort_keys.on_relabel = self._ordered.rekey
        self._ordered.reserve(1)

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        if not len(delta):
            return Delta.empty(self._given)
        numbers = self._keys.number([delta.rows.column(place) for place in self._used])
        self._add_new(delta.rows, numbers, scalars)
        touched = np.unique(numbers)
        before = int(np.count_nonzero(self._copies[touched]))
        np.add.at(self._copies, numbers, delta.weight)
        self._alive += int(np.count_nonzero(self._copies[touched])) - before
        at, labels, by = self._ordered.slide(
            np.ascontiguousarray(delta.at),
            np.ascontiguousarray(delta.weight),
            self._sort_keys.labels[numbers],
            self._skip,
            self._count,
        )
        given = Delta.of(self._rows.pick(self._sort_keys.find(labels)), at, None, by)
        self._forget()
        return given

    def _add_new(self, rows: pa.RecordBatch, numbers: Ints, scalars: Scalars) -> None:
        """Note rows not seen before; rows are numbered in the order of their first appearance."""
        known, count = len(self._rows), len(self._keys)
        if count == known:
            return
        fresh = np.flatnonzero(numbers >= known)
        _, places = np.unique(numbers[fresh], return_index=True)
        new = rows.take(pa.array(fresh[places]))
        (sort_keys,) = scalars.compute(new, [self._sort_key])
        # DuckDB makes whole numbers of keys of few bytes, and bytes of others.
        self._sort_keys.number(to_texts(sort_keys))
        assert len(self._sort_keys) == count, "two rows with one sort key"
        self._copies = grow_array(self._copies, count, 0)
        shown = new.columns[: len(self._given)]
        self._rows.add(pa.RecordBatch.from_arrays(shown, schema=self._given))

    def _forget(self) -> None:
        """Drop the rows that are gone, when most or all are gone."""
        if self._alive and not self._keys.is_worth_compacting(self._alive):
            return
        known = len(self._keys)
        alive = self._copies[:known] != 0
        self._keys.compact(alive)
        self._rows.keep(alive)
        self._sort_keys.forget(alive)
        self._copies = choose_like(self._copies[:known], alive)

    def size(self) -> int:
        return len(self._keys)
