"""The answer cache: keeps answers at NOW up to date (PSoup-C).

The answer of a query at NOW is a function of the query's inputs and of the instant. So the cache
keeps an answer together with both, and gives it to a reader only if both are the same in the
version the reader has pinned: a cached answer is never older than a computed one. The refresher's
thread recomputes the answers an epoch has changed, queries of greater weight first; a reader who
comes before the thread computes the answer itself.

- `eager`: recomputed after every epoch that changes it (PSoup, VLDB 2002, section 5: PSoup-C; there
  by counting matches in and out, here by evaluation, which serves every query).
- `auto`: recomputed only while clients invoke the query about as often as its answer changes, and
  only if computing it is not cheap. Invocations earn credit, computing ahead spends it.

INV-KEPT-1: an answer is served only if every segment, relation delta and clock it was computed
from is the reader's too, and the instant is the same or cannot matter.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.model.loss import Loss
from millpond.model.time import format_instant
from millpond.model.windows import Rows, Unbounded
from millpond.planner.bind.bound_query import BoundQuery
from millpond.service.queries.prepared import PreparedQuery
from millpond.state.version import SHED, Version

#: A larger answer is not kept.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class AnswerInputs:
    """The inputs of an answer: `parts` are compared by identity, `clocks` by value."""

    parts: tuple[object, ...]
    clocks: tuple[tuple[int | None, int], ...]

    def is_same_as(self, other: AnswerInputs) -> bool:
        return (
            self.clocks == other.clocks
            and len(self.parts) == len(other.parts)
            and all(one is its for one, its in zip(self.parts, other.parts, strict=True))
        )


def inputs_of(version: Version, bound: BoundQuery, streams: Sequence[StreamDef]) -> AnswerInputs:
    """The inputs of a query's answer in a version."""
    parts: list[object] = []
    clocks = []
    for stream in streams:
        parts += (version.segments(stream.id, stream.kind), version.segments(stream.id, SHED))
        clock = version.clock(stream.id)
        clocks.append((clock.high, clock.kept_from))
    for leaf in bound.relations:
        relation = version.find(leaf.relation)
        parts.append(relation)
        if relation is not None:
            parts.append(version.relation_deltas(relation.id))
    return AnswerInputs(tuple(parts), tuple(clocks))


@dataclass
class CachedAnswer:
    """A query's cached answer, and how often it was of use."""

    query: PreparedQuery | None = None
    inputs: AnswerInputs | None = None
    instant: int = 0
    table: pa.Table | None = None
    loss: tuple[Loss, ...] = ()
    seconds: float = 0.0
    credit: float = 0.0
    served: int = 0
    computed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def figures(self) -> dict[str, object]:
        """The figures EXPLAIN shows: what is kept, and how often it was of use."""
        with self.lock:
            table = self.table
            return {
                "as of": None if table is None else format_instant(self.instant),
                "rows": None if table is None else table.num_rows,
                "bytes": 0 if table is None else table.nbytes,
                "computed": self.computed,
                "served": self.served,
                "seconds to compute": self.seconds,
            }


class AnswerCache:
    """The cached answers of a pond; safe to use from any thread."""

    def __init__(self) -> None:
        self._answers: dict[int, CachedAnswer] = {}
        self._lock = threading.Lock()

    def of(self, query_id: int) -> CachedAnswer:
        with self._lock:
            return self._answers.setdefault(query_id, CachedAnswer())

    def find(
        self, kept: CachedAnswer, query: PreparedQuery, inputs: AnswerInputs, instant: int
    ) -> tuple[pa.Table, tuple[Loss, ...]] | None:
        """The rows, and what they lack, if they are those of `inputs`."""
        bound = query.bound
        with kept.lock:
            if kept.table is None or kept.inputs is None or not kept.inputs.is_same_as(inputs):
                return None
            if kept.query is not query:  # it was altered
                return None
            if instant != kept.instant and not (
                is_timeless(bound)
                and instant >= kept.instant
                and all(high is None or high <= kept.instant for high, _ in inputs.clocks)
            ):
                return None
            kept.served += 1
            return kept.table, kept.loss

    def keep(
        self,
        kept: CachedAnswer,
        query: PreparedQuery,
        inputs: AnswerInputs,
        instant: int,
        found: tuple[pa.Table, tuple[Loss, ...]],
        seconds: float,
    ) -> None:
        """Keep an answer, which took so many seconds to compute."""
        with kept.lock:
            kept.seconds, kept.computed = seconds, kept.computed + 1
            kept.query, kept.inputs, kept.instant = query, inputs, instant
            table, kept.loss = found
            kept.table = table if table.nbytes <= _MOST_BYTES else None

    def forget(self, query_ids: set[int]) -> None:
        """Drop the answers of queries that were dropped."""
        with self._lock:
            for id in self._answers.keys() & query_ids:
                del self._answers[id]

    def ids(self) -> set[int]:
        return set(self._answers)


def is_timeless(bound: BoundQuery) -> bool:
    """Whether an answer stays the same while time goes on and nothing arrives."""
    return not bound.relations and all(
        isinstance(leaf.window, Rows | Unbounded) for leaf in bound.streams
    )
