"""Duplicate elimination and set operations, by counting the copies of each row in the inputs.

For each distinct row with v1 copies in the first input and v2 in the second:

    DISTINCT          1 if v1 > 0          INTERSECT         1 if v1 > 0 and v2 > 0
    EXCEPT            1 if v1 > 0 = v2     INTERSECT ALL     min(v1, v2)
    EXCEPT ALL        max(v1 - v2, 0)      (Update patterns, 2.1, equation 1)

The counts are kept for each distinct row. Changes at one instant are applied together: a row that
one element takes away and another brings at the same instant does not disappear.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.model.patterns import RULES, Edge
from millpond.operators.protocol.cost_model import (
    COUNTED,
    GIVEN,
    STEPPED,
    EdgeEstimate,
    StreamStatistics,
    estimate_wakeups,
)
from millpond.operators.protocol.delta import Delta
from millpond.operators.protocol.node import Node, Operator, Scalars
from millpond.operators.protocol.precision import (
    Precision,
    copies_of,
    eliminate_duplicates,
    find_common,
    join_rows,
    subtract_rows,
)
from millpond.operators.protocol.sharding import Sharding, shard_equals
from millpond.operators.structures.distinct_rows import DistinctRows
from millpond.operators.structures.group_rows import group_rows
from millpond.synopses.mapped_memory import grow_array

_RULES = {"distinct": 0, "intersect": 1, "intersect all": 2, "except": 3, "except all": 4}
_EDGES = {"except": "negation", "except all": "negation", "intersect all": "intersect"}


@dataclass(frozen=True, eq=False)
class SetOperation(Node):
    """A function of each row's multiplicities.

    Attributes:
        over: One input for `distinct`, else two of one schema.
        rule: The function.
    """

    over: tuple[Node, ...]
    rule: str

    takes_expirations = False
    state = "counts by row"
    announces = True

    @property
    def schema(self) -> pa.Schema:
        return self.over[0].schema

    @property
    def name(self) -> str:
        return "negation" if self.rule == "except all" else self.rule

    @property
    def edge(self) -> Edge:
        return RULES[_EDGES.get(self.rule, self.rule)]([i.edge for i in self.over])

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.rule,)

    @property
    def logical_identity(self) -> tuple[Any, ...]:
        return ("distinct",) if self.rule == "distinct" else super().logical_identity

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        first = inputs[0]
        every = range(len(first.columns))
        distinct = max(first.of(every).distinct, 1.0)
        rows = first.count_distinct(every)
        others = inputs[1].count_distinct(every) if len(inputs) > 1 else rows
        if self.rule == "distinct" or not first.arrivals:
            # A row comes where it was not there before.
            arrivals = first.arrivals * math.exp(-first.rows / distinct)
        elif self.rule in ("intersect", "except"):
            arrivals = sum(i.arrivals * math.exp(-i.rows / distinct) for i in inputs)
        else:
            arrivals = sum(i.changes for i in inputs) / 4
            rows, others = first.rows / 2, distinct
        if self.rule.startswith("intersect"):
            rows *= min(1.0, others / distinct)
        life = rows / arrivals if arrivals else first.life
        return EdgeEstimate(arrivals, arrivals, life, first.columns)

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        changes = sum(i.changes for i in inputs)
        return COUNTED * changes + GIVEN * own.changes + STEPPED * estimate_wakeups(changes, known)

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        every = range(len(self.schema))
        once = [
            eliminate_duplicates(given, copies_of(edge, every))
            for given, edge in zip(inputs, edges, strict=True)
        ]
        if self.rule == "distinct":
            return once[0]
        if self.rule == "intersect":
            return join_rows(once[0], once[1])
        if self.rule == "except":
            return subtract_rows(once[0], once[1], find_common(edges[0], edges[1], every))
        return None

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        known, every = inputs[0] or {}, [(place, place) for place in range(len(self.schema))]
        for other in inputs[1:]:
            known = shard_equals(known, other, every)
        return known

    def operator(self) -> Operator:
        return CountingCopies(self.rule, self.schema)


@compiled(types.int64(types.int64, types.int64, types.int64))
def _combine_counts(rule, v1, v2):  # type: ignore[no-untyped-def]
    """Compute the output's copies of a row from the inputs' copies."""
    if rule == 0:
        return 1 if v1 > 0 else 0
    if rule == 1:
        return 1 if v1 > 0 and v2 > 0 else 0
    if rule == 2:
        return max(min(v1, v2), 0)
    if rule == 3:
        return 1 if v1 > 0 and v2 <= 0 else 0
    return max(v1 - max(v2, 0), 0)


@compiled(types.int64(types.int64, *[READ_I64] * 6, *[I64] * 5))
def _count(  # type: ignore[no-untyped-def]
    rule, order, starts, which, at, side, weight, first, second, out_key, out_at, out_weight
):
    """Apply the changes of each key to its counts; note where the output's count changes."""
    found = 0
    for g in range(len(which)):
        key = which[g]
        v1, v2 = first[key], second[key]
        before = _combine_counts(rule, v1, v2)
        i = starts[g]
        while i < starts[g + 1]:
            now = at[order[i]]
            while i < starts[g + 1] and at[order[i]] == now:
                row = order[i]
                if side[row] == 0:
                    v1 += weight[row]
                else:
                    v2 += weight[row]
                i += 1
            after = _combine_counts(rule, v1, v2)
            if after != before:
                out_key[found] = key
                out_at[found] = now
                out_weight[found] = after - before
                found += 1
                before = after
        first[key] = v1
        second[key] = v2
    return found


