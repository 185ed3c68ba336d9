"""Runs plans: the operators of several queries, shared where they are equal, advanced together.

A dataflow is pure: feeds in, changes out. The state inside can be thrown away and rebuilt by
feeding the same rows again from `Plan.reach` on. Nothing in a dataflow reads a clock or a file.

A failure, whatever was raised, belongs to one node: the plans that have the node fail, the other
plans go on.

A plan's changes after `since` need the answer at `since`. If it cannot be computed there, the plan
fails, and `undefined_until` says from which instant on it may be tried again, with no rows as the
answer before (SEMANTICS, section 5).

INV-FLOW-1: the changes of several `advance` steps, put together, are the changes of one step over
the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa

from millpond.engine.dataflow.first_instant import (
    find_first_instant,
    is_of_the_rows,
    restrict,
)
from millpond.engine.dataflow.net_changes import net_changes
from millpond.engine.dataflow.scalars import DuckDBScalars
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.operators.group_by import Grouping
from millpond.operators.protocol.delta import Delta, with_nulls
from millpond.operators.protocol.node import (
    Node,
    Operator,
    Purger,
    Releaser,
    Scalars,
    Stateless,
)
from millpond.operators.protocol.releasing import Constraints, ReleaseFigures
from millpond.operators.source import TIMESTAMP
from millpond.planner.dataflow.plan import (
    Plan,
    find_needed_columns,
    find_purge_intervals,
    list_in_order,
)


class Dataflow:
    """One or more plans at work, all at the same position.

    Attributes:
        position: The instant up to which changes were given.
        failed: Sinks whose plans failed, with the reason; they give no more changes.
        undefined_until: Of the sinks whose answer cannot be computed at `since`: the first instant
            at which the node that failed can be computed, as far as that is known.
    """

    def __init__(
        self, *plans: Plan, since: int = BEGINNING, begins_with_nothing: bool = False
    ) -> None:
        """Start a dataflow at the beginning of time that gives changes after `since` only.

        Feed it everything from `plan.reach(since)` on; changes up to `since` are not given out.

        Args:
            plans: The plans.
            since: The instant.
            begins_with_nothing: Whether no rows count as the answers before `since`; then all rows
                of the answers at `since` are given as changes of that instant.
        """
        self.position = BEGINNING - 1
        self.failed: dict[str, MillpondError] = {}
        self.undefined_until: dict[str, int] = {}
        self._begins_with_nothing = begins_with_nothing
        self._plans: dict[str, Plan] = {}
        self._since: dict[str, int] = {}
        #: By plan, the lazy expiration intervals set by `purge`.
        self._intervals: dict[str, frozenset[int | None]] = {}
        self._nodes: list[Node] = []
        #: By node, the places of its columns that other nodes read.
        self._reads: dict[str, Set[int]] = {}
        #: By stream, the constraints by which operators release rows.
        self._constraints: Constraints = {}
        #: Nodes below a node that asks when rows came: their rows must keep the instant they came.
        self._timed: set[str] = set()
        self._operators: dict[str, Operator] = {}
        for plan in plans:
            self._plans[plan.key] = plan
            self._since[plan.key] = since
        self._arrange()

    @property
    def sinks(self) -> tuple[str, ...]:
        """The keys of the dataflow's plans."""
        return tuple(self._plans)

    @property
    def needs(self) -> dict[str, tuple[str, ...]]:
        """The columns each stream must be fed with: `Plan.needs` of all plans."""
        return _unite([plan.needs for plan in self._plans.values()])

    @property
    def relations(self) -> dict[str, tuple[str, ...]]:
        """The columns each relation must be fed with: `Plan.relations` of all plans."""
        return _unite([plan.relations for plan in self._plans.values()])

    def sizes(self) -> dict[str, int]:
        """Count the rows of state, by node key."""
        return {key: operator.size() for key, operator in self._operators.items()}

    def operator(self, key: str) -> Operator:
        """Return the operator of the node with this key."""
        return self._operators[key]

    def advance(
        self,
        feeds: Mapping[str, pa.Table],
        upto: int,
        history: Callable[[str, int], Iterable[pa.Table]] | None = None,
    ) -> dict[str, pa.Table]:
        """Compute every plan's net changes after `position`, up to `upto`, in canonical order.

        Args:
            feeds: By stream, the elements with position < `__ts` ≤ upto in the order of (`__ts`,
                `__seq`), with the columns of `needs`; by relation, its changes (`__at`, `__sign`)
                in the same instants. A stream or relation without changes may be left out.
            upto: The instant; below every heartbeat, so that no more elements come before it.
            history: Reads back, by a stream's name and an instant, the elements up to the instant
                that matter after it, as `feeds` has them, in any number of tables; needed if there
                are constraints.
        """
        recall = None if history is None else partial(self._recall, history)
        scalars = DuckDBScalars(recall)
        since = min(self._since.values(), default=BEGINNING - 1)
        first = max(since, BEGINNING)
        deltas: dict[str, Delta] = {}
        broken: dict[str, MillpondError] = {}
        undefined: dict[str, int] = {}
        for node in self._nodes:
            is_replayed = self.position < first and node.key not in self._timed
            scalars.since = since if is_replayed else BEGINNING - 1
            try:
                inputs = self._read_inputs(node, deltas, broken, feeds)
            except Exception as error:
                broken[node.key] = to_millpond_error(error)
                continue
            if is_replayed and self.position < since and isinstance(node, Grouping):
                # Its readers evaluate arguments of aggregates on all the rows that it takes in.
                inputs = restrict(inputs, since)
            found = self._try(node, inputs, upto, scalars)
            can_retry = is_replayed and self.position < BEGINNING
            if isinstance(found, MillpondError) and can_retry and is_of_the_rows(found):
                # Rows that only hold before `since` may have failed: try without, from the start.
                inputs = restrict(inputs, since)
                self._operators[node.key] = self._start(node)
                found = self._try(node, inputs, upto, scalars)
                if isinstance(found, MillpondError) and found.code == "POND-404":
                    # A user's function may fail now and not the next time: it is tried again.
                    undefined[node.key] = find_first_instant(
                        node, inputs, first, upto, scalars, self._start
                    )
            if isinstance(found, MillpondError):
                broken[node.key] = found
            else:
                deltas[node.key] = found
        changes = {}
        for key, plan in list(self._plans.items()):
            if plan.root.key in broken:
                self.failed[key] = broken[plan.root.key]
                until = max(undefined.get(n.key, first) for n in plan.nodes())
                if until > first:
                    self.undefined_until[key] = until
                continue
            delta = deltas[plan.root.key]
            if self.position < self._since[key]:
                delta = self._give_since(delta, plan, self._since[key])
            try:
                changes[key] = net_changes(delta, plan.schema, plan.to_stream)
            except Exception as error:
                self.failed[key] = to_millpond_error(error)
        self.position = upto
        for key in self.failed:
            if key in self._plans:
                self._forget(key)
        if self.failed:
            self._arrange()
        return changes

    def _give_since(self, delta: Delta, plan: Plan, since: int) -> Delta:
        """Restrict what a plan's root gave to what the plan's readers are given."""
        if not self._begins_with_nothing:
            return delta.where(delta.at > since)
        if plan.to_stream == "rstream":  # the rows of one instant are not those of the next
            return delta.where(delta.at >= since)
        return delta.since(since)

    def _try(
        self, node: Node, inputs: list[Delta], upto: int, scalars: Scalars
    ) -> Delta | MillpondError:
        """Advance a node's operator; a failure, whatever was raised, is returned as an error."""
        try:
            return self._operators[node.key].advance(inputs, upto, scalars)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return to_millpond_error(error)

    def _start(self, node: Node) -> Operator:
        operator = _start_operator(node)
        if node.is_stateless:
            cast(Stateless, operator).needed = self._reads[node.key]
        self._tell_constraints(node, operator)
        return operator

    def _recall(
        self, history: Callable[[str, int], Iterable[pa.Table]], node: Node
    ) -> Iterator[Delta]:
        """Compute again what a node gave up to the position, from the kept elements."""
        chain = list(list_in_order([node]))
        source = chain[0]
        assert source.feed is not None
        for table in history(source.feed[1], self.position):
            delta = _read_feed(source, {source.feed[1]: table}, self._reads[source.key])
            scalars = DuckDBScalars()
            for step in chain[1:]:
                delta = self._start(step).advance([delta], self.position, scalars)
            yield delta

    def _read_inputs(
        self,
        node: Node,
        deltas: dict[str, Delta],
        broken: dict[str, MillpondError],
        feeds: Mapping[str, pa.Table],
    ) -> list[Delta]:
        if node.feed is not None:
            return [_read_feed(node, feeds, self._reads[node.key])]
        for below in node.inputs:
            if below.key in broken:
                raise broken[below.key]
        return [deltas[below.key] for below in node.inputs]

    def purge(self, intervals: Mapping[str, Collection[int | None]]) -> None:
        """Set how often expired state is dropped, for each plan
        (`operators/protocol/purging.py`).

        Args:
            intervals: By plan key, the lazy expiration intervals of the queries that have the
                plan. A plan that is left out uses its own interval.
        """
        by_plan = {key: frozenset(some) for key, some in intervals.items()}
        if by_plan != self._intervals:
            self._intervals = by_plan
            self._tell_purging()

    def _tell_purging(self) -> None:
        by_plan = {
            key: self._intervals.get(key, frozenset((plan.lazy_expiration,)))
            for key, plan in self._plans.items()
        }
        if len(agreed := set(by_plan.values())) == 1:
            (intervals,) = agreed
            by_node: Mapping[str, Collection[int | None]]
            by_node = {node.key: intervals for node in self._nodes if node.purges}
        else:
            by_node = find_purge_intervals(
                (self._plans[key], some) for key, some in by_plan.items()
            )
        for node_key, some in by_node.items():
            operator = self._operators[node_key]
            if not isinstance(operator, _Unstartable):
                cast(Purger, operator).purging.set_intervals(some)

    def constrain(self, constraints: Constraints) -> None:
        """Set the constraints of streams by which operators release rows from now on.

        Args:
            constraints: By the name of each stream that has some, its constraints.
        """
        given = {name: tuple(some) for name, some in constraints.items() if some}
        if given != self._constraints:
            self._constraints = given
            for node in self._nodes:
                self._tell_constraints(node, self._operators[node.key])

    def _tell_constraints(self, node: Node, operator: Operator) -> None:
        if isinstance(operator, Releaser):
            operator.set_release_rules(node.find_release_rules(self._constraints))

    def list_release_figures(self) -> dict[str, list[ReleaseFigures]]:
        """List what constraints released, by node key."""
        found = {
            key: operator.list_release_figures()
            for key, operator in self._operators.items()
            if isinstance(operator, Releaser)
        }
        return {key: figures for key, figures in found.items() if figures}

    def attach(self, other: Dataflow) -> None:
        """Take over another dataflow's plans; of nodes that both have, keep this one's.

        Raises:
            ValueError: the other is at another position.
        """
        if other.position != self.position:
            raise ValueError(f"flows at {self.position} and {other.position}")
        for key in other._plans:
            self.failed.pop(key, None)
            self.undefined_until.pop(key, None)
        self.failed.update({k: e for k, e in other.failed.items() if k not in self._plans})
        self.undefined_until.update(other.undefined_until)
        for key, plan in other._plans.items():
            self._plans.setdefault(key, plan)
            self._since.setdefault(key, other._since[key])
        for key, operator in other._operators.items():
            kept = self._operators.setdefault(key, operator)
            if kept is not operator and hasattr(kept, "absorb"):
                kept.absorb(operator)
        self._arrange()

    def detach(self, sink: str) -> None:
        """Drop a plan, and the nodes no other plan reads."""
        self._forget(sink)
        self._arrange()

    def _forget(self, sink: str) -> None:
        del self._plans[sink]
        del self._since[sink]

    def _arrange(self) -> None:
        """Order the nodes of the current plans; make the operators that are missing."""
        roots = [plan.root for plan in self._plans.values()]
        self._nodes, self._reads = list(list_in_order(roots)), find_needed_columns(roots)
        held = self._operators
        self._operators = {n.key: held.get(n.key) or _start_operator(n) for n in self._nodes}
        for node in self._nodes:
            if node.is_stateless:
                cast(Stateless, self._operators[node.key]).needed = self._reads[node.key]
            self._tell_constraints(node, self._operators[node.key])
        self._timed = _find_timed(self._nodes)
        self._tell_purging()


