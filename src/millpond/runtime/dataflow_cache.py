"""The dataflows a worker keeps between jobs.

A worker keeps a group's dataflow for the next job, only to save work. A worker without the dataflow
builds it again from kept segments. A dataflow that is behind, because other workers ran the last
jobs, first reads the segments it has missed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from millpond.engine.dataflow.dataflow import Dataflow
from millpond.engine.dataflow.net_changes import join_changes
from millpond.engine.dataflow.state_limit import Memory
from millpond.engine.dataflow.state_memory import StateSize
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.planner.dataflow.plan import Plan
from millpond.runtime.advance_job import AdvanceJob
from millpond.runtime.segment_inputs import SegmentInputs, read_back
from millpond.state.arrow_file import open_arrow
from millpond.state.relation_log import changes_between, fold, select_at
from millpond.state.scratch_folder import LEAST, SCRATCH, ScratchFolder
from millpond.synopses.mapped_memory import Home

#: How many groups' dataflows a worker keeps (the least recently used goes first), and how many
#: dataflows beyond one of a group whose members are at several positions.
_GROUPS, _APART = 64, 2

#: After so many uses of others of its group, a dataflow is of plans that nobody has any more.
_IDLE = 8

#: A dataflow may take this part of its process's memory, whatever others take.
_LEAST_PART = 8

#: Into how many times as many slices each try cuts what was too much, and at most.
_FINER, _MOST_PARTS = 16, 4_096

#: How often one job tries to begin a plan's changes; the next job goes on.
_STARTS = 8


def take_dataflow(job: AdvanceJob) -> CachedDataflow:
    """Take the group's dataflow at the job's position; make the parts this worker lacks."""
    held = _shelf.take(job)
    memory = _shelf.make_room(job, held)
    plans = {sink.plan.key: sink.plan for sink in job.sinks}
    if held is not None:
        held.flow.limit_memory(memory)
    if held is None or not _bring_up(held, job):
        return _make(job, list(plans.values()), memory)
    held.weight = job.share.weight
    held.is_prepared = False
    flow = held.flow
    for gone in set(flow.sinks) - plans.keys():
        flow.detach(gone)
    missing = {key: plan for key, plan in plans.items() if key not in flow.sinks}
    prepared = _shelf.take(job, missing.keys()) if missing else None
    if prepared is not None and _bring_up(prepared, job):
        for gone in set(prepared.flow.sinks) - missing.keys():
            prepared.flow.detach(gone)
        flow.attach(prepared.flow)
        missing = {key: plan for key, plan in missing.items() if key not in flow.sinks}
    if missing:
        flow.attach(_make(job, list(missing.values()), memory).flow)
    return held


def prepare_dataflow(job: AdvanceJob) -> None:
    """Make the dataflow of plans that are about to run, or bring it up to the job's position.

    It is kept apart from what runs until a job has these plans; then that job goes on with it.
    """
    held = _shelf.take(job, is_prepared=True)
    memory = _shelf.make_room(job, held)
    if held is None or not _bring_up(held, job):
        held = _make(job, [sink.plan for sink in job.sinks], memory)
    held.is_prepared = True
    _shelf.put(job, held)


def put_dataflow(job: AdvanceJob, kept: CachedDataflow) -> None:
    """Keep a dataflow that a job has advanced for the group's next job."""
    _shelf.put(job, kept)


@dataclass(frozen=True)
class LateStart:
    """What became of a plan whose answer could not be computed at the job's position.

    Attributes:
        changes: Its first changes; None as long as there is no instant at which it has an answer.
        upto: The last instant that is done.
    """

    changes: pa.Table | None
    upto: int


def start_late(job: AdvanceJob, plan: Plan, held: CachedDataflow) -> LateStart | MillpondError:
    """Begin a plan's changes with the first instant at which it has an answer.

    No rows count as the answer before that instant (SEMANTICS, section 5).

    Args:
        job: The job.
        plan: The plan, whose answer cannot be computed at the job's position.
        held: The group's dataflow, advanced by the job; it takes the plan over if it began.

    Returns:
        The first changes; or the reason why the answer cannot be computed at a later instant.
    """
    if needs_no_past(plan, job.position):
        return _start_alone(job, plan, held)
    start = max(job.position + 1, BEGINNING)
    for _ in range(_STARTS):
        if start > job.upto:
            return LateStart(None, job.upto)
        flow = Dataflow(plan, since=start, begins_with_nothing=True)
        changes = CachedDataflow(flow, -1).advance(job, job.upto, job.now)
        if plan.key in changes:
            held.flow.attach(flow)
            return LateStart(changes[plan.key], job.upto)
        if plan.key not in flow.undefined_until:
            return flow.failed[plan.key]
        start = flow.undefined_until[plan.key]
    return LateStart(None, start - 1)


