"""Semijoin and antijoin by a Bloom filter: EXISTS and NOT EXISTS of queries that tolerate it.

The right side is not kept: of each of its keys a few bits are, in slices of time
(`synopses/sliced_filter.py`). So a left row is seldom taken for one with a partner that has none,
and for at most a slice of time after its last partner left. A row with a partner is always taken
for one (STREAM, 5.2.1; PRESSURE.md, sections 3 and 6).

The left rows are kept while they live, each with the instant up to which the filter says yes, so
that rows come when a partner comes, and leave when a slice ends. Each row of a left delta is
followed separately, as in `semijoin.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.model.patterns import RULES, Edge
from millpond.model.time import BEGINNING, END
from millpond.operators.protocol.cost_model import (
    BUILT,
    PROBED,
    STEPPED,
    EdgeEstimate,
    StreamStatistics,
    estimate_key_match,
    estimate_wakeups,
)
from millpond.operators.protocol.delta import Bools, Delta, Ints, positional_schema
from millpond.operators.protocol.node import Node, Operator, Scalars
from millpond.operators.protocol.precision import (
    Precision,
    copies_of,
    eliminate_duplicates,
    join_rows,
    let_through,
    sample_rows,
    subtract_rows,
)
from millpond.operators.protocol.purging import Purging
from millpond.operators.structures.join_side import Side
from millpond.operators.structures.key_hashes import Hashes, hash_keys
from millpond.synopses.mapped_memory import choose_like, grow_array
from millpond.synopses.sliced_filter import SlicedFilter


@dataclass(frozen=True)
class Slicing:
    """How the keys of a side are filtered.

    Attributes:
        share: The share of the keys that are not there for which the filter may say yes, 0 to 1.
        length: The length of a slice in microseconds; None: the rows never leave.
        slices: How many slices can be there at once.
        ahead: How much longer than its window a right row is given, so that a filter that is made
            anew has whole slices: `length`, or nothing.
    """

    share: float
    length: int | None
    slices: int
    ahead: int = 0

    def find_ends(self, until: Ints) -> Ints:
        """Until when rows count that are given with these ends."""
        if self.length is None:
            return np.full(len(until), END)
        return -(-until // self.length) * self.length - self.ahead


@dataclass(frozen=True, eq=False)
class FilteredSemijoin(Node):
    """The left rows that seem to have, or not to have, a partner.

    Attributes:
        left: The rows.
        right: The possible partners, which leave when they were said to.
        left_keys, right_keys: Places of the columns that must be equal.
        anti: Whether the output is the rows without a partner.
        keep: Places of the left columns that are in the output.
        slicing: How the right keys are filtered.
        text: The condition as the query wrote it, for EXPLAIN.
    """

    left: Node
    right: Node
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    anti: bool
    keep: tuple[int, ...]
    slicing: Slicing
    text: str = ""

    announces = True
    purges = True
    is_exact = False

    @property
    def schema(self) -> pa.Schema:
        return positional_schema([self.left.schema.field(p).type for p in self.keep])

    @property
    def name(self) -> str:
        return "filtered antijoin" if self.anti else "filtered semijoin"

    @property
    def state(self) -> str:
        return f"rows; a Bloom filter of the right's keys, in {self.slicing.slices} slices of time"

    @property
    def edge(self) -> Edge:
        return RULES["negation" if self.anti else "semijoin"]([i.edge for i in self.inputs])

    @property
    def carries_expirations(self) -> bool:
        return self.left.carries_expirations

    @property
    def refuses_negatives(self) -> tuple[bool, ...]:
        return (False, True)

    @property
    def identity(self) -> tuple[Any, ...]:
        equal = sorted(zip(self.left_keys, self.right_keys, strict=True))
        return (equal, self.anti, self.keep, repr(self.slicing))

    def choose_columns(self, places: tuple[int, ...]) -> Node | None:
        return replace(self, keep=tuple(self.keep[p] for p in places))

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        left, right = inputs
        share = self._estimate_share(left, right)
        output_share = 1 - share if self.anti else share
        columns = tuple(left.columns[p] for p in self.keep)
        arrivals = left.arrivals * output_share
        life = left.rows * output_share / arrivals if arrivals else 0.0
        return EdgeEstimate(arrivals, left.negatives * output_share, life, columns)

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        left, right = inputs
        new = self.slicing.slices * PROBED * left.changes
        # Every row is looked up again in the slices that have new keys, at most two.
        old = 2 * PROBED * left.rows * known.steps
        return (
            BUILT * (left.changes + right.changes)
            + new
            + old
            + STEPPED * estimate_wakeups(left.changes, known)
        )

    def _estimate_share(self, left: EdgeEstimate, right: EdgeEstimate) -> float:
        """Estimate the share of the left rows that have a partner."""
        chance = estimate_key_match(left, self.left_keys, right, self.right_keys)
        return -math.expm1(-chance * right.rows)

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        partners = eliminate_duplicates(inputs[1], copies_of(edges[1], self.right_keys))
        common = self._estimate_share(*edges)
        if self.anti:
            return sample_rows(subtract_rows(inputs[0], partners, common), 1 - self.slicing.share)
        return let_through(join_rows(inputs[0], partners), common, self.slicing.share)

    def operator(self) -> Operator:
        return FilteredSemijoining(self)


@compiled(types.int64(types.boolean, types.int64, types.int64, *[READ_I64] * 5, I64, *[I64] * 3))
def _follow(anti, base, upto, places, since, ends, at, until, held, out_place, out_at, out_sign):  # type: ignore[no-untyped-def]
    """Follow every row: note when it comes and when it goes.

    Args:
        anti: Whether rows are there while the filter says no.
        base: Rows from here on are new.
        upto: The last instant.
        places, since, ends: Where and when the filter says yes, in order of place, then instant.
        at, until: The lives of the rows.
        held: Until when the filter says yes for each row; BEGINNING: it says no.
        out_place, out_at, out_sign: What is found.
    """
    found = 0
    i = 0
    for row in range(len(at)):
        end = held[row]
        fresh = row >= base
        while i < len(places) and places[i] == row:
            start = max(since[i], at[row])
            # What was found before was judged then; a row may have expired since, and be kept.
            is_known = row < base and since[i] == BEGINNING
            if start < ends[i] and start < until[row] and not is_known:
                if end == BEGINNING:
                    if not (anti and fresh and start == at[row]):
                        if anti and fresh:
                            out_place[found], out_at[found], out_sign[found] = row, at[row], 1
                            found += 1
                        out_place[found], out_at[found] = row, start
                        out_sign[found] = -1 if anti else 1
                        found += 1
                    fresh = False
                    end = ends[i]
                elif start <= end:
                    end = max(end, ends[i])
                else:
                    out_place[found], out_at[found] = row, end
                    out_sign[found] = 1 if anti else -1
                    found += 1
                    out_place[found], out_at[found] = row, start
                    out_sign[found] = -1 if anti else 1
                    found += 1
                    end = ends[i]
            i += 1
        if fresh and anti and end == BEGINNING:
            out_place[found], out_at[found], out_sign[found] = row, at[row], 1
            found += 1
        if end != BEGINNING and end <= upto:
            if end < until[row]:
                out_place[found], out_at[found] = row, end
                out_sign[found] = 1 if anti else -1
                found += 1
            end = BEGINNING
        held[row] = end
    return found


class _LeftRows(Side):
    """The left rows: `tally` is until when the filter says yes, `hashes` are of their keys."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        self.hashes: Ints = np.empty(0, np.int64)

    def add(self, delta: Delta, hashes: Hashes) -> None:
        base = len(self)
        self.build(delta, np.zeros(len(delta), np.int64), 1)
        self.hashes = grow_array(self.hashes, len(self), 0)
        self.hashes[base : len(self)] = hashes.view(np.int64)
        self.tally[base : len(self)] = BEGINNING

    def keep(self, chosen: Bools) -> None:
        self.hashes = choose_like(self.hashes[: len(self)], chosen)
        super().keep(chosen)


