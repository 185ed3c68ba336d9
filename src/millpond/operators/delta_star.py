"""Duplicate elimination without its input: δ* (Update patterns, 5.3.1).

Where nothing is taken back before its time, a distinct row can be given with the expiration of the
copy that is given. Of the copies that came meanwhile only the one that lives longest matters: when
the one given expires, it takes over,

    [at, exp)   then   [exp, exp of the longest-lived)   then …

So for each distinct row two instants are kept, whatever the number of copies: the state is at most
twice the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.model.patterns import RULES, Edge
from millpond.model.time import BEGINNING
from millpond.operators.delta import Delta, Ints
from millpond.operators.grouping import grouped
from millpond.operators.keys import Keys
from millpond.operators.node import Operator, Scalars, Unary
from millpond.operators.row_store import RowStore, doubled

#: Before every instant: the expiration of a row that was never given.
_NEVER = BEGINNING - 2


@dataclass(frozen=True, eq=False)
class DeltaStar(Unary):
    """The distinct rows of an input on which nothing is announced by negative tuples."""

    name = "distinct"
    state = "its output and who takes over, by row"
    identity = ()

    def __post_init__(self) -> None:
        assert not self.input.announces

    @property
    def detail(self) -> str:
        return "δ*"

    @property
    def edge(self) -> Edge:
        return RULES["distinct"]([self.input.edge])

    def operator(self) -> Operator:
        return Longest(self.schema)


@compiled(
    types.int64(
        READ_I64,
        READ_I64,
        READ_I64,
        READ_I64,
        READ_I64,
        I64,
        I64,
        I64,
        I64,
        I64,
    )
)
def _take_over(  # type: ignore[no-untyped-def]
    order, starts, which, at, until, given, longest, out_key, out_at, out_until
):
    """Runs each row's copies through what is given of it; notes the lives that are given."""
    found = 0
    for g in range(len(which)):
        key = which[g]
        end, best = given[key], longest[key]
        for i in range(starts[g], starts[g + 1]):
            row = order[i]
            if end <= at[row] and best > end:
                out_key[found], out_at[found], out_until[found] = key, end, best
                found += 1
                end = best
            if at[row] >= end:
                out_key[found], out_at[found], out_until[found] = key, at[row], until[row]
                found += 1
                end = until[row]
            best = max(best, until[row])
        given[key] = end
        longest[key] = best
    return found


class Longest:
    """`DeltaStar` at work: for each row the end of what is given, and of its longest-lived copy."""

    def __init__(self, schema: pa.Schema) -> None:
        self._keys = Keys(schema.types)
        self._rows = RowStore(schema)
        self._given = np.full(64, _NEVER, np.int64)
        self._longest = np.full(64, _NEVER, np.int64)

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        parts: list[tuple[Ints, Ints, Ints]] = []
        if len(delta):
            numbers = self._keys.number(delta.rows.columns)
            self._note_new(delta.rows, numbers)
            order, starts, which = grouped(numbers, len(self._keys))
            out = [np.empty(2 * len(delta), np.int64) for _ in range(3)]
            arguments = (delta.at, delta.until, self._given, self._longest)
            count = _take_over(order, starts, which, *arguments, *out)
            parts.append((out[0][:count], out[1][:count], out[2][:count]))
        known = len(self._keys)
        given, longest = self._given[:known], self._longest[:known]
        due = np.flatnonzero((given <= upto) & (longest > given))
        if len(due):
            parts.append((due, given[due], longest[due]))
            self._given[due] = longest[due]
        if not parts:
            self._forget(upto)
            return delta
        keys, at, until = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        in_time = np.lexsort((until, at))
        rows = self._rows.pick(keys[in_time])
        found = Delta.of(rows, at[in_time], until[in_time])
        self._forget(upto)
        return found

    def _note_new(self, rows: pa.RecordBatch, numbers: Ints) -> None:
        """Keeps a row of each number not seen before: numbers are given in order of appearance."""
        known = len(self._rows)
        if len(self._keys) > known:
            fresh = np.flatnonzero(numbers >= known)
            _, places = np.unique(numbers[fresh], return_index=True)
            self._rows.add(rows.take(pa.array(fresh[places])))
            self._given = doubled(self._given, len(self._keys), _NEVER)
            self._longest = doubled(self._longest, len(self._keys), _NEVER)

    def _forget(self, upto: int) -> None:
        """Drops rows that have no copy any more, when they are most."""
        known = len(self._keys)
        alive = self._given[:known] > upto
        living = int(alive.sum())
        if living and not self._keys.is_worth_compacting(living):
            return
        self._keys.compact(alive)
        self._rows.keep(alive)
        for name in ("_given", "_longest"):
            moved = np.full(max(64, 2 * living), _NEVER, np.int64)
            moved[:living] = getattr(self, name)[:known][alive]
            setattr(self, name, moved)

    def size(self) -> int:
        return len(self._keys)
