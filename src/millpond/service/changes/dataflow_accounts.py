"""What the operators of the dataflows that run did and released, as workers last told."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from millpond.engine.dataflow.state_limit import OperatorState
from millpond.engine.dataflow.work import OperatorWork, QueueFigures
from millpond.operators.protocol.releasing import ReleaseFigures
from millpond.planner.dataflow.plan import Plan
from millpond.runtime.advance_job import AdvanceJob, AdvanceResult
from millpond.service.changes.noticing.flows import FlowMeter, Flows
from millpond.state.version import Version


class DataflowAccounts:
    """The figures of every dataflow's operators; safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By group: its derivations' ids, and what its jobs told.
        self._groups: dict[str, tuple[frozenset[int], _Told]] = {}

    def note(self, job: AdvanceJob, result: AdvanceResult) -> None:
        """Note what a job told of the dataflow it advanced."""
        if result.failures and not (result.releases or result.state):
            return
        ids = frozenset(sink.stream_id for sink in job.sinks)
        with self._lock:
            # Members of a group that are at several positions are advanced by several jobs.
            others, told = self._groups.get(job.group, (ids, _Told()))
            told.releases = dict(result.releases)
            told.work.update(result.work)
            told.state.update(result.state)
            for key, state in result.state.items():
                if not state.name:
                    del told.state[key]
            told.forget_others({sink.stream_id: sink.plan for sink in job.sinks})
            told.flows.note(job, result)
            told.weight = job.share.weight
            if result.queues.slices:
                told.queues = result.queues
            self._groups[job.group] = (ids | others, told)

    def list_releases(self, version: Version) -> dict[str, list[ReleaseFigures]]:
        """What constraints released in the operators that run, by node key."""
        found: dict[str, list[ReleaseFigures]] = {}
        for _, told in self._list_groups(version):
            for key, figures in told.releases.items():
                found.setdefault(key, []).extend(figures)
        return found

    def take_flows(self, version: Version, least: int) -> list[Flows]:
        """Take what ran in each group since this was last asked, if so many elements came."""
        self._list_groups(version)
        with self._lock:
            return [
                told.flows.take(group, ids)
                for group, (ids, told) in self._groups.items()
                if told.flows.elements >= least and told.flows.span
            ]

    def list_rates(self, version: Version, stream_id: int) -> dict[str, float]:
        """How many changes the operators of a derivation give, a second, by node key."""
        found: dict[str, float] = {}
        for ids, told in self._list_groups(version):
            if stream_id in ids:
                found.update(told.flows.rates)
        return found

    def list_work(self, version: Version, stream_id: int) -> dict[str, OperatorWork]:
        """What the operators did that compute a derivation's changes, by node key."""
        found: dict[str, OperatorWork] = {}
        for ids, told in self._list_groups(version):
            if stream_id in ids:
                found.update(told.work)
        return found

    def list_operators(self, version: Version) -> list[RunningOperator]:
        """List the operators that run, with what they keep and did."""
        return [
            RunningOperator(
                key, told.users.get(key, ids), state, replace(told.work.get(key) or OperatorWork())
            )
            for ids, told in self._list_groups(version)
            for key, state in list(told.state.items())
        ]

    def list_state(self, version: Version, stream_id: int) -> dict[str, OperatorState]:
        """What the operators keep that compute a derivation's changes, by node key."""
        every = self.list_operators(version)
        return {one.key: one.state for one in every if stream_id in one.derivations}

    def list_weighed_state(self, version: Version) -> dict[str, tuple[float, int, int]]:
        """By group, its weight, and the bytes of its state in memory and in files."""
        with self._lock:
            groups = [
                (group, told)
                for group, (ids, told) in self._groups.items()
                if not ids.isdisjoint(version.streams)
            ]
            found = {}
            for group, told in groups:
                kept = list(told.state.values())
                memory, files = sum(one.memory for one in kept), sum(one.files for one in kept)
                found[group] = (told.weight, memory, files)
            return found

    def list_queues(self, version: Version) -> dict[int, QueueFigures]:
        """What waited in the last step that was cut into slices, by derivation."""
        return {
            id: told.queues
            for ids, told in self._list_groups(version)
            if told.queues is not None
            for id in ids
        }

    def _list_groups(self, version: Version) -> list[tuple[frozenset[int], _Told]]:
        """List the groups that have derivations; forget the others."""
        with self._lock:
            for group, (ids, _) in list(self._groups.items()):
                if ids.isdisjoint(version.streams):
                    del self._groups[group]
            return list(self._groups.values())


