"""Models of how exact reduced queries are, from the statistics of the streams they read."""

from __future__ import annotations

from millpond.errors import MillpondError
from millpond.planner.approximate.precision import PrecisionModel, mark_leaves
from millpond.planner.bind.bound_query import BoundQuery, StreamLeaf
from millpond.planner.dataflow.plan import plan_changes
from millpond.planner.resolve.names import Names
from millpond.service.changes.noticing.stream_statistics import StreamObserver
from millpond.service.queries.prepared import stream_of
from millpond.state.version import Version


class PrecisionModels:
    """Makes the models; safe to use from any thread.

    Args:
        statistics: Measures the streams.
        names: The catalog that queries are bound with.
    """

    def __init__(self, statistics: StreamObserver, names: Names) -> None:
        self._statistics, self._names = statistics, names

    def make(self, version: Version, bound: BoundQuery) -> PrecisionModel | None:
        """Make the model of a query; None if its changes cannot be planned."""
        known = self._statistics.of(version, bound, frozenset())
        try:
            plan = plan_changes(mark_leaves(bound), self._names, known=known)
        except MillpondError:
            return None
        return PrecisionModel.of(plan.root, known, [_find_age(version, x) for x in bound.streams])


def _find_age(version: Version, leaf: StreamLeaf) -> float:
    """The seconds from the first kept element of a leaf's stream to the last."""
    stream = stream_of(version, leaf)
    segments = version.segments(stream.id, stream.kind)
    if not segments:
        return 0.0
    return (max(s.max_ts for s in segments) - min(s.min_ts for s in segments)) / 1e6
