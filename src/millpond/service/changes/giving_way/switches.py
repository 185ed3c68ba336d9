"""Switches of derivations to other plans, when their queries are to be reduced otherwise.

The plan that goes on is made when the decision is first seen. Whoever commits the changes that
begin with it takes it over, so that the worker's dataflow is the one that runs already.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Protocol

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.catalog.tolerance import NO_REDUCTION, Reduction
from millpond.model.time import LAST
from millpond.planner.bind.bound_query import BoundQuery
from millpond.service.changes.derivation import Derivation
from millpond.service.changes.giving_way.reducing import Decide, Decisions, may_be_reduced
from millpond.service.queries.reductions import reduce_changes
from millpond.state.version import Version


class MakeReduced(Protocol):
    """Makes the derivation of a standing query that is reduced so far."""

    def __call__(
        self,
        version: Version,
        stream: StreamDef,
        whole: BoundQuery,
        reduction: Reduction,
        query: QueryDef | None,
    ) -> Derivation: ...


class Switches:
    """Finds the derivations that are to go on by another plan; safe to use from any thread.

    Args:
        make: Makes such a derivation.
        lock: Held while one is made: two that plan at once would each take the other's operators
            for those that run.
    """

    def __init__(self, make: MakeReduced, lock: threading.RLock) -> None:
        self._make, self._lock = make, lock
        #: How far changes are to be reduced.
        self.decide: Decide = Decisions()
        #: By stream, derivations that are about to be made by another plan.
        self._ready: dict[int, Derivation] = {}

    @property
    def weight(self) -> float:
        """The weight up to which followed queries are reduced now."""
        return self.decide.weight if isinstance(self.decide, Decisions) else 0.0

    def find(self, version: Version, derivation: Derivation) -> tuple[Derivation | None, int]:
        """The derivation as it is to go on from its position, if it is to be reduced otherwise.

        Returns:
            It, or None; and the last instant for which that is decided.
        """
        stream = derivation.stream
        query = version.query_of(stream) if stream.is_change_log else None
        if query is None or "tolerate" not in query.options or derivation.look is not None:
            return None, LAST
        reduced = derivation.reduced
        whole = derivation.bound if reduced is None else reduced.whole
        if not may_be_reduced(whole, query):
            return None, LAST
        decision = self.decide(query, version.clock(stream.id).position)
        wanted = reduce_changes(whole, decision.reduction)
        reduction = NO_REDUCTION if wanted is None else wanted.reduction
        if reduction == derivation.reduction:
            self._ready.pop(stream.id, None)
            return None, decision.upto
        with self._lock:
            found = self._ready.get(stream.id)
            if found is None or found.leaves is not derivation.plan or found.reduction != reduction:
                made = self._make(version, stream, whole, reduction, query)
                found = replace(made, leaves=derivation.plan)
                self._ready[stream.id] = found
        return found, decision.upto

    def take(self, stream: StreamDef, reduction: Reduction) -> Derivation | None:
        """Take the derivation over whose changes were committed; None if another one was made."""
        found = self._ready.pop(stream.id, None)
        if found is None or found.reduction != reduction:
            return None
        return replace(found, stream=stream, leaves=None)

    def forget(self) -> None:
        """Forget what was made: it is planned otherwise from now on."""
        self._ready.clear()
