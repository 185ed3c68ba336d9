"""Which factors of a join SteMs serve: equality, bands and inequalities between two streams each.

The planner says which factors link two streams (`planner/joins.py`); here they become numbers to
look up and bounds to look between. A factor whose types no axis serves is left out: the residual
applies every factor again. Where the served factors do not connect the streams of a join, no SteM
is used, and DuckDB joins its slices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.engine.joins.keys import Axis, axis_of
from millpond.model.duckdb_words import quote_name
from millpond.model.kept_property import kept_property
from millpond.planner.joins import MIRRORED, JoinShape, JoinSide, split_shift

#: The name under which a stream's timestamp is one of its values.
TS = "__ts"


@dataclass(frozen=True, order=True)
class Value:
    """A value of one stream's elements that is compared: a column, or an expression over columns.

    Attributes:
        sql: The expression in DuckDB's SQL, quoted.
        column: The column, if it is one.
        axis: The name of the `Axis` its numbers are on.
    """

    sql: str
    column: str | None
    axis: str

    @property
    def on(self) -> Axis:
        return Axis(self.axis)


@dataclass(frozen=True)
class Operand:
    """A stream's value, and the number added to it before the comparison."""

    leaf: int
    value: Value
    shift: int = 0


@dataclass(frozen=True)
class Link:
    """`left op right` between two streams of a join."""

    left: Operand
    op: str
    right: Operand

    def orient_from(self, leaf: int) -> tuple[Operand, str, Operand]:
        """Return the factor with the operand of stream `leaf` on the left."""
        if self.left.leaf == leaf:
            return self.left, self.op, self.right
        return self.right, MIRRORED[self.op], self.left


@dataclass(frozen=True)
class ArrangementKey:
    """The order of a SteM's runs: sorted by `values`, which are compared by equality, then `order`.

    Queries whose probes need the same key share the SteM, whatever their windows and predicates.
    """

    values: tuple[Value, ...]
    order: Value

    @kept_property
    def text(self) -> str:
        """Spell the key for people; the store keeps runs under this name."""
        parts = [f"{v.sql} ({v.axis})" for v in (*self.values, self.order)]
        return ", ".join(parts[:-1]) + f" | {parts[-1]}"


@dataclass(frozen=True)
class ProbeStep:
    """How composites of some streams probe another stream's SteM.

    Attributes:
        key: The key of the SteM that is probed.
        probes: For each value of the key the operand of the composite it must equal.
        bounds: (op, operand, shift): the SteM's order value is `op` the operand's number + shift.
        filters: Factors that are applied to the pairs the probe found.
    """

    key: ArrangementKey
    probes: tuple[Operand, ...]
    bounds: tuple[tuple[str, Operand, int], ...]
    filters: tuple[Link, ...]


