"""What ran over the edges of a group's dataflow, a second of stream time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millpond.model.time import BEGINNING, LAST
from millpond.planner.dataflow.plan import Plan
from millpond.runtime.advance_job import AdvanceJob, AdvanceResult

_SECOND = 1e6


@dataclass(frozen=True)
class Flows:
    """What ran over the edges of one group's dataflow while elements came.

    Attributes:
        group: The group's name.
        derivations: The ids of its derivations.
        elements: How many elements came.
        span: Seconds of stream time.
        steps: How many steps it was advanced by.
        rates: By node key, how many changes an operator gave, a second.
    """

    group: str
    derivations: frozenset[int]
    elements: int
    span: float
    steps: int
    rates: Mapping[str, float]


@dataclass
class FlowMeter:
    """Adds up what ran in a group since it was last asked, or since its plans changed."""

    span: float = 0.0
    steps: int = 0
    elements: int = 0
    given: dict[str, int] = field(default_factory=dict)
    #: By node key, the rates of the time that was asked for last.
    before: dict[str, float] = field(default_factory=dict)
    _sources: frozenset[str] = frozenset()

    def begin(self, plans: Mapping[int, Plan]) -> None:
        """Begin with nothing: other operators run from now on."""
        nodes = [node for plan in plans.values() for node in plan.nodes()]
        self._sources = frozenset(n.key for n in nodes if n.feed is not None)
        kept = {node.key for node in nodes}
        self.before = {key: rate for key, rate in self.before.items() if key in kept}
        self._clear()

    def note(self, job: AdvanceJob, result: AdvanceResult) -> None:
        """Add what ran in a job.

        Only jobs count in which elements came: rates are those of the time in which data flow. The
        first job after the beginning of time, and the last one, have no length.
        """
        elements = sum(result.given.get(key, 0) for key in self._sources)
        if not elements or job.position < BEGINNING or job.upto >= LAST:
            return
        self.elements += elements
        self.span += (job.upto - job.position) / _SECOND
        self.steps += 1
        for key, rows in result.given.items():
            self.given[key] = self.given.get(key, 0) + rows

    @property
    def rates(self) -> dict[str, float]:
        """The rates since it was last asked; those before, where that is no time yet."""
        if not self.span:
            return self.before
        return {key: rows / self.span for key, rows in self.given.items()}

    def take(self, group: str, derivations: frozenset[int]) -> Flows:
        """Take what ran since it was last asked, and begin with nothing."""
        self.before = self.rates
        taken = Flows(group, derivations, self.elements, self.span, self.steps, self.before)
        self._clear()
        return taken

    def _clear(self) -> None:
        self.span, self.steps, self.elements, self.given = 0.0, 0, 0, {}