@dataclass(frozen=True)
class RunningOperator:
    """An operator of a dataflow that runs.

    Attributes:
        key: Its node's key.
        derivations: The ids of the derivations whose plans have it.
        state: What it keeps.
        work: What it did.
    """

    key: str
    derivations: frozenset[int]
    state: OperatorState
    work: OperatorWork


@dataclass
class _Told:
    """What jobs told of a group's dataflow."""

    releases: dict[str, list[ReleaseFigures]] = field(default_factory=dict)
    work: dict[str, OperatorWork] = field(default_factory=dict)
    state: dict[str, OperatorState] = field(default_factory=dict)
    weight: float = 1.0
    queues: QueueFigures | None = None
    flows: FlowMeter = field(default_factory=FlowMeter)
    #: By derivation, its plan.
    plans: dict[int, Plan] = field(default_factory=dict)
    #: By node key, the derivations whose plans have the node.
    users: dict[str, frozenset[int]] = field(default_factory=dict)

    def forget_others(self, plans: Mapping[int, Plan]) -> None:
        """Forget operators that no plan has any more.

        A process that makes a dataflow anew does not know what others ran before.
        """
        if all(self.plans.get(id) is plan for id, plan in plans.items()):
            return
        self.plans.update(plans)
        users: dict[str, set[int]] = {}
        for id, plan in self.plans.items():
            for node in plan.nodes():
                users.setdefault(node.key, set()).add(id)
        self.users = {key: frozenset(ids) for key, ids in users.items()}
        for held in (self.state, self.work):
            for gone in held.keys() - users.keys():
                del held[gone]
        self.flows.begin(self.plans)


def sum_figures(figures: Iterable[ReleaseFigures]) -> ReleaseFigures | None:
    """Add up the figures of one constraint in several operators; None if there are none."""
    total: ReleaseFigures | None = None
    for one in figures:
        if total is None:
            total = one
            continue
        seen = [k for k in (total.observed, one.observed) if k is not None]
        total = ReleaseFigures(
            total.rule,
            max(seen, default=None),
            max(total.violations, one.violations),
            total.held + one.held,
            total.released + one.released,
            total.recalled + one.recalled,
        )
    return total


def describe_releases(figures: Sequence[ReleaseFigures]) -> str:
    """Say of one operator which constraints release its rows, and how many it holds.

    The rows of a side are counted once, whichever of its constraints released them.
    """
    names = dict.fromkeys(f"{f.rule.constraint.name} of {f.rule.stream}" for f in figures)
    sides = {f.rule.side: (f.held, f.released) for f in figures}
    held = sum(h for h, _ in sides.values())
    without = held + sum(r for _, r in sides.values())
    rows = "1 row" if held == 1 else f"{held:,} rows"
    return f"released by {', '.join(names)}: {rows} held, {without:,} without"


def describe_state(state: OperatorState) -> str:
    """Say what an operator keeps.

    >>> describe_state(OperatorState("join", 1000, 250_000, 0))
    'keeps 1,000 rows, 250 KB in memory'
    >>> describe_state(OperatorState("join", 1, 1_000, 12_400))
    'keeps 1 row, 1 KB in memory, 12.4 KB in files'
    """
    rows = "1 row" if state.rows == 1 else f"{state.rows:,} rows"
    text = f"keeps {rows}, {state.memory / 1e3:,.3g} KB in memory"
    return f"{text}, {state.files / 1e3:,.3g} KB in files" if state.files else text


def describe_work(work: OperatorWork) -> str:
    """Say what an operator did since it was made.

    >>> describe_work(OperatorWork(2, 0.0125, 1000, 30))
    'ran 2 times in 12.5 ms, 1,000 rows in, 30 out'
    """
    times = "once" if work.runs == 1 else f"{work.runs:,} times"
    rows = f"{work.taken:,} rows in, {work.given:,} out"
    return f"ran {times} in {work.seconds * 1e3:,.3g} ms, {rows}"
