"""A derivation: a query whose changes are computed, with the plan that computes them.

Its position is in its stream's clock (`derivations.py`); here is what follows from the query and
the plan alone: with whom it shares a dataflow, what it depends on, and where it can begin.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.catalog.tolerance import NO_REDUCTION, Reduction
from millpond.engine.promising.look import Look
from millpond.model.patterns import Pattern
from millpond.model.time import BEGINNING
from millpond.planner.approximate.reductions import ReducedQuery
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.dataflow.plan import Plan
from millpond.service.queries.prepared import stream_of
from millpond.state.version import Version
from millpond.synopses.summaries.zones import Grid

#: Ids of streams, ids of relations, an eager interval, and the length of steps with a budget.
SharingKey = tuple[frozenset[int], frozenset[int], int, int]


@dataclass(frozen=True, eq=False)
class Derivation:
    """A derivation with its plan.

    Attributes:
        stream: What its changes are elements of.
        bound: Its query, reduced if it is.
        plan: What computes its changes.
        streams: Ids of the streams it reads.
        relations: Ids of the relations it reads.
        eager_expiration: How long changes that time alone brings may wait, in microseconds. In a
            derived stream they never wait: its readers wait for its heartbeat.
        line: The length of its steps, in microseconds, if it looks at a part only; else 0.
        reduced: How its query is reduced; None if it is not.
        look: Of a query with a budget: what it looks at.
        leaves: The plan its changes were made by up to its position, if another goes on from there.
        whole: The plan of the query as it is written, if it is reduced for a time.
    """

    stream: StreamDef
    bound: BoundQuery
    plan: Plan
    streams: frozenset[int]
    relations: frozenset[int]
    eager_expiration: int = 0
    line: int = 0
    reduced: ReducedQuery | None = None
    look: Look | None = None
    leaves: Plan | None = None
    whole: Plan | None = None

    @property
    def reduction(self) -> Reduction:
        """How far its changes are reduced."""
        return NO_REDUCTION if self.reduced is None else self.reduced.reduction

    @property
    def sharing_key(self) -> SharingKey:
        """The key of its dataflow: derivations with equal keys are advanced together.

        The eager interval is part of the key. A dataflow is at one instant, so derivations with
        different intervals in one dataflow would all be advanced at the shortest interval.
        """
        return (self.streams, self.relations, self.eager_expiration, self.line)

    @property
    def id(self) -> int:
        return self.stream.id

    @property
    def must_record_position(self) -> bool:
        """Whether its position must be committed even where it has no changes.

        The readers of a derived stream wait for its heartbeat. And updates of a relation at
        instants that readers were told of must be delivered after these instants, also after a
        restart.
        """
        return bool(self.relations) or not self.stream.is_change_log

    @property
    def schema(self) -> pa.Schema:
        """The columns of its changes."""
        found = self.plan.schema
        for name in () if self.look is None else self.look.columns[len(found) - 2 :]:
            found = found.append(pa.field(name, pa.float64()))
        return found

    def reach(self, at: int) -> dict[str, int | None]:
        """As `Plan.reach`: also what a look's summaries reach, and what waits.

        A query that is reduced for a time, or leaves a plan, also needs what that reaches. If it
        leaves one, whole answers matter: the changes go on with the difference of two.
        """
        switches = self.leaves is not None
        found = self.plan.reach(at, switches)
        for other in (self.leaves, self.whole):
            for name, low in ({} if other is None else other.reach(at, switches)).items():
                own = found.get(name, low)
                found[name] = None if low is None or own is None else min(low, own)
        if self.look is not None:
            since = (
                at
                + 1
                - max(
                    Grid.of(s.granularity, s.rate, s.depth).reach + self.line
                    for s in self.bound.summaries
                )
            )
            found = {name: None if low is None else min(low, since) for name, low in found.items()}
        return found

    def end_step(self, at: int) -> int:
        """The last instant of the step that an instant lies in."""
        return at if not self.line else (at // self.line + 1) * self.line - 1

    @property
    def moves_by_itself(self) -> bool:
        """Whether time alone may bring changes: rows of the answer may expire."""
        is_moved = self.look is None or self.look.kind == "aggregate"
        return is_moved and self.plan.root.pattern is not Pattern.MONOTONIC


def find_start(version: Version, bound: BoundQuery, plan: Plan, after: int) -> int:
    """The first instant from `after` on at which everything that matters is still kept."""
    for leaf in bound.streams:
        stream = stream_of(version, leaf)
        kept_from = BEGINNING if stream.is_pseudo else version.clock(stream.id).kept_from
        if kept_from == BEGINNING:
            continue
        after = max(after, kept_from - 1)
        reach = plan.reach(after).get(stream.name)
        if reach is not None and reach < kept_from:
            after += kept_from - reach
    return after
