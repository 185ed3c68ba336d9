"""Re-evaluation by groups: the answer is computed anew, but only for the groups that changed.

Partitioned window functions, and aggregates whose value is as long as the group, have no
incremental operator, but are functions of the rows of one key each. At every instant at which a
key's rows change, DuckDB answers the query over that key's rows only, and negative tuples take back
the key's answer before. A key at an instant is a cell; no cell's answer depends on another cell's
rows, so many cells are answered at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.model.functions import shows_order
from millpond.model.patterns import STRICT
from millpond.model.time import BEGINNING
from millpond.operators.protocol.delta import Delta, Ints, positional_schema
from millpond.operators.protocol.node import Operator, Scalars, Unary, is_of_one_stream
from millpond.operators.structures.bag import Bag
from millpond.operators.structures.key_numbers import KeyNumbers

#: The table that the query reads, and the last column of the table and of the answer: the cell.
ROWS, KEY = "group_rows", "__key"
#: Rows that DuckDB is given at a time, about.
_AT_ONCE = 50_000


@dataclass(frozen=True, eq=False)
class RecomputeGroups(Unary):
    """A query over the rows of each key.

    Attributes:
        input: The rows.
        by: The places of the key's columns.
        sql: The query, over `group_rows` with the columns `c0`, `c1`, … and `__key`, which is its
            last column too: it groups or partitions by that, so that no row of its answer depends
            on rows of another cell.
        types: Types of the answer's columns, without `__key`.
        text: The key as the query wrote it, for EXPLAIN.
        reason: Why the query has no incremental operator, for EXPLAIN.
    """

    by: tuple[int, ...]
    sql: str
    types: tuple[pa.DataType, ...]
    text: str = ""
    reason: str = ""

    name = "re-evaluate groups"
    state = "its input's rows, answers by group"
    edge = STRICT
    carries_expirations = False
    announces = True

    @property
    def schema(self) -> pa.Schema:
        return positional_schema(self.types)

    @property
    def detail(self) -> str:
        return f"{self.text}, those that change: {self.reason}"

    @property
    def shows_order(self) -> bool:
        """Whether its answer may show in which order its rows came."""
        return shows_order(self.sql)

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.by, self.sql)

    def operator(self) -> Operator:
        in_order = self.shows_order and is_of_one_stream(self.input)
        return RecomputingGroups(
            self.by, self.sql, self.schema, self.input.schema, in_arrival_order=in_order
        )


class RecomputingGroups:
    """Runs `RecomputeGroups`: keeps the rows with their keys' numbers, and each key's answer."""

    def __init__(
        self,
        by: tuple[int, ...],
        sql: str,
        schema: pa.Schema,
        input_schema: pa.Schema,
        *,
        in_arrival_order: bool,
    ) -> None:
        self._by, self._sql, self._schema = by, sql, schema
        self._keys = KeyNumbers([input_schema.field(place).type for place in by])
        columns = positional_schema([*input_schema.types, pa.int64()])
        self._bag = Bag(columns, in_arrival_order=in_arrival_order)
        self._answers: dict[int, pa.RecordBatch] = {}
        self._upto = BEGINNING - 1

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        if len(delta):
            numbers = self._keys.number([delta.rows.column(place) for place in self._by])
            columns = [*delta.rows.columns, pa.array(numbers)]
            schema = self._bag.rows().schema
            rows = pa.RecordBatch.from_arrays(columns, schema=schema)
            self._bag.take_in(delta.with_rows(rows), upto)
        first = self._upto + 1
        if len(delta):  # a step may begin with the instant with which the step before ended
            first = min(first, int(delta.at[0]))
        instants, keys = _drop_before(scalars.since, *self._find_changes(first, upto))
        parts: list[Delta] = []
        for lo, hi, rows in self._cells(instants, keys):
            answers = self._answer_cells(rows, scalars) if rows.num_rows else {}
            for cell in range(lo, hi):
                parts += self._replace_answer(
                    int(instants[cell]), int(keys[cell]), answers.get(cell)
                )
        self._upto = upto
        self._bag.forget(upto)
        self._forget()
        return Delta.together(parts) if parts else Delta.empty(self._schema)

    def _numbers(self) -> Ints:
        found: Ints = self._bag.rows().columns[-1].to_numpy()
        return found

    def _find_changes(self, first: int, upto: int) -> tuple[Ints, Ints]:
        """Find the pairs of an instant and a key whose rows change then: each once, in order.

        The instants are those from `first` up to `upto`.
        """
        at, until = self._bag.lives()
        numbers = self._numbers()
        began, ended = at >= first, until <= upto
        instants = np.concatenate([at[began], until[ended]])
        keys = np.concatenate([numbers[began], numbers[ended]])
        order = np.lexsort((keys, instants))
        instants, keys = instants[order], keys[order]
        fresh = np.ones(len(order), bool)
        fresh[1:] = (np.diff(instants) != 0) | (np.diff(keys) != 0)
        return instants[fresh], keys[fresh]

    def _cells(self, instants: Ints, keys: Ints) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """Cut the cells into batches [lo, hi), each with its cells' rows.

        Cells of many instants are answered together: no cell's answer depends on another's rows.
        """
        at, until = self._bag.lives()
        numbers = self._numbers()
        by_key = np.argsort(numbers, kind="stable")
        starts = np.searchsorted(numbers[by_key], keys)
        ends = np.searchsorted(numbers[by_key], keys, side="right")
        places: list[Ints] = []
        lo = total = 0
        for cell, (start, end) in enumerate(zip(starts, ends, strict=True)):
            own = by_key[start:end]
            own = own[(at[own] <= instants[cell]) & (instants[cell] < until[own])]
            places.append(own)
            total += len(own)
            if total > _AT_ONCE or cell + 1 == len(keys):
                yield lo, cell + 1, self._rows_of(lo, places)
                lo, total, places = cell + 1, 0, []

    def _rows_of(self, first: int, places: list[Ints]) -> pa.RecordBatch:
        """Gather the rows of some cells, with the numbers of the cells as their keys."""
        rows = self._bag.rows().take(pa.array(np.concatenate(places)))
        cells = np.repeat(np.arange(first, first + len(places)), [len(own) for own in places])
        last = rows.num_columns - 1
        return rows.set_column(last, rows.schema.field(last), pa.array(cells))

    def _replace_answer(self, instant: int, key: int, after: pa.RecordBatch | None) -> list[Delta]:
        """Take back a key's answer and give the new one, at an instant."""
        before = self._answers.pop(key, None)
        if after is not None:
            self._answers[key] = after
        if before is not None and after is not None and before.equals(after):
            return []
        parts = []
        for rows, weight in ((before, -1), (after, 1)):
            if rows is not None:
                when = np.full(rows.num_rows, instant, np.int64)
                parts.append(Delta.of(rows, when, None, np.full(rows.num_rows, weight, np.int64)))
        return parts

    def _answer_cells(self, rows: pa.RecordBatch, scalars: Scalars) -> dict[int, pa.RecordBatch]:
        """Answer the query over the rows of some cells; return the answers by cell."""
        names = [*rows.schema.names[:-1], KEY]
        table = pa.Table.from_batches([rows]).rename_columns(names)
        found = scalars.query(self._sql, {ROWS: table}).combine_chunks()
        if not found.num_rows:
            return {}
        cells = found.columns[-1].cast(pa.int64()).to_numpy()
        found = found.remove_column(found.num_columns - 1).rename_columns(self._schema.names)
        order = np.argsort(cells, kind="stable")
        (answer,) = found.cast(self._schema).take(pa.array(order)).combine_chunks().to_batches()
        cells = cells[order]
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        ends = [*starts[1:], len(cells)]
        return {
            int(cells[lo]): answer.slice(lo, hi - lo) for lo, hi in zip(starts, ends, strict=True)
        }

    def _forget(self) -> None:
        """Drop the numbers of keys that have no rows any more, when most have none."""
        numbers = np.unique(self._numbers())
        if not self._keys.is_worth_compacting(len(numbers)):
            return
        alive = np.zeros(len(self._keys), bool)
        alive[numbers] = True
        moved = self._keys.compact(alive)
        self._answers = {int(moved[key]): rows for key, rows in self._answers.items()}
        self._bag.renumber(moved)

    def size(self) -> int:
        return self._bag.size()


def _drop_before(since: int, instants: Ints, keys: Ints) -> tuple[Ints, Ints]:
    """Drop, for each key, the cells before its last cell up to `since`."""
    early = int(np.searchsorted(instants, since, side="right"))
    if not early:
        return instants, keys
    _, from_the_end = np.unique(keys[:early][::-1], return_index=True)
    kept = np.sort(early - 1 - from_the_end)
    chosen = np.concatenate([kept, np.arange(early, len(keys))])
    return instants[chosen], keys[chosen]