def needs_no_past(plan: Plan, at: int) -> bool:
    """Whether no element up to an instant, and no relation, matters to a plan's later changes."""
    reached = plan.reach(at).values()
    return not plan.relations and all(low is not None and low > at for low in reached)


def _start_alone(job: AdvanceJob, plan: Plan, held: CachedDataflow) -> LateStart | MillpondError:
    """Advance a plan to which no element up to the job's position matters.

    In the group's dataflow, other plans have it see older elements. One on which it fails would
    keep it from its changes, or suspend it, though its changes alone never come to that element.
    """
    flow = Dataflow(plan, since=job.position)
    flow.position = job.position
    changes = CachedDataflow(flow, -1).advance(job, job.upto, job.now)
    if plan.key not in changes:
        return flow.failed[plan.key]
    held.flow.attach(flow)
    return LateStart(changes[plan.key], job.upto)


def switch_plans(job: AdvanceJob, before: Plan, after: Plan, changes: pa.Table) -> pa.Table:
    """Begin a plan's changes with the difference to another plan's answer at the job's position.

    Both answers are computed from what is kept: which worker runs the job does not matter.

    Args:
        job: The job.
        before: The plan that made the changes up to the position.
        after: The plan that makes them from there on.
        changes: Its changes after the position.

    Returns:
        The changes, with the difference at the first instant after the position.

    Raises:
        MillpondError: one of the answers cannot be computed.
    """
    if job.position < BEGINNING:
        return changes  # both have no rows yet
    plans = {plan.key: plan for plan in (before, after)}
    flow = Dataflow(*plans.values(), since=job.position, begins_with_nothing=True)
    flow.constrain(job.constraints)
    answers = CachedDataflow(flow, -1).advance(job, job.position, job.epoch)
    for failure in flow.failed.values():
        raise failure
    return join_changes(answers[before.key], answers[after.key], changes, job.position + 1)