class CountingCopies:
    """Runs `SetOperation`: keeps the copies of each distinct row in each input."""

    def __init__(self, rule: str, schema: pa.Schema) -> None:
        self._rule = _RULES[rule]
        self._rows = DistinctRows(schema)
        self._first = np.zeros(64, np.int64)
        self._second = np.zeros(64, np.int64)

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        schema = inputs[0].rows.schema
        fitted = [
            d if d.rows.schema.equals(schema) else d.with_rows(d.rows.cast(schema)) for d in inputs
        ]
        sides = np.concatenate([np.full(len(d), i, np.int64) for i, d in enumerate(fitted)])
        if not len(sides):
            return fitted[0]
        at = np.concatenate([d.at for d in fitted])
        weight = np.concatenate([d.weight for d in fitted])
        rows = pa.concat_batches([d.rows for d in fitted])
        numbers = self._rows.number(rows)
        self._first = grow_array(self._first, len(self._rows), 0)
        self._second = grow_array(self._second, len(self._rows), 0)
        by_time = np.argsort(at, kind="stable") if len(fitted) > 1 else np.arange(len(at))
        order, starts, which = group_rows(numbers[by_time], len(self._rows))
        out = [np.empty(len(at), np.int64) for _ in range(3)]
        count = _count(
            self._rule,
            by_time[order],
            starts,
            which,
            at,
            sides,
            weight,
            self._first,
            self._second,
            *out,
        )
        keys, instants, weights = (values[:count] for values in out)
        in_time = np.argsort(instants, kind="stable")
        given = Delta.of(self._rows.pick(keys[in_time]), instants[in_time], None, weights[in_time])
        self._forget()
        return given

    def _forget(self) -> None:
        known = len(self._rows)
        alive = (self._first[:known] != 0) | (self._second[:known] != 0)
        living = int(alive.sum())
        if not self._rows.is_worth_compacting(living):
            return
        self._rows.compact(alive)
        room = np.zeros(max(64, 2 * living), np.int64)
        for counts in ("_first", "_second"):
            moved = room.copy()
            moved[:living] = getattr(self, counts)[:known][alive]
            setattr(self, counts, moved)

    def size(self) -> int:
        return len(self._rows)
