"""Which groups of derivations are advanced in shards: those that keep one worker busy for long.

A group's dataflow runs in one worker. Where its steps take long while other workers have nothing to
do, and its plans can be divided by a key (`planner/dataflow/sharding.py`), each worker gets a share
of the keys. Workers have to make their shards' state anew from what is kept, so a group is divided
when two steps in succession were long, and made whole when many in succession were short.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from millpond.planner.dataflow.sharding import find_sharding
from millpond.runtime.advance_job import AdvanceJob, AdvanceResult
from millpond.runtime.shards.advance_shard import cut

#: Putting a change of shards together takes so many seconds of one worker, about: that much of a
#: step cannot be shared out.
_PUT_TOGETHER = 0.7e-6
#: The seconds of a long step, and how many make a group divided; those of a short one of a divided
#: group, and how many make it whole.
_LONG, _LONG_STEPS = 0.25, 2
_SHORT, _SHORT_STEPS = 0.1, 64
#: The most shards. Each reads all new elements, and keeps its own.
_MOST = 32
#: So many groups are remembered.
_GROUPS = 4_096


@dataclass
class _Group:
    """A group as it ran last.

    Attributes:
        plans: The keys of its plans.
        columns: By what they can be divided; None: not, or nobody has looked.
        number: How many shards it has.
        run: How many steps in succession were long, or if it is divided, short.
        looked: Whether somebody has looked for a division.
    """

    plans: frozenset[str]
    columns: Mapping[str, str] | None = None
    number: int = 1
    run: int = 0
    looked: bool = False


class ShardedGroups:
    """The groups that run, and how many shards each has; safe to use from any thread.

    Attributes:
        always: Set by tests: into how many shards to cut every job that can be cut.
    """

    def __init__(self, workers: Callable[[], int]) -> None:
        """Know no group yet.

        Args:
            workers: How many processes run tasks.
        """
        self._workers = workers
        self._lock = threading.Lock()
        self._groups: OrderedDict[str, _Group] = OrderedDict()
        self.always: int | None = None

    def cut(self, jobs: Sequence[AdvanceJob]) -> list[list[AdvanceJob]]:
        """Cut each job into the shards of its group; one that is not divided stays as it is."""
        with self._lock:
            return [self._cut(job) for job in jobs]

    def _cut(self, job: AdvanceJob) -> list[AdvanceJob]:
        group = self._find(job)
        if self.always is not None and self._can_divide(job, group):
            group.number = self.always
        if group.number > 1 and group.columns is not None:
            return cut(job, group.columns, group.number)
        return [job]

    def note(self, job: AdvanceJob, result: AdvanceResult, jobs: int) -> None:
        """Note how a job went that was one of so many in its round."""
        changes = sum(segment.file.rows for segment in result.built)
        seconds = result.seconds - _PUT_TOGETHER * changes
        with self._lock:
            group = self._find(job)
            if result.is_whole:
                group.number, group.columns, group.looked = 1, None, True
            elif group.number > 1:
                group.run = group.run + 1 if seconds < _SHORT else 0
                if group.run >= _SHORT_STEPS:
                    group.number, group.run = 1, 0
            else:
                group.run = group.run + 1 if seconds >= _LONG else 0
                if group.run >= _LONG_STEPS:
                    group.run = 0
                    workers = self._workers()
                    if jobs < workers and self._can_divide(job, group):
                        group.number = min(workers, _MOST)

    def count(self) -> int:
        """How many groups are divided."""
        with self._lock:
            return sum(group.number > 1 for group in self._groups.values())

    def _find(self, job: AdvanceJob) -> _Group:
        plans = frozenset(sink.plan.key for sink in job.sinks)
        group = self._groups.pop(job.group, None)
        if group is None or group.plans != plans:
            before = 1 if group is None else group.number
            group = _Group(plans)
            if before > 1 and self._can_divide(job, group):
                group.number = before
        self._groups[job.group] = group
        while len(self._groups) > _GROUPS:
            self._groups.popitem(last=False)
        return group

    def _can_divide(self, job: AdvanceJob, group: _Group) -> bool:
        if not group.looked:
            group.looked = True
            if all(sink.members is None and sink.look is None for sink in job.sinks):
                group.columns = find_sharding(sink.plan for sink in job.sinks)
        return group.columns is not None
