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

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import cast

import pyarrow as pa

from millpond.engine.dataflow.arrangement import Arrangement, Unstartable
from millpond.engine.dataflow.inputs import GivenInputs, StepInputs
from millpond.engine.dataflow.state_limit import Memory, OperatorState, StateLimit
from millpond.engine.dataflow.state_memory import StateSize
from millpond.engine.dataflow.step import CannotCut, Goals, History, Scheduling, Step
from millpond.engine.dataflow.work import OperatorWork, QueueFigures
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.operators.protocol.node import Operator, Purger, Releaser
from millpond.operators.protocol.releasing import Constraints, ReleaseFigures
from millpond.planner.dataflow.plan import Plan, find_purge_intervals


class Dataflow:
    """One or more plans at work, all at the same position.

    Attributes:
        position: The instant up to which changes were given.
        failed: Sinks whose plans failed, with the reason; they give no more changes.
        undefined_until: Of the sinks whose answer cannot be computed at `since`: the first instant
            at which the node that failed can be computed, as far as that is known.
        queues: What waited in the queues of the last step.
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
        self.queues = QueueFigures()
        self._begins_with_nothing = begins_with_nothing
        self._plans: dict[str, Plan] = {}
        self._since: dict[str, int] = {}
        #: By plan, the lazy expiration intervals set by `purge`.
        self._intervals: dict[str, frozenset[int | None]] = {}
        #: By stream, the constraints by which operators release rows.
        self._constraints: Constraints = {}
        self._scheduling = Scheduling()
        self._limit = StateLimit()
        #: By node key, how many rows its operator had taken when `list_work` was called.
        self._listed: dict[str, int] = {}
        self._flow = Arrangement({})
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
        return {key: operator.size() for key, operator in self._flow.operators.items()}

    def list_work(self, *, every: bool = False) -> dict[str, OperatorWork]:
        """List what operators did, by node key: all, or who took rows since the last time.

        What a store of several nodes takes counts to one of them.
        """
        found = {}
        stores = self._flow.stores
        for key, work in self._flow.work.items():
            if every or self._listed.get(key, 0) != work.taken:
                self._listed[key] = work.taken
                kept = self._flow.work[stores[key]].seconds if key in stores else 0.0
                found[key] = replace(work, seconds=work.seconds + kept)
        return {key: work for key, work in found.items() if key not in self._flow.added}

    def count_given(self) -> dict[str, int]:
        """Count the rows that operators put out since they were made, by node key."""
        added = self._flow.added
        return {key: work.given for key, work in self._flow.work.items() if key not in added}

    def list_state(self, *, every: bool = False) -> dict[str, OperatorState]:
        """List what operators keep: all, or those of which it changed since the last time."""
        return self._limit.list_state(self._flow, every=every)

    def operator(self, key: str) -> Operator:
        """Return the operator of the node with this key."""
        return self._flow.operators[key]

    def advance(
        self,
        feeds: Mapping[str, pa.Table] | StepInputs,
        upto: int,
        history: History | None = None,
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
        inputs = GivenInputs(feeds) if isinstance(feeds, Mapping) else feeds
        goals = Goals(
            self._plans,
            self._since,
            self._begins_with_nothing,
            self.position,
            upto,
            self._constraints,
        )
        return self._run(goals, inputs, history)

    def move_answers(self, inputs: StepInputs, upto: int) -> dict[str, pa.Table]:
        """Compute the differences between the plans' answers at `position` and at `upto`.

        What lies between the two instants is seen by nobody, so operators need not compute it. The
        first call gives whole answers. The input may have rows of `position` that came since: a
        step begins with the instant with which the step before has ended.

        Args:
            inputs: What came since the last call; each row once, in the order of its instant.
            upto: The instant, `position` or later.

        Returns:
            By plan, the rows that left and came, as they did, with `__at` = `upto`. Equal rows may
            come and leave.
        """
        after = self.position - 1 if self.position >= BEGINNING else self.position
        since = dict.fromkeys(self._plans, upto)
        goals = Goals(self._plans, since, True, after, upto, self._constraints, nets=False)
        return self._run(goals, inputs, None)

    def _run(
        self, goals: Goals, inputs: StepInputs, history: History | None
    ) -> dict[str, pa.Table]:
        """Run a step; drop the plans that failed."""
        upto = goals.upto
        try:
            step = Step(self._flow, goals, inputs, history, self._scheduling, self._limit)
            step.run()
        except CannotCut:
            for node in self._flow.nodes:
                self._flow.operators[node.key] = self._flow.start(node, self._constraints)
            self._tell_purging()
            args = (self._flow, goals, inputs, history, self._scheduling, self._limit)
            step = Step(*args, is_cut=False)
            step.run()
        self.queues = step.queues
        self.position = upto
        self.failed.update(step.failed)
        self.undefined_until.update(step.undefined_until)
        changes = {
            key: tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()
            for key, tables in step.changes.items()
            if key not in step.failed
        }
        for key in step.failed:
            self._forget(key)
        if step.failed:
            self._arrange()
        self._limit.settle(self._flow)
        return changes

    def schedule(self, scheduling: Scheduling) -> None:
        """Set how operators take turns from the next step on."""
        self._scheduling = scheduling

    def limit_memory(self, memory: Memory | None) -> None:
        """Set how much memory the operators' state may take from now on; None: any."""
        self._limit.memory = memory

    def squeeze(self, memory: Memory) -> None:
        """Keep to a limit of memory now, and from now on; `advance` does the latter by itself."""
        self._limit.memory = memory
        self._limit.settle(self._flow)

    @property
    def size(self) -> StateSize:
        """How much memory, and how much of files, the operators' state takes, about."""
        return self._limit.total()

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
            by_node = {node.key: intervals for node in self._flow.nodes if node.purges}
        else:
            by_node = find_purge_intervals(
                (self._plans[key], some) for key, some in by_plan.items()
            )
            by_node = self._flow.purge_stores(by_node)
        for node_key, some in by_node.items():
            operator = self._flow.operators[node_key]
            if not isinstance(operator, Unstartable):
                cast(Purger, operator).purging.set_intervals(some)

    def constrain(self, constraints: Constraints) -> None:
        """Set the constraints of streams by which operators release rows from now on.

        Args:
            constraints: By the name of each stream that has some, its constraints.
        """
        given = {name: tuple(some) for name, some in constraints.items() if some}
        if given != self._constraints:
            self._constraints = given
            for node in self._flow.nodes:
                self._flow.tell(node, self._flow.operators[node.key], self._constraints)

    def list_release_figures(self) -> dict[str, list[ReleaseFigures]]:
        """List what constraints released, by node key."""
        found = {
            key: operator.list_release_figures()
            for key, operator in self._flow.operators.items()
            if isinstance(operator, Releaser)
        }
        for key, store in self._flow.stores.items():
            if store in found:
                found[key] = found.pop(store)
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
        other._flow.take_back(other._flow.operators)
        self._flow.take_back(other._flow.operators)
        for key, operator in other._flow.operators.items():
            kept = self._flow.operators.get(key, operator)
            if kept is not operator and hasattr(kept, "absorb"):
                kept.absorb(operator)
        self._arrange(other._flow)

    def detach(self, sink: str) -> None:
        """Drop a plan, and the nodes no other plan reads."""
        self._forget(sink)
        self._arrange()
        self._limit.forget(self._flow)

    def _forget(self, sink: str) -> None:
        del self._plans[sink]
        del self._since[sink]

    def _arrange(self, *others: Arrangement) -> None:
        """Order the nodes of the current plans; make the operators that others do not have."""
        self._flow = Arrangement(self._plans, self._flow, *others)
        for node in self._flow.nodes:
            self._flow.tell(node, self._flow.operators[node.key], self._constraints)
        self._tell_purging()
        self._limit.measure(self._flow, self._flow.handed)


def _unite(parts: list[dict[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for part in parts:
        for name, columns in part.items():
            found.setdefault(name, {}).update(dict.fromkeys(columns))
    return {name: tuple(columns) for name, columns in found.items()}
