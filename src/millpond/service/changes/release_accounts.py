"""What constraints of streams released in the dataflows that run, as workers last told."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from millpond.operators.protocol.releasing import ReleaseFigures
from millpond.runtime.advance_job import AdvanceJob, AdvanceResult
from millpond.state.version import Version


class ReleaseAccounts:
    """The figures of every dataflow's operators; safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By group: its derivations' ids, and the figures by node key.
        self._groups: dict[str, tuple[frozenset[int], dict[str, list[ReleaseFigures]]]] = {}

    def note(self, job: AdvanceJob, result: AdvanceResult) -> None:
        """Note what a job told of the dataflow it advanced."""
        ids = frozenset(sink.stream_id for sink in job.sinks)
        with self._lock:
            if result.releases:
                self._groups[job.group] = (ids, dict(result.releases))
            elif not result.failures and result.unwritten is None:
                self._groups.pop(job.group, None)

    def by_node(self, version: Version) -> dict[str, list[ReleaseFigures]]:
        """The figures of the operators that run, by node key."""
        with self._lock:
            for group, (ids, _) in list(self._groups.items()):
                if ids.isdisjoint(version.streams):
                    del self._groups[group]
            found: dict[str, list[ReleaseFigures]] = {}
            for _, by_node in self._groups.values():
                for key, figures in by_node.items():
                    found.setdefault(key, []).extend(figures)
        return found


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
    return f"released by {', '.join(names)}: {held:,} rows held, {without:,} without"
