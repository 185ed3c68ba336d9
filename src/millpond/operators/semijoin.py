"""Semijoin and antijoin: the rows of one input that have, or have not, a partner in the other.

It serves EXISTS and NOT EXISTS, IN and NOT IN, and the unmatched side of an outer join (Update
patterns, 2.1: negation). A left row is in the output while it lives and has partners (a semijoin)
or has none (an antijoin).

Each row of a left delta is followed separately, whatever its weight: a negative tuple has the same
partners as the row it takes back, so it takes back exactly that row's output. There are two ways
to find out whether a row has partners:

- by key, if partners need only have equal keys: the right input is then the keys themselves, each
  once, and a key that comes or goes changes the output for the left rows with that key;
- by count, if a predicate decides as well: the number of partners is kept with each left row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numba import types

from millpond.model.compiled import I64, READ_I64, compiled
from millpond.model.patterns import RULES, Edge
from millpond.operators.protocol.cost_model import (
    ADDED_UP,
    BUILT,
    COUNTED,
    PAIRED,
    PROBED,
    SELECTED,
    STEPPED,
    EdgeEstimate,
    StreamStatistics,
    estimate_key_match,
    estimate_wakeups,
    guess_selectivity,
)
from millpond.operators.protocol.delta import Delta, Ints, positional_schema
from millpond.operators.protocol.node import Node, Operator, Scalars
from millpond.operators.protocol.precision import (
    Precision,
    copies_of,
    eliminate_duplicates,
    join_rows,
    subtract_rows,
)
from millpond.operators.protocol.purging import Purging
from millpond.operators.protocol.sharding import Sharding, shard_equals
from millpond.operators.structures.join_side import PAIRS_AT_ONCE, Side, compact_both
from millpond.operators.structures.key_numbers import KeyNumbers


@dataclass(frozen=True, eq=False)
class Semijoin(Node):
    """The left rows with, or without, a partner.

    Attributes:
        left: The rows.
        right: The possible partners, without expirations; without predicates, only their distinct
            keys.
        left_keys, right_keys: Places of the columns that must be equal.
        predicates: Further conditions on partners: SQL over the left columns, then the right ones.
        anti: Whether the output is the rows without a partner.
        keep: Places of the left columns that are in the output.
        text: The condition as the query wrote it, for EXPLAIN.
    """

    left: Node
    right: Node
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    predicates: tuple[str, ...]
    anti: bool
    keep: tuple[int, ...]
    text: str = ""

    announces = True
    purges = True

    @property
    def schema(self) -> pa.Schema:
        return positional_schema([self.left.schema.field(p).type for p in self.keep])

    @property
    def name(self) -> str:
        return "antijoin" if self.anti else "semijoin"

    @property
    def state(self) -> str:
        kept = "rows by key, with counts of partners" if self.predicates else "rows by key"
        return f"{kept}; {'rows' if self.predicates else 'keys'} of the right"

    @property
    def edge(self) -> Edge:
        return RULES["negation" if self.anti else "semijoin"]([i.edge for i in self.inputs])

    @property
    def carries_expirations(self) -> bool:
        return self.left.carries_expirations

    @property
    def identity(self) -> tuple[Any, ...]:
        equal = sorted(zip(self.left_keys, self.right_keys, strict=True))
        return (equal, sorted(set(self.predicates)), self.anti, self.keep)

    def choose_columns(self, places: tuple[int, ...]) -> Node | None:
        return replace(self, keep=tuple(self.keep[p] for p in places))

    @property
    def needs_explicit(self) -> tuple[bool, ...]:
        return (False, True)

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        left, right = inputs
        share = self._estimate_share(left, right)
        output_share = 1 - share if self.anti else share
        # Keys that come and go on the right take back left rows, and output them again.
        rows = estimate_key_match(left, self.left_keys, right, self.right_keys) * left.rows
        moved = rows * guess_selectivity(self.predicates) * right.changes / 2
        if not self._by_count:
            # A key that leaves and comes at one instant causes no output.
            distinct = right.of(self.right_keys).distinct
            moved *= max(0.0, 1 - right.rows / max(distinct, 1.0))
        columns = tuple(left.columns[p] for p in self.keep)
        arrivals = left.arrivals * output_share + moved
        life = left.rows * output_share / arrivals if arrivals else 0.0
        return EdgeEstimate(arrivals, left.negatives * output_share + moved, life, columns)

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        left, right = inputs
        chance = estimate_key_match(left, self.left_keys, right, self.right_keys)
        pairs = chance * right.changes * left.rows
        if self._by_count:
            pairs += chance * left.changes * right.rows
        each = PAIRED + (COUNTED + SELECTED if self._by_count else 0.0)
        taken_back = left.negatives + right.negatives
        changes = left.changes + right.changes
        rows = (BUILT + PROBED) * changes + ADDED_UP * taken_back
        return rows + each * pairs + 3 * STEPPED * estimate_wakeups(changes, known)

    def _estimate_share(self, left: EdgeEstimate, right: EdgeEstimate) -> float:
        """Estimate the share of the left rows that have a partner."""
        if not self._by_count:
            return min(1.0, right.rows / max(right.of(self.right_keys).distinct, 1.0))
        chance = estimate_key_match(left, self.left_keys, right, self.right_keys)
        return -math.expm1(-chance * guess_selectivity(self.predicates) * right.rows)

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        copies = copies_of(edges[1], self.right_keys)
        partners = eliminate_duplicates(inputs[1], copies)
        if self.anti:
            return subtract_rows(inputs[0], partners, self._estimate_share(*edges))
        return join_rows(inputs[0], partners)

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        left, right = inputs
        pairs = list(zip(self.left_keys, self.right_keys, strict=True))
        known = (left or {}) if right is None else shard_equals(left, right, pairs)
        return {n: known[place] for n, place in enumerate(self.keep) if place in known}

    def operator(self) -> Operator:
        return SemijoiningByCount(self) if self._by_count else SemijoiningByKey(self)

    @property
    def _by_count(self) -> bool:
        return bool(self.predicates) or not self.anti


class _Semijoining:
    """The state of both ways: two sides whose keys are numbered together."""

    def __init__(self, node: Semijoin) -> None:
        self._left_keys, self._right_keys = node.left_keys, node.right_keys
        self._keep = list(node.keep)
        self._schema = node.schema
        self._keys = KeyNumbers([node.left.schema.field(p).type for p in node.left_keys])
        self._left, self._right = Side(node.left.schema), Side(node.right.schema)
        self.purging = Purging()

    def _number_rows(self, delta: Delta, places: tuple[int, ...]) -> tuple[Delta, Ints, Delta]:
        """Split off the rows with a NULL in their key, and number the keys of the others."""
        columns = [delta.rows.column(p) for p in places]
        if not places:
            if len(delta):
                self._keys.number_empty_rows()
            return delta, np.zeros(len(delta), np.int64), delta.slice(0, 0)
        known = np.ones(len(delta), bool)
        for column in columns:
            if column.null_count:
                known &= column.is_valid().to_numpy(zero_copy_only=False)
        some = delta.where(known)
        columns = [some.rows.column(p) for p in places]
        other = delta.slice(0, 0) if known.all() else delta.where(~known)
        return some, self._keys.number(columns), other

    def _project_left(self, rows: pa.RecordBatch, delta: Delta) -> Delta:
        columns = [rows.column(p) for p in self._keep]
        return delta.with_rows(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _pick_left(self, places: Ints, at: Ints, weight: Ints) -> Delta:
        """Pick left rows by their places; each counts from its instant on."""
        order = np.argsort(at, kind="stable")
        places, at, weight = places[order], at[order], weight[order]
        rows = self._left.rows.pick(places)
        return self._project_left(rows, Delta(rows, at, self._left.until[places], weight))

    def _compact(self, upto: int) -> None:
        keys = self._keys if self._left_keys else None
        compact_both(self._left, self._right, keys, upto, self.purging)

    def size(self) -> int:
        return len(self._left) + len(self._right)


def _net_keys(keys: Delta, numbers: Ints) -> tuple[Delta, Ints]:
    """Cancel the keys that leave and come at one instant.

    Duplicate elimination makes such changes when one copy of a row takes over from another; rows
    with the key do not change then.
    """
    if len(keys) < 2:
        return keys, numbers
    order = np.lexsort((keys.at, numbers))
    at, of = keys.at[order], numbers[order]
    first = np.flatnonzero(np.r_[True, (at[1:] != at[:-1]) | (of[1:] != of[:-1])])
    if len(first) == len(keys):
        return keys, numbers
    weight = np.add.reduceat(keys.weight[order], first)
    kept = np.flatnonzero(weight)
    places = order[first[kept]]
    in_time = np.argsort(places)
    places, weight = places[in_time], weight[kept][in_time]
    left = keys.take(places)
    return Delta(left.rows, left.at, left.until, weight), numbers[places]


class SemijoiningByKey(_Semijoining):
    """An antijoin on keys alone."""

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        left, left_numbers, alone = self._number_rows(inputs[0], self._left_keys)
        right, right_numbers, _ = self._number_rows(inputs[1], self._right_keys)
        right, right_numbers = _net_keys(right, right_numbers)
        parts = [self._project_left(alone.rows, alone)]
        if len(left):
            absent = left.where(~self._find_present(left, left_numbers))
            parts.append(self._project_left(absent.rows, absent))
            self._left.build(left, left_numbers, len(self._keys))
        if len(right):
            probing, held = self._left.probe(right, right_numbers)
            at = np.maximum(right.at[probing], self._left.at[held])
            weight = -right.weight[probing] * self._left.weight[held]
            parts.append(self._pick_left(held, at, weight))
            self._right.build(right, right_numbers, len(self._keys))
        self._compact(upto)
        return Delta.together(parts)

    def _find_present(self, left: Delta, numbers: Ints) -> np.ndarray:
        """Find the rows whose key was present before this step."""
        count = np.zeros(len(left), np.int64)
        if len(self._right):
            probing, held = self._right.probe(left, numbers)
            np.add.at(count, probing, self._right.weight[held])
        return count > 0


@compiled(types.int64(types.boolean, types.int64, *[READ_I64] * 3, *[I64] * 4))
def _follow(anti, base, places, at, change, tally, out_place, out_at, out_sign):  # type: ignore[no-untyped-def]
    """Apply changes to the rows' counts of partners; note where a row comes or goes.

    Changes are in order of place, then instant. Rows from `base` on are new, not yet output.
    """
    found = 0
    i = 0
    while i < len(places):
        place = places[i]
        count = tally[place]
        is_output = place < base and ((count <= 0) == anti)
        while i < len(places) and places[i] == place:
            now = at[i]
            while i < len(places) and places[i] == place and at[i] == now:
                count += change[i]
                i += 1
            if ((count <= 0) == anti) != is_output:
                is_output = not is_output
                out_place[found] = place
                out_at[found] = now
                out_sign[found] = 1 if is_output else -1
                found += 1
        tally[place] = count
    return found


class SemijoiningByCount(_Semijoining):
    """A semijoin or antijoin that keeps the number of partners of each left row."""

    def __init__(self, node: Semijoin) -> None:
        super().__init__(node)
        self._anti = node.anti
        self._predicates = node.predicates
        self._pair = positional_schema([*node.left.schema.types, *node.right.schema.types])

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        left, left_numbers, alone = self._number_rows(inputs[0], self._left_keys)
        right, right_numbers, _ = self._number_rows(inputs[1], self._right_keys)
        base = len(self._left)
        parts = [self._project_left(alone.rows, alone)] if self._anti else []
        changes: list[tuple[Ints, Ints, Ints]] = []
        if len(left):
            new = np.arange(base, base + len(left))
            # A new row is looked at when it comes, with partners or without.
            changes.append((new, left.at, np.zeros(len(left), np.int64)))
            if len(self._right):
                found = self._right.probe_in_parts(left, left_numbers, PAIRS_AT_ONCE)
                for probing, held in found:
                    at = np.maximum(left.at[probing], self._right.at[held])
                    rows = self._pair_rows(
                        left.rows.take(pa.array(probing)), self._right.rows.pick(held)
                    )
                    true = self._test_pairs(rows, scalars)
                    weight = self._right.weight[held]
                    changes.append((base + probing[true], at[true], weight[true]))
            self._left.build(left, left_numbers, len(self._keys))
        if len(right):
            if len(self._left):
                found = self._left.probe_in_parts(right, right_numbers, PAIRS_AT_ONCE)
                for probing, held in found:
                    at = np.maximum(right.at[probing], self._left.at[held])
                    rows = self._pair_rows(
                        self._left.rows.pick(held), right.rows.take(pa.array(probing))
                    )
                    true = self._test_pairs(rows, scalars)
                    changes.append((held[true], at[true], right.weight[probing][true]))
            self._right.build(right, right_numbers, len(self._keys))
        if changes:
            parts.append(self._follow_counts(base, changes))
        self._compact(upto)
        return Delta.together(parts) if parts else Delta.empty(self._schema)

    def _follow_counts(self, base: int, changes: list[tuple[Ints, Ints, Ints]]) -> Delta:
        places, at, change = (np.concatenate(columns) for columns in zip(*changes, strict=True))
        order = np.lexsort((at, places))
        out = [np.empty(len(order), np.int64) for _ in range(3)]
        arguments = (places[order], at[order], change[order], self._left.tally)
        count = _follow(self._anti, base, *arguments, *out)
        held, instants, sign = (values[:count] for values in out)
        return self._pick_left(held, instants, sign * self._left.weight[held])

    def _pair_rows(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*left.columns, *right.columns], schema=self._pair)

    def _test_pairs(self, rows: pa.RecordBatch, scalars: Scalars) -> np.ndarray:
        """Find the pairs for which the predicates are true."""
        if not self._predicates or not rows.num_rows:
            return np.ones(rows.num_rows, bool)
        return scalars.select(rows, self._predicates)
