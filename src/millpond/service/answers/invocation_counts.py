"""How often standing queries were asked for their answers, and how long that took."""

from __future__ import annotations

import threading
from collections import OrderedDict

#: So many queries are counted, those that were asked last.
MOST_QUERIES = 100_000


class InvocationCounts:
    """Counts since the pond was opened; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: OrderedDict[int, tuple[int, float]] = OrderedDict()

    def count(self, query_id: int, seconds: float) -> None:
        """Count an answer that took so many seconds."""
        with self._lock:
            times, spent = self._counts.pop(query_id, (0, 0.0))
            self._counts[query_id] = times + 1, spent + seconds
            if len(self._counts) > MOST_QUERIES:
                self._counts.popitem(last=False)

    def of(self, query_id: int) -> tuple[int, float]:
        """How often a query was asked, and the seconds that took."""
        return self._counts.get(query_id, (0, 0.0))