@dataclass(frozen=True)
class JoinPlan:
    """The served factors of a join; streams are numbered in the order of FROM.

    Attributes:
        streams: The streams' names.
        timed_by: Each stream's TIMESTAMP BY column, whose values are its timestamps.
        links: The factors.
    """

    streams: tuple[str, ...]
    timed_by: tuple[str | None, ...]
    links: tuple[Link, ...]

    @kept_property
    def key(self) -> str:
        """Equal for joins of the same streams by the same factors, which have the same pairs."""
        return repr((tuple(s.lower() for s in self.streams), self.links))

    def pack(self) -> bytes:
        """Encode the plan as JSON, as the catalog keeps it."""
        links = [[_operand_values(k.left), k.op, _operand_values(k.right)] for k in self.links]
        return json.dumps([self.streams, self.timed_by, links], separators=(",", ":")).encode()

    @staticmethod
    def unpack(packed: bytes) -> JoinPlan:
        """The inverse of `pack`."""
        streams, timed_by, links = json.loads(packed)
        return JoinPlan(
            tuple(streams),
            tuple(timed_by),
            tuple(Link(_operand_of(*left), op, _operand_of(*right)) for left, op, right in links),
        )

    def stems(self) -> Iterator[tuple[int, ArrangementKey]]:
        """Yield the stream and the key of every SteM that may be probed; some more than once."""
        for leaf in range(len(self.streams)):
            linked = {link.left.leaf for link in self.links if link.right.leaf == leaf}
            linked |= {link.right.leaf for link in self.links if link.left.leaf == leaf}
            for size in range(1, len(linked) + 1):
                for bound in combinations(sorted(linked), size):
                    step = self.step(frozenset(bound), leaf)
                    if step is not None:
                        yield leaf, step.key

    @kept_property
    def _steps(self) -> dict[tuple[frozenset[int], int], ProbeStep | None]:
        return {}

    def step(self, bound: frozenset[int], leaf: int) -> ProbeStep | None:
        """Find how composites of `bound` probe stream `leaf`; None if nothing links them."""
        if (bound, leaf) not in self._steps:
            self._steps[bound, leaf] = self._step(bound, leaf)
        return self._steps[bound, leaf]

    def _step(self, bound: frozenset[int], leaf: int) -> ProbeStep | None:
        links = [
            link
            for link in self.links
            if leaf in (link.left.leaf, link.right.leaf)
            and ({link.left.leaf, link.right.leaf} - {leaf}) <= bound
        ]
        if not links:
            return None
        by_value: dict[Value, Operand] = {}
        filters: list[Link] = []
        for link in links:
            own, op, other = link.orient_from(leaf)
            if op != "=":
                continue
            if own.shift or other.shift or own.value in by_value:
                filters.append(link)
            else:
                by_value[own.value] = other
        ordering = [link for link in links if link.op != "="]
        time = self.time_of(leaf)
        order = time
        if not by_value and ordering:
            candidates = {link.orient_from(leaf)[0].value for link in ordering}
            order = time if time in candidates else min(candidates)
        bounds = []
        for link in ordering:
            own, op, other = link.orient_from(leaf)
            if own.value == order:
                bounds.append((op, other, other.shift - own.shift))
            else:
                filters.append(link)
        values = tuple(sorted(by_value))
        return ProbeStep(
            ArrangementKey(values, order),
            tuple(by_value[v] for v in values),
            tuple(bounds),
            tuple(filters),
        )

    def time_of(self, leaf: int) -> Value:
        """Return the value that is the timestamp of a stream's elements."""
        column = self.timed_by[leaf]
        return Value(TS if column is None else quote_name(column), TS, Axis.TIMESTAMP.value)


def _operand_values(operand: Operand) -> list[int | str | None]:
    value = operand.value
    return [operand.leaf, operand.shift, value.sql, value.column, value.axis]


def _operand_of(leaf: int, shift: int, sql: str, column: str | None, axis: str) -> Operand:
    return Operand(leaf, Value(sql, column, axis), shift)


def plan_join(
    shape: JoinShape,
    literals: Mapping[int, str],
    streams: Sequence[str],
    timed_by: Sequence[str | None],
) -> JoinPlan | None:
    """Plan a join; None if the served factors do not connect its streams.

    Args:
        shape: The factors the planner found.
        literals: The query's constants.
        streams: The names of the query's streams, by leaf.
        timed_by: Their TIMESTAMP BY columns, by leaf.
    """
    number = {leaf: i for i, leaf in enumerate(shape.leaves)}
    links = []
    for factor in shape.factors:
        axis = axis_of(factor.left.type, factor.right.type)
        if axis is None or (factor.op != "=" and not axis.is_ordered):
            continue
        sides = [
            _operand(side, number[side.leaf], literals, axis, timed_by[side.leaf])
            for side in (factor.left, factor.right)
        ]
        links.append(Link(sides[0], factor.op, sides[1]))
    reached = {0}
    while True:
        further = {
            leaf
            for link in links
            for leaf in (link.left.leaf, link.right.leaf)
            if {link.left.leaf, link.right.leaf} & reached
        }
        if further <= reached:
            break
        reached |= further
    if len(reached) < len(shape.leaves):
        return None
    return JoinPlan(
        tuple(streams[leaf] for leaf in shape.leaves),
        tuple(timed_by[leaf] for leaf in shape.leaves),
        tuple(links),
    )


def _operand(
    side: JoinSide, leaf: int, literals: Mapping[int, str], axis: Axis, timed_by: str | None
) -> Operand:
    expression = side.expression(literals).unnest()
    base, shift = expression, 0
    if axis in (Axis.INTEGER, Axis.TIMESTAMP):
        base, shift = split_shift(expression, of_time=axis is Axis.TIMESTAMP)
    if not isinstance(base, exp.Column):
        base, shift = expression, 0
    column = base.name if isinstance(base, exp.Column) else None
    if column is not None and timed_by is not None and column.lower() == timed_by.lower():
        column = TS
    return Operand(leaf, Value(to_duckdb(base), column, axis.value), shift)
