"""Join: pairs of rows with equal keys that satisfy a predicate, as long as both live.

A join of bags that vary with time is bilinear: a row (w, [a, e)) of one side and a row (v, [b, f))
of the other with equal keys give the pair (w·v, [max(a, b), min(e, f))), if that is not empty. So

    Δ(L ⋈ R) = ΔL ⋈ R  +  L ⋈ ΔR  +  ΔL ⋈ ΔR

holds of weighted rows with intervals whatever their signs, and a negative tuple needs no search for
the row it deletes. (Update patterns, 2.1 and 2.2; symmetric probing with build before probe as in
CACQ, 2.4.)

Each side keeps its rows in a table by key. Rows that have expired are skipped while probing and
dropped lazily. Rows that nobody should need, because the inputs' streams have constraints, are
released (`structures/releases.py`).

Below an operator that only forms sums, a join can keep sums by key in place of rows, and pairs need
not be laid out (`structures/summed_side.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.model.kept_property import kept_property
from millpond.model.patterns import RULES, Edge
from millpond.operators.protocol.cost_model import (
    ADDED_UP,
    BUILT,
    PAIRED,
    PROBED,
    SELECTED,
    STEPPED,
    SUMMED,
    EdgeEstimate,
    StreamStatistics,
    estimate_key_match,
    estimate_wakeups,
    guess_selectivity,
)
from millpond.operators.protocol.delta import Delta, Ints, positional_schema
from millpond.operators.protocol.node import Node, Operator, Scalars, hash_text
from millpond.operators.protocol.precision import Precision, join_rows
from millpond.operators.protocol.purging import Purging
from millpond.operators.protocol.releasing import Constraints, ReleaseFigures, ReleaseRule
from millpond.operators.protocol.sharding import Sharding, shard_equals
from millpond.operators.structures.join_side import PAIRS_AT_ONCE, drop_keys
from millpond.operators.structures.key_numbers import KeyNumbers
from millpond.operators.structures.pairs import (
    PairFinder,
    check_count,
    number_rows,
    refuse_rows,
)
from millpond.operators.structures.release_rules import find_rules
from millpond.operators.structures.rows_by_key import RowsByKey
from millpond.operators.structures.summed_side import Met, SummedSide, meet

#: About how many digits a sum has.
_DIGITS = 4


@dataclass(frozen=True, eq=False)
class Join(Node):
    """The pairs of rows of two inputs that have equal keys and satisfy the predicates.

    Attributes:
        left, right: The inputs.
        left_keys, right_keys: Places of the columns that must be equal; none for all pairs.
        predicates: SQL over the pair's columns: `c0`, … of the left row, then of the right.
        keep: Places of the pair's columns that are in the output, in order.
        nulls_match: Whether NULL keys are equal to each other, as in set operations.
        label: What EXPLAIN calls the join where it is a part of another operation.
        text: The condition as the query wrote it, for EXPLAIN.
        group: Where more than two items are joined, the key of their join in the order of the text:
            equal whatever order they are joined in. It is on the last of the joins.
        items: The items of the group, in the order of the text; `order` has their places in the
            order in which they are joined.
        sums: Places of the pair's columns of which the reader needs sums and counts alone; then
            sums by key are kept, and the output has the same sums as the pairs, but is not they.
            None: the output is the pairs.
    """

    left: Node
    right: Node
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    predicates: tuple[str, ...] = ()
    keep: tuple[int, ...] = ()
    nulls_match: bool = False
    label: str = "join"
    text: str = ""
    group: str = ""
    items: tuple[str, ...] = ()
    order: tuple[int, ...] = ()
    sums: tuple[int, ...] | None = None

    purges = True

    @property
    def state(self) -> str:
        return "rows by key, both sides" if self.sums is None else "sums by key, both sides"

    @property
    def carries_expirations(self) -> bool:
        return self.sums is None and super().carries_expirations

    @property
    def needs_explicit(self) -> tuple[bool, ...]:
        return (self.sums is not None,) * 2

    @property
    def announces(self) -> bool:
        return self.sums is not None or super().announces

    @property
    def schema(self) -> pa.Schema:
        both = [*self.left.schema.types, *self.right.schema.types]
        return positional_schema([both[p] for p in self.keep])

    @property
    def name(self) -> str:
        return self.label

    @property
    def edge(self) -> Edge:
        return RULES["join"]([i.edge for i in self.inputs])

    def choose_columns(self, places: tuple[int, ...]) -> Node | None:
        return replace(self, keep=tuple(self.keep[p] for p in places))

    @property
    def identity(self) -> tuple[Any, ...]:
        equal = sorted(zip(self.left_keys, self.right_keys, strict=True))
        own = (equal, sorted(set(self.predicates)), self.keep, self.nulls_match)
        return own if self.sums is None else (*own, self.sums)

    @kept_property
    def logical_key(self) -> str:
        return hash_text(f"joins {self.group}") if self.group else super().logical_key

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        left, right = inputs
        if self.sums is not None:
            return self._estimate_sums(left, right)
        chance = self._estimate_match(left, right) * guess_selectivity(self.predicates)
        pairs = chance * (left.arrivals * right.rows + right.arrivals * left.rows)
        negatives = chance * (left.negatives * right.rows + right.negatives * left.rows)
        life = chance * left.rows * right.rows / pairs if pairs else 0.0
        both = (*left.columns, *right.columns)
        return EdgeEstimate(pairs, negatives, life, tuple(both[p] for p in self.keep))

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        left, right = inputs
        if self.sums is not None:
            changes = left.changes + right.changes
            rows = SUMMED * changes + PAIRED * own.changes
            return rows + 3 * STEPPED * estimate_wakeups(changes, known)
        chance = self._estimate_match(left, right)
        pairs = chance * (left.changes * right.rows + right.changes * left.rows)
        # A probe finds negative tuples like rows until they are added up.
        taken_back = left.negatives + right.negatives
        changes = left.changes + right.changes
        if taken_back:
            pairs *= 1 + 0.5 * taken_back / changes
        each = PAIRED + (SELECTED if self.predicates else 0.0)
        rows = (BUILT + PROBED) * changes + ADDED_UP * taken_back
        return rows + each * pairs + 3 * STEPPED * estimate_wakeups(changes, known)

    def _estimate_sums(self, left: EdgeEstimate, right: EdgeEstimate) -> EdgeEstimate:
        """Estimate the rows that stand for the pairs: as many as the lumps that rows meet have."""
        chance = self._estimate_match(left, right)
        given = 0.0
        for side, own, other in ((0, left, right), (1, right, left)):
            exact, summed = self.divide_columns(1 - side)
            further = [p for p in exact if p not in (self.left_keys, self.right_keys)[1 - side]]
            lumps = min(chance * other.rows, other.count_distinct(further))
            given += own.changes * lumps * (1 + _DIGITS * len(summed))
        both = (*left.columns, *right.columns)
        life = chance * left.rows * right.rows / (given / 2) if given else 0.0
        return EdgeEstimate(given / 2, given / 2, life, tuple(both[p] for p in self.keep))

    def divide_columns(self, side: int) -> tuple[list[int], list[int]]:
        """Of one input, the columns that rows are told apart by, and those that are added up."""
        width = len(self.left.schema)
        start, end = (width, width + len(self.right.schema)) if side else (0, width)
        summed = sorted(p - start for p in self.sums or () if start <= p < end)
        read = {p - start for p in self.keep if start <= p < end}
        exact = sorted({*read, *(self.left_keys, self.right_keys)[side]} - set(summed))
        return exact, summed

    def _estimate_match(self, left: EdgeEstimate, right: EdgeEstimate) -> float:
        return estimate_key_match(left, self.left_keys, right, self.right_keys)

    def find_release_rules(self, constraints: Constraints) -> tuple[ReleaseRule, ...]:
        if self.nulls_match or self.sums is not None:
            return ()
        sides, keys = (self.left, self.right), (self.left_keys, self.right_keys)
        return find_rules(sides, keys, constraints)

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        return join_rows(inputs[0], inputs[1])

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        left, right = inputs
        width, pairs = (
            len(self.left.schema),
            list(zip(self.left_keys, self.right_keys, strict=True)),
        )
        if right is None:
            known = dict(left or {})
        elif left is None:
            known = {width + place: columns for place, columns in right.items()}
        else:
            known = shard_equals(left, right, pairs)
            known |= {width + there: known[here] for here, there in pairs if here in known}
        summed = set(self.sums or ())
        shown = {n: place for n, place in enumerate(self.keep) if place not in summed}
        return {n: known[place] for n, place in shown.items() if place in known}

    def operator(self) -> Operator:
        return Joining(self) if self.sums is None else SummedJoining(self)


class Joining:
    """Runs `Join`: keeps the rows of both sides by key.

    Attributes:
        rows: The rows.
    """

    def __init__(self, node: Join) -> None:
        schemas = node.left.schema, node.right.schema
        self._pairs = PairFinder(*schemas, node.predicates, node.keep, node.detail)
        self._schema = node.schema
        self._nodes = node.left, node.right
        self.rows = RowsByKey(self._nodes, (node.left_keys, node.right_keys), node.nulls_match)
        self.purging = Purging()

    def set_release_rules(self, rules: Sequence[ReleaseRule]) -> None:
        self.rows.set_release_rules(rules)

    def list_release_figures(self) -> list[ReleaseFigures]:
        return self.rows.list_release_figures()

    def hand_over(self, lengths: tuple[int, ...]) -> RowsByKey:
        return self.rows

    def take_over(self, rows: RowsByKey, lengths: tuple[int, ...]) -> None:
        """Keep the rows from now on that were kept for it: they leave windows of these lengths."""
        rows.set_lengths((lengths[0], lengths[1]))
        rows.set_nodes(self._nodes)
        self.rows = rows

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        if not len(inputs[0]) and not len(inputs[1]):
            self.rows.compact(upto, self.purging)
            return Delta.empty(self._schema)
        (left, left_numbers), (right, right_numbers) = self.rows.begin_step(inputs, scalars)
        held_left, held_right = self.rows.sides
        count = len(self.rows.keys)
        parts: list[Delta] = []
        if len(left) and len(held_right):
            found = held_right.probe_in_parts(left, left_numbers, PAIRS_AT_ONCE)
            parts += self._pairs.find_pairs(left, found, held_right, False, scalars)
        if len(left):
            held_left.build(left, left_numbers, count)
        if len(right):
            if len(held_left):
                found = held_left.probe_in_parts(right, right_numbers, PAIRS_AT_ONCE)
                parts += self._pairs.find_pairs(right, found, held_left, True, scalars)
            held_right.build(right, right_numbers, count)
        self.rows.compact(upto, self.purging)
        return Delta.together(parts) if parts else Delta.empty(self._schema)

    def size(self) -> int:
        return self.rows.size()


class SummedJoining:
    """Runs `Join` with `sums`: keeps sums of the rows of both sides by key."""

    def __init__(self, node: Join) -> None:
        self._node_keys = node.left_keys, node.right_keys
        self._nulls_match = node.nulls_match
        self._text = node.detail or "without a condition"
        self._schema = node.schema
        self._keep = node.keep
        self._width = len(node.left.schema)
        self._keys = KeyNumbers([node.left.schema.field(p).type for p in node.left_keys])
        self._sides = (
            SummedSide(node.left.schema, *node.divide_columns(0)),
            SummedSide(node.right.schema, *node.divide_columns(1)),
        )
        #: Rows leave by negative tuples, so there is nothing to purge.
        self.purging = Purging()

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        if not len(inputs[0]) and not len(inputs[1]):
            return Delta.empty(self._schema)
        numbered = [
            number_rows(delta, places, self._keys, self._nulls_match)
            for delta, places in zip(inputs, self._node_keys, strict=True)
        ]
        try:
            parts = self._meet(numbered)
        except OverflowError:
            raise refuse_rows(self._text) from None
        self._compact()
        return Delta.together(parts) if parts else Delta.empty(self._schema)

    def _meet(self, numbered: Sequence[tuple[Delta, Ints]]) -> list[Delta]:
        """Let both sides' rows, with the numbers of their keys, meet the other side's lumps."""
        one, other = (
            side.take_in(delta, numbers, len(self._keys))
            for side, (delta, numbers) in zip(self._sides, numbered, strict=True)
        )
        deltas = numbered[0][0], numbered[1][0]
        at = np.concatenate([deltas[0].at, deltas[1].at])
        order = np.argsort(at, kind="stable")
        side = (order >= len(deltas[0])).astype(np.int64)
        place = order - side * len(deltas[0])
        parts: list[Delta] = []
        found = 0
        for met in meet(self._sides, (one, other), side, place, PAIRS_AT_ONCE):
            found += len(met.event)
            check_count(found, self._text)
            parts += self._write_rows(deltas, side[met.event], place[met.event], met)
        return parts

    def _write_rows(
        self, deltas: tuple[Delta, Delta], side: Ints, place: Ints, met: Met
    ) -> Iterator[Delta]:
        """Write the rows that stand for pairs: those of each side's rows apart."""
        for own, delta in enumerate(deltas):
            chosen = np.flatnonzero(side == own)
            if not len(chosen):
                continue
            rows, other = place[chosen], self._sides[1 - own]
            taken = pa.array(rows)
            lumps = other.rows.pick(met.lump[chosen]) if other.exact else None
            kinds, kind = other.make_kinds(), pa.array(met.kind[chosen])
            columns = []
            for p in self._keep:
                of, at = (0, p) if p < self._width else (1, p - self._width)
                if of == own:
                    columns.append(delta.rows.column(at).take(taken))
                elif at in other.summed:
                    columns.append(kinds[other.summed.index(at)].take(kind))
                else:
                    assert lumps is not None
                    columns.append(lumps.column(other.exact.index(at)))
            batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            yield Delta.of(batch, delta.at[rows], None, met.weight[chosen])

    def _compact(self) -> None:
        """Forget lumps without rows, and then the keys that neither side has."""
        done = [side.compact() for side in self._sides]
        if any(done) and self._node_keys[0]:
            drop_keys(self._sides, self._keys)

    def size(self) -> int:
        return sum(side.alive for side in self._sides)