def _find_timed(nodes: Sequence[Node]) -> set[str]:
    """Find the nodes below an input of a node that asks when its rows came.

    The nodes are given in order, inputs first.
    """
    found: set[str] = set()
    for node in reversed(nodes):
        timed = node.inputs if node.is_window or node.key in found else node.timed_inputs
        found.update(below.key for below in timed)
    return found


def to_millpond_error(error: BaseException) -> MillpondError:
    """Turn any exception into an error that can be shown to the owner of a query."""
    if isinstance(error, MillpondError):
        return error
    message = str(error).split("\n", 1)[0][:300]
    if isinstance(error, pa.ArrowException):
        return MillpondError("POND-404", "the query could not be evaluated", detail=message)
    what = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return MillpondError("INTERNAL-901", "the changes could not be computed", detail=what)


class _Unstartable:
    """Stands for an operator that could not be made; each of its steps fails with the reason."""

    def __init__(self, error: BaseException) -> None:
        self._error = to_millpond_error(error)

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        raise self._error

    def size(self) -> int:
        return 0


def _start_operator(node: Node) -> Operator:
    try:
        return node.operator()
    except Exception as error:
        return _Unstartable(error)


def _read_feed(node: Node, feeds: Mapping[str, pa.Table], places: Set[int]) -> Delta:
    """Read a source's feed, with the columns at some places."""
    assert node.feed is not None
    kind, name, columns = node.feed
    table = feeds.get(name)
    if table is None or not table.num_rows:
        return Delta.empty(node.schema)
    table = table.combine_chunks()
    at = _ints(table, TIMESTAMP if kind == "stream" else "__at")
    given, schema = {}, node.schema
    for place in places:
        chunk, type_ = table.column(columns[place]).chunk(0), schema.field(place).type
        given[place] = chunk if chunk.type == type_ else chunk.cast(type_)
    rows = with_nulls(given, schema, table.num_rows)
    if kind == "stream":
        return Delta.of(rows, at)
    return Delta.of(rows, at, None, _ints(table, "__sign")).in_order()


def _ints(table: pa.Table, column: str) -> np.ndarray:
    values = table.column(column).chunk(0).cast(pa.int64())
    return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)


def _unite(parts: list[dict[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for part in parts:
        for name, columns in part.items():
            found.setdefault(name, {}).update(dict.fromkeys(columns))
    return {name: tuple(columns) for name, columns in found.items()}
