"""Weights: which queries' work is done first when there is not time for all (STREAM, 2.4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from millpond.catalog.objects import QueryDef
from millpond.state.id_map import IdMap, PageSummaries
from millpond.state.version import Version


def weight_of(query: QueryDef) -> float:
    """A query's weight; 0 for an inactive one."""
    return float(query.options.get("weight", 1)) if query.active else 0.0


class StreamWeights:
    """The total weight of the queries over each stream; for use by one thread.

    It is added up again only when a query came, went or was altered, and then from sums of buckets
    of queries: the cost of a registration must not grow with the number of queries.
    """

    def __init__(self) -> None:
        self._queries: IdMap[QueryDef] | None = None
        self._of_stream: dict[int, float] = {}
        self._version = Version()
        self._sums = PageSummaries[QueryDef, dict[int, float]](self._sum)

    def order(self, version: Version, streams: Iterable[int]) -> list[int]:
        """Sort streams: those of the weightiest queries first."""
        if self._queries is not version.queries:
            self._version = version
            self._of_stream = defaultdict(float)
            for found in self._sums.of(version.queries):
                for stream_id, weight in found.items():
                    self._of_stream[stream_id] += weight
            self._queries, self._version = version.queries, Version()
        return sorted(streams, key=lambda id: (-self._of_stream.get(id, 0.0), id))

    def _sum(self, queries: Iterable[QueryDef]) -> dict[int, float]:
        found: dict[int, float] = defaultdict(float)
        for query in queries:
            for stream_id in {leaf.stream_id for leaf in self._version.leaves(query.id)}:
                found[stream_id] += weight_of(query)
        return found
