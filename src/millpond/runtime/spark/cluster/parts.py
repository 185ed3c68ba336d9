"""Groups of jobs whose results are put together: two stages of one Spark job.

What the first stage's tasks give goes to those of the second by Spark's shuffle, from machine to
machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from millpond.engine.scalars.user_functions import Usage
from millpond.runtime.spark.batches import InWorker
from millpond.runtime.spark.cluster.placing import distribute

#: What a task gave, with what the pond's functions cost it.
_Used = tuple[Any, dict[str, Usage]]


def run_groups(
    context: SparkContext,
    store: Path,
    task: Callable[[Any], Any],
    groups: Sequence[Sequence[Any]],
    wholes: Sequence[Any],
    finish: Callable[[Any, Sequence[Any]], Any],
    near: Sequence[Sequence[str]],
) -> list[tuple[Any, list[dict[str, Usage]]]]:
    """Run a task for all jobs of some groups, and another for each group's results.

    Args:
        context: Where it runs.
        store: The store, whose functions the tasks use.
        task, groups, wholes, finish, near: As of `protocol.Runtime.run_in_parts`.

    Returns:
        Of each group the result, and what its tasks spent in functions.
    """
    jobs = [(n, place, job) for n, some in enumerate(groups) for place, job in enumerate(some)]
    first = distribute(
        context, _Part(InWorker(task, store)), jobs, [host for some in near for host in some]
    )
    together = first.groupByKey(len(groups), partitionFunc=int)
    done = together.map(_Finish(InWorker(_PutTogether(finish), store), wholes)).collect()
    return [(result, used) for _, result, used in sorted(done, key=lambda one: one[0])]


class _Part:
    """Runs a job; gives its group's number, its place in it, and what it gave."""

    def __init__(self, task: InWorker) -> None:
        self._task = task

    def __call__(self, numbered: tuple[int, int, Any]) -> tuple[int, tuple[int, _Used]]:
        group, place, job = numbered
        return group, (place, self._task(job))


class _PutTogether:
    """Calls a function of two arguments with a pair."""

    def __init__(self, finish: Callable[[Any, Sequence[Any]], Any]) -> None:
        self._finish = finish

    def __call__(self, pair: tuple[Any, Sequence[Any]]) -> Any:
        return self._finish(*pair)


class _Finish:
    """Puts a group's results together; gives its number, the result, and what all of it cost."""

    def __init__(self, finish: InWorker, wholes: Sequence[Any]) -> None:
        self._finish = finish
        self._wholes = wholes

    def __call__(
        self, group: tuple[int, Iterable[tuple[int, _Used]]]
    ) -> tuple[int, Any, list[dict[str, Usage]]]:
        number, parts = group
        found = [used for _, used in sorted(parts, key=lambda part: part[0])]
        result, usage = self._finish((self._wholes[number], [part for part, _ in found]))
        return number, result, [usage, *(usage for _, usage in found)]