class FilteredSemijoining:
    """Runs `FilteredSemijoin`."""

    def __init__(self, node: FilteredSemijoin) -> None:
        self._left_keys, self._right_keys = node.left_keys, node.right_keys
        self._anti, self._keep = node.anti, list(node.keep)
        self._slicing, self._schema = node.slicing, node.schema
        self._left = _LeftRows(node.left.schema)
        self._filter = SlicedFilter(node.slicing.share, node.slicing.slices)
        self.purging = Purging()

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        left, alone = _split_known(inputs[0], self._left_keys)
        right, _ = _split_known(inputs[1], self._right_keys)
        base = len(self._left)
        if len(left):
            self._left.add(left, _hash_rows(left, self._left_keys))
        if len(right):
            ends = self._slicing.find_ends(right.until)
            self._filter.put(_hash_rows(right, self._right_keys), right.at, ends)
        parts = [self._project(alone.rows, alone)] if self._anti else []
        parts.append(self._follow_rows(base, upto))
        self._filter.settle(upto)
        if self._left.is_worth_compacting(upto, self.purging.is_due(upto), self.purging.by_share):
            self._left.compact(upto)
        return Delta.together(parts)

    def _follow_rows(self, base: int, upto: int) -> Delta:
        rows = self._left
        count = len(rows)
        hashes = rows.hashes[:count].view(np.uint64)
        found = [(p + base, s, e) for p, s, e in self._filter.find(hashes[base:])]
        found += self._filter.find(hashes[:base], only_new=True)
        places = np.concatenate([np.empty(0, np.int64), *(p for p, _, _ in found)])
        since = np.concatenate([np.empty(0, np.int64), *(s for _, s, _ in found)])
        ends = np.concatenate(
            [np.empty(0, np.int64), *(np.full(len(p), e, np.int64) for p, _, e in found)]
        )
        order = np.lexsort((since, places))
        most = 2 * (len(order) + count)
        out = [np.empty(most, np.int64) for _ in range(3)]
        arguments = (places[order], since[order], ends[order], rows.at[:count], rows.until[:count])
        many = _follow(self._anti, base, upto, *arguments, rows.tally[:count], *out)
        held, at, sign = (values[:many] for values in out)
        order = np.argsort(at, kind="stable")
        held, at, sign = held[order], at[order], sign[order]
        delta = Delta(rows.rows.pick(held), at, rows.until[held], sign * rows.weight[held])
        return self._project(delta.rows, delta)

    def _project(self, rows: pa.RecordBatch, delta: Delta) -> Delta:
        columns = [rows.column(p) for p in self._keep]
        return delta.with_rows(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def size(self) -> int:
        return len(self._left) + len(self._filter)


def _split_known(delta: Delta, places: Sequence[int]) -> tuple[Delta, Delta]:
    """Split off the rows with a NULL in their key."""
    known = np.ones(len(delta), bool)
    for place in places:
        column = delta.rows.column(place)
        if column.null_count:
            known &= pc.is_valid(column).to_numpy(zero_copy_only=False)
    if known.all():
        return delta, delta.slice(0, 0)
    return delta.where(known), delta.where(~known)


def _hash_rows(delta: Delta, places: Sequence[int]) -> Hashes:
    return hash_keys([delta.rows.column(p) for p in places])
