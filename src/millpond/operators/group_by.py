"""Group-by: a row of aggregates for each group, replaced whenever it changes.

Update patterns (Golab and Özsu), section 2.1: an arrival or an expiration changes the aggregates
of one group, and the new result replaces the result reported before. Here a negative tuple takes
back the old result at the same instant, so that a reader of the changes need not know the groups.
A group has a row in the answer as long as it has input rows; without GROUP BY there is one group,
and it always has a row (SEMANTICS, section 3).

Two operators do this. A `Grouping` numbers groups, lays a step's changes out by group and instant
and keeps the measures of each group; it changes no row. Group-bys read the grouping, each with its
own aggregates. So queries that group the same rows by the same columns share the grouping and the
measures that their aggregates have in common.

INV-GROUP-1: a group-by's rows at an instant are a function of the bag at that instant. Every
measure is exact and depends on no order and no history.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.patterns import ATTACHED, MONOTONIC, RULES, Edge, Pattern
from millpond.model.time import BEGINNING
from millpond.operators.aggregation.additive_measures import Counted
from millpond.operators.aggregation.aggregate import Aggregate
from millpond.operators.aggregation.cells import Layout
from millpond.operators.aggregation.emission import Emissions
from millpond.operators.aggregation.measures import Argument, Batch, Measures
from millpond.operators.protocol.cost_model import (
    GROUPED,
    REPLACED,
    UNKNOWN,
    EdgeEstimate,
    StreamStatistics,
)
from millpond.operators.protocol.delta import Bools, Delta, Ints, places_in, positional_schema
from millpond.operators.protocol.node import Node, Operator, Scalars, Unary
from millpond.operators.protocol.releasing import Constraints, ReleaseFigures, ReleaseRule
from millpond.operators.protocol.sharding import Sharding
from millpond.operators.structures.evaluation import evaluate_expressions
from millpond.operators.structures.group_releases import GroupReleases, find_group_rules
from millpond.operators.structures.key_numbers import KeyNumbers
from millpond.operators.structures.row_store import RowStore
from millpond.synopses.mapped_memory import grow_array

#: Fewer groups whose cluster is over are not released.
_LEAST_GROUPS = 64
#: The number of input rows of a group: it decides whether the group has a row in the answer.
ROWS = Counted(Argument())


@dataclass(frozen=True, eq=False)
class Grouping(Unary):
    """The rows of its input, brought together by group.

    Attributes:
        input: The rows.
        by: The grouping keys: columns by place, or SQL over `c0`, `c1`, ….
        types: The keys' types.
        text: The keys as the query wrote them, for EXPLAIN.
    """

    by: tuple[int | str, ...]
    types: tuple[pa.DataType, ...]
    text: str = ""

    takes_expirations = False
    name = "grouping"
    state = "aggregates by group"
    lends = True

    @property
    def identity(self) -> tuple[Any, ...]:
        return self.by

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        return inputs[0]

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        return GROUPED * own.changes

    def reads(self, places: Set[int]) -> tuple[Set[int], ...]:
        return (places | places_in(self.by, len(self.schema)),)

    def find_release_rules(self, constraints: Constraints) -> tuple[ReleaseRule, ...]:
        return find_group_rules(self.input, self.by, constraints)

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        return {place: columns for place, columns in (inputs[0] or {}).items() if place in self.by}

    def operator(self) -> Operator:
        return GroupingRows(self.input, self.by, self.types)


@dataclass(frozen=True, eq=False)
class GroupedDelta(Delta):
    """A delta with its changes brought together by group.

    Attributes:
        emissions: Makes the rows of the group-bys that read it; None for an empty delta.
    """

    emissions: Emissions | None = None


class GroupingRows:
    """Runs `Grouping`: keeps the groups that have rows, and their measures."""

    def __init__(
        self, rows: Node, by: tuple[int | str, ...], types: tuple[pa.DataType, ...]
    ) -> None:
        self._node, self._by, self._types = rows, by, types
        self._keys = KeyNumbers(types)
        #: The keys of each group number, in order. Another grouping has other numbers.
        self._values = RowStore(positional_schema(types))
        self._counts = np.zeros(0, np.int64)
        self._alive = 0
        self._layout = Layout()
        self._measures = Measures(_how_rows_leave(rows))
        #: The groups that constraints released; None as long as no constraint ever held.
        self._releases: GroupReleases | None = None
        self._look_at = _LEAST_GROUPS
        #: The last instant of the last step that had rows.
        self._upto: int = BEGINNING

    def set_release_rules(self, rules: Sequence[ReleaseRule]) -> None:
        if rules and self._releases is None:
            self._releases = GroupReleases(self._node)
        if self._releases is not None:
            self._releases.set_rules(rules)

    def list_release_figures(self) -> list[ReleaseFigures]:
        return [] if self._releases is None else self._releases.list_figures(self._alive)

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        if not len(delta):
            return GroupedDelta(delta.rows, delta.at, delta.until, delta.weight)
        # Not after a step: the step's output refers to the numbers as they are.
        self._compact()
        delta, computed = evaluate_expressions(
            delta, [e for e in self._by if isinstance(e, str)], scalars
        )
        values = iter(computed)
        keys = [delta.rows.column(e) if isinstance(e, int) else next(values) for e in self._by]
        keys = [_normalize_zero(k) for k in keys]
        if self._releases is not None:
            self._recall(keys, self._releases, scalars)
        self._measures.begin(may_begin=self._alive == 0)
        numbers, batch = self._lay_out(delta, keys, scalars)
        if self._releases is not None:
            self._releases.note(numbers, delta.at, batch.groups)
        self._count_rows(batch)
        self._upto = upto
        # Without keys there is one group, and it has a row also when it has no input rows.
        exists = batch.trace(ROWS) > 0 if self._by else np.ones(batch.cells.places, np.bool_)
        emissions = Emissions(batch, keys, exists)
        return GroupedDelta(delta.rows, delta.at, delta.until, delta.weight, emissions)

    def _lay_out(self, delta: Delta, keys: list[pa.Array], scalars: Scalars) -> tuple[Ints, Batch]:
        """Number rows by group, and lay them out for the measures."""
        numbers = self._number(keys, len(delta))
        groups = max(1, len(self._keys))
        cells = self._layout.lay_out(numbers, delta.at, groups)
        return numbers, Batch(delta.rows, delta.weight, cells, groups, self._measures, scalars)

    def _count_rows(self, batch: Batch) -> None:
        cells, trace = batch.cells, batch.trace(ROWS)
        self._counts = grow_array(self._counts, batch.groups)
        after = trace[cells.starts[1:] + np.arange(len(cells.groups))]
        self._alive += int((after > 0).sum()) - int((self._counts[cells.groups] > 0).sum())
        self._counts[cells.groups] = after

    def _recall(self, keys: list[pa.Array], releases: GroupReleases, scalars: Scalars) -> None:
        """Follow the earlier rows of the released groups of which rows come (INV-RELEASE-2)."""
        places = np.flatnonzero(releases.find_gone(keys))
        if not len(places):
            return
        taken = [k.take(pa.array(places)) for k in keys]
        missing = pa.array(np.flatnonzero(self._keys.find(taken) < 0))
        wanted = KeyNumbers(self._types)
        wanted.number([k.take(missing) for k in taken])
        found = []
        for delta in releases.recall(scalars) if len(missing) else ():
            chosen = wanted.find(self._take_keys(delta)) >= 0
            if chosen.any():
                found.append(delta.where(chosen))
        if found:
            delta = Delta.together(found)
            known = len(self._keys)
            _, batch = self._lay_out(delta, self._take_keys(delta), scalars)
            self._count_rows(batch)
            self._measures.follow(batch)
            releases.note_recalled(len(self._keys) - known)

    def _take_keys(self, delta: Delta) -> list[pa.Array]:
        return [_normalize_zero(delta.rows.column(e)) for e in self._by if isinstance(e, int)]

    def absorb(self, other: GroupingRows) -> None:
        """Take over the measures that only another operator of an equal node keeps.

        Both operators have the same groups, but number them differently. Groups that one of them
        released are released.
        """
        self._compact()
        moved = self._find_numbers(other)
        if self._by and self._releases is not None:
            count = len(self._keys)
            alone = grow_array(self._counts, count)[:count] > 0
            alone[moved[moved >= 0]] = False
            if alone.any():
                self._release(alone, self._releases)
                moved = self._find_numbers(other)
        self._measures.absorb(other._measures, moved, max(1, len(self._keys)))

    def size(self) -> int:
        return self._alive

    def bytes(self) -> int:
        """The size of its measures, in bytes."""
        return self._measures.size() + self._counts.nbytes

    def _find_numbers(self, other: GroupingRows) -> Ints:
        """Find the number that each group of another operator has here; -1 for none."""
        if not self._by:
            return np.zeros(1, np.int64)
        return self._keys.find(other._values.everything().columns)

    def _number(self, keys: list[pa.Array], length: int) -> Ints:
        """Number the group of each row."""
        if not keys:
            return np.zeros(length, np.int64)
        known = len(self._keys)
        numbers = self._keys.number(keys)
        new = len(self._keys) - known
        if new:
            # Numbers are given in the order in which keys first appear.
            first = np.zeros(new, np.int64)
            places = np.flatnonzero(numbers >= known)[::-1]
            first[numbers[places] - known] = places
            self._values.add(_batch([k.take(pa.array(first)) for k in keys], self._values.schema))
        return numbers

    def _compact(self) -> None:
        """Forget the groups without rows, when most groups have none; release those that are over.

        The groups are looked through when there are twice as many as after the last look.
        """
        if self._releases is not None and self._alive >= self._look_at:
            count = len(self._keys)
            over = self._releases.find_over(count, self._upto)
            over &= grow_array(self._counts, count)[:count] > 0
            if over.any():
                self._release(over, self._releases)
            self._look_at = max(_LEAST_GROUPS, 2 * self._alive)
        if self._by and self._keys.is_worth_compacting(self._alive):
            self._forget()

    def _release(self, over: Bools, releases: GroupReleases) -> None:
        """Release groups, and forget them."""
        places = np.flatnonzero(over)
        done = releases.put(self._values.pick(places).columns)
        self._counts = grow_array(self._counts, len(over))
        self._counts[places[done]] = 0
        self._alive -= int(done.sum())
        self._forget()

    def _forget(self) -> None:
        """Forget the groups without rows."""
        count = len(self._keys)
        alive = grow_array(self._counts, count)[:count] > 0
        moved = self._keys.compact(alive)
        self._values.keep(alive)
        self._counts = self._counts[: len(alive)][alive]
        self._measures.renumber(moved, max(1, len(self._keys)))
        if self._releases is not None:
            self._releases.renumber(moved, len(self._keys))


def _how_rows_leave(rows: Node) -> Pattern:
    """How rows leave a group, as `Measures` takes it."""
    if rows.edge == MONOTONIC:
        return Pattern.MONOTONIC
    return Pattern.WEAKEST if _leave_as_they_came(rows) else Pattern.STRICT


def _leave_as_they_came(rows: Node) -> bool:
    """Whether all rows leave, each in its turn.

    On a WEAKEST edge there may be rows of a whole stream, which stay (`UNION ALL`), and rows of
    several windows, of which those of one may be brought together before an instant, and not all.
    """
    if rows.edge.pattern != Pattern.WEAKEST:
        return False
    if rows.is_window:
        return True
    moving = [node for node in rows.inputs if node.edge != ATTACHED]
    return len(moving) == 1 and moving[0].edge == rows.edge and _leave_as_they_came(moving[0])


@dataclass(frozen=True, eq=False)
class GroupBy(Node):
    """A row for each group of a grouping: keys and aggregates.

    Attributes:
        input: The grouping.
        shown: The keys that are columns of the answer, by their places among the grouping's keys.
        aggregates: The further columns.
        text: The aggregates as the query wrote them, for EXPLAIN.
    """

    input: Grouping
    shown: tuple[int, ...]
    aggregates: tuple[Aggregate, ...]
    text: str = ""

    takes_expirations = False
    name = "group-by"
    announces = True

    @property
    def schema(self) -> pa.Schema:
        keys = [self.input.types[place] for place in self.shown]
        return positional_schema([*keys, *(a.type for a in self.aggregates)])

    @property
    def edge(self) -> Edge:
        return RULES["group-by"]([self.input.edge])

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.shown, tuple(repr(a) for a in self.aggregates))

    def reads(self, places: Set[int]) -> tuple[Set[int], ...]:
        columns = [column for a in self.aggregates for column in a.columns]
        return (places_in(columns, len(self.input.schema)),)

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        (given,) = inputs
        by = [given.columns[e] if isinstance(e, int) else UNKNOWN for e in self.input.by]
        groups = replace(given, columns=tuple(by)).count_distinct(range(len(by)))
        shown = (*(by[p] for p in self.shown), *(UNKNOWN for _ in self.aggregates))
        arrivals = given.changes
        if by and all(a.is_extreme for a in self.aggregates):
            # A group comes where it was not before; of n values in any order one is the least.
            distinct = max(replace(given, columns=tuple(by)).of(range(len(by))).distinct, 1.0)
            share = len(self.aggregates) * groups / (given.rows + groups) if groups else 1.0
            comes = given.arrivals * math.exp(-given.rows / distinct)
            arrivals = min(arrivals, comes + share * given.changes)
        life = groups / arrivals if arrivals else given.life
        return EdgeEstimate(arrivals, arrivals, life, shown)

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        return REPLACED * own.changes

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        by = [self.input.by[place] for place in self.shown]
        known = inputs[0] or {}
        return {n: known[e] for n, e in enumerate(by) if isinstance(e, int) and e in known}

    def operator(self) -> Operator:
        return GroupingBy(self.shown, self.aggregates, self.schema, bool(self.input.by))


class GroupingBy:
    """Runs `GroupBy`; its grouping keeps the state."""

    def __init__(
        self,
        shown: tuple[int, ...],
        aggregates: tuple[Aggregate, ...],
        schema: pa.Schema,
        has_keys: bool,
    ) -> None:
        self._shown, self._aggregates = shown, aggregates
        self._schema = schema
        self._begun = has_keys

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        assert isinstance(delta, GroupedDelta)
        parts = []
        if not self._begun:
            self._begun = True
            parts.append(self._of_nothing())
        if delta.emissions is not None:
            parts.append(delta.emissions.emit(self._shown, self._aggregates, self._schema))
        return Delta.together(parts) if parts else Delta.empty(self._schema)

    def _of_nothing(self) -> Delta:
        """Make the one row that an aggregate without groups has over no rows."""
        columns = [pa.array([a.of_nothing()], a.type) for a in self._aggregates]
        return Delta.of(_batch(columns, self._schema), np.array([BEGINNING], np.int64))

    def size(self) -> int:
        return 0


def _batch(columns: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    pairs = zip(columns, schema, strict=True)
    fitted = [c if c.type == f.type else c.cast(f.type) for c, f in pairs]
    return pa.RecordBatch.from_arrays(fitted, schema=schema)


def _normalize_zero(column: pa.Array) -> pa.Array:
    """Replace -0.0 by 0.0 in a key: both are one group, whichever came first."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.add(column, pa.scalar(0.0, column.type))
