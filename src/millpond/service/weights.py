"""Weights: whose work is done first where there is not time for everybody's (STREAM, 2.4)."""

from __future__ import annotations

from collections import defaultdict

from millpond.catalog.objects import QueryDef
from millpond.state.bucket_map import BucketMap
from millpond.state.version import Version


def weight_of(query: QueryDef) -> float:
    """A query's weight; one that is not active has none."""
    return float(query.options.get("weight", 1)) if query.active else 0.0


class StreamWeights:
    """What the queries over each stream weigh together; for use by one thread.

    Added up again only when a query came, went or was altered.
    """

    def __init__(self) -> None:
        self._queries: BucketMap[int, QueryDef] | None = None
        self._of_stream: defaultdict[int, float] = defaultdict(float)

    def ordered(self, version: Version) -> list[int]:
        """The streams, those of the weightiest queries first."""
        if self._queries is not version.queries:
            self._of_stream = defaultdict(float)
            for query in version.queries.values():
                weight = weight_of(query)
                for stream_id in {leaf.stream_id for leaf in version.leaves(query.id)}:
                    self._of_stream[stream_id] += weight
            self._queries = version.queries
        return sorted(version.streams, key=lambda id: (-self._of_stream[id], id))