class CachedDataflow:
    """A dataflow between two jobs.

    Attributes:
        flow: The dataflow.
        epoch: The epoch as of which it has read its relations.
        weight: The weight of its weightiest query.
        is_prepared: Whether its plans are about to run, and do not yet.
        idle: How many dataflows of its group were used since it was.
    """

    def __init__(self, flow: Dataflow, epoch: int, weight: float = 1.0) -> None:
        self.flow = flow
        self.epoch = epoch
        self.weight = weight
        self.is_prepared = False
        self.idle = 0

    def advance(
        self, job: AdvanceJob, upto: int, epoch: int, parts: int = 1
    ) -> dict[str, pa.Table]:
        """Advance the dataflow to `upto`, with its relations read as of an epoch.

        Args:
            job: Has the segments.
            upto: The instant.
            epoch: The epoch.
            parts: By what the slices of the step are smaller than they may be.
        """
        flow = self.flow
        after = flow.position
        updates = {
            name: _updates(job, name, columns, (after, self.epoch), (upto, epoch))
            for name, columns in flow.relations.items()
        }
        needs = flow.needs
        inputs = SegmentInputs(job, needs, updates, after, upto)
        self.epoch = epoch
        memory = max(1, job.scheduling.memory // parts)
        flow.schedule(replace(job.scheduling, memory=memory))
        return flow.advance(inputs, upto, partial(read_back, job, needs))


class _DataflowCache:
    """The dataflows of this process. A job takes one out and puts it back when it is done.

    If the members of a group are at several positions, there are several dataflows; dataflows that
    reach one position become one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str, str], list[CachedDataflow]] = OrderedDict()

    def take(
        self, job: AdvanceJob, wanted: Set[str] | None = None, *, is_prepared: bool = False
    ) -> CachedDataflow | None:
        """Take a dataflow that has some of the job's plans and is not past the job's position.

        Args:
            job: The job.
            wanted: The keys of these plans; None: of all the job's plans.
            is_prepared: Whether to take none that runs.
        """
        if wanted is None:
            wanted = {sink.plan.key for sink in job.sinks}
        with self._lock:
            flows = self._kept.get((job.store, job.life, job.group), [])
            usable = [
                kept
                for kept in flows
                if kept.flow.position <= job.position
                and not wanted.isdisjoint(kept.flow.sinks)
                and kept.is_prepared >= is_prepared
            ]
            if not usable:
                return None
            found = max(usable, key=lambda kept: kept.flow.position)
            flows.remove(found)
            return found

    def put(self, job: AdvanceJob, kept: CachedDataflow) -> None:
        name = (job.store, job.life, job.group)
        with self._lock:
            apart = []
            for other in self._kept.pop(name, []):
                same_position = other.flow.position == kept.flow.position
                # What is prepared for plans that run later is no part of what runs now.
                same_position &= other.is_prepared is kept.is_prepared
                other.idle += 1
                if other.idle > _IDLE:
                    continue
                if same_position and _same_relations(job, other.epoch, kept.epoch):
                    kept.flow.attach(other.flow)
                elif not set(other.flow.sinks) <= set(kept.flow.sinks):
                    apart.append(other)
            kept.idle = 0
            self._kept[name] = [*apart[-_APART:], kept]
            while len(self._kept) > _GROUPS:
                self._kept.popitem(last=False)
            if job.share.limit is not None:
                excess = self._measure() - job.share.limit
                self._squeeze(self._list_kept(), excess, make_home(job))

    def make_room(self, job: AdvanceJob, held: CachedDataflow | None) -> Memory | None:
        """Find how much memory a job's dataflow may take; lighter dataflows give way first.

        Args:
            job: The job.
            held: Its dataflow as it was taken out, if there is one.
        """
        limit = job.share.limit
        if limit is None:
            return None
        home = make_home(job)
        with self._lock:
            size = StateSize() if held is None else held.flow.size
            lighter = [kept for kept in self._list_kept() if kept.weight < job.share.weight]
            excess = size.memory + size.files + self._measure() - limit
            self._squeeze(lighter, excess, home)
            return Memory(max(limit - self._measure(), limit // _LEAST_PART), home, job.share.own)

    def _list_kept(self) -> list[CachedDataflow]:
        """List all dataflows, lighter ones first, then those that were used long ago."""
        every = [kept for flows in self._kept.values() for kept in flows]
        return sorted(every, key=lambda kept: kept.weight)

    def _measure(self) -> int:
        """The bytes of memory that the state of all dataflows takes."""
        return sum(kept.flow.size.memory for kept in self._list_kept())

    def _squeeze(self, given: Sequence[CachedDataflow], excess: int, home: Home) -> None:
        """Move state of dataflows into files until so many bytes of memory are free."""
        for kept in given:
            if excess <= 0:
                return
            before = kept.flow.size.memory
            kept.flow.squeeze(Memory(max(0, before - excess), home))
            excess -= before - kept.flow.size.memory


_shelf = _DataflowCache()


def make_home(job: AdvanceJob) -> Home:
    """Make the home of a job's state, of which little things stay in memory."""
    assert job.share.limit is not None
    directory = Path(job.store) / SCRATCH
    return ScratchFolder(directory, min(LEAST, job.share.limit // _LEAST_PART))


def _bring_up(held: CachedDataflow, job: AdvanceJob) -> bool:
    """Bring a dataflow that is behind to the job's position; return whether that was possible.

    The changes it gives on the way are discarded: other workers have written them.
    """
    flow = held.flow
    if flow.position == job.position and _same_relations(job, held.epoch, job.epoch):
        held.epoch = job.epoch
        return True
    if flow.position >= job.position or held.epoch > job.epoch:
        return False
    if any(low is not None and low > flow.position + 1 for low in job.since.values()):
        return False
    held.advance(job, job.position, job.epoch)
    return True


def _same_relations(job: AdvanceJob, one: int, other: int) -> bool:
    """Whether a job's relations are the same as of two epochs."""
    low, high = sorted((one, other))
    files = (file for relation in job.relations.values() for file in relation.files)
    return not any(low < file.epoch <= high for file in files)


def _make(
    job: AdvanceJob, plans: Sequence[Plan], memory: Memory | None, parts: int = 1
) -> CachedDataflow:
    """Make a dataflow at the job's position, fed with everything that still matters there.

    What was done in many steps while elements came may be too much for one. Plans with an operator
    that does more than it may (POND-405) are fed in smaller slices, `parts` times as many or more.
    """
    made = CachedDataflow(Dataflow(*plans, since=job.position), -1, job.share.weight)
    made.flow.limit_memory(memory)
    made.flow.constrain(job.constraints)
    if job.position > made.flow.position:
        made.advance(job, job.position, job.epoch, parts)
    failed = made.flow.failed
    heavy = [p for p in plans if p.key in failed and failed[p.key].code == "POND-405"]
    if heavy and parts < _MOST_PARTS:
        made.flow.attach(_make(job, heavy, memory, parts * _FINER).flow)
    return made


def _updates(
    job: AdvanceJob,
    relation: str,
    columns: Sequence[str],
    known: tuple[int, int],
    wanted: tuple[int, int],
) -> pa.Table:
    """Compute a relation's changes from one (instant, epoch) to another.

    The epoch -1 stands for an empty relation.
    """
    source = job.relations[relation]

    def as_of(epoch: int) -> pa.Table:
        files = [f for f in source.files if f.epoch <= epoch]
        tables = [open_arrow(Path(job.store) / f.path, f.checksum) for f in files]
        return fold(tables, source.columns)

    after, before = known
    upto, now = wanted
    current = as_of(now)
    held = select_at(current if before == now else as_of(before), after)
    return changes_between(held, current, after, upto, columns)
