"""Shared logs: one change log for all followed queries that differ in their predicates alone.

Ten thousand saved searches have a few shapes. The changes of all queries of one shape are computed
by one plan (`planner/dataflow/shared_log.py`) and written to one stream, the shared log. Its clock
is the position of all of them; a query's own change log keeps only how many changes there are and
where they began. So an epoch costs what changed, however many queries are followed, and writes one
segment.

Queries that come to be followed get a shared log of their own, which is advanced from where they
begin. Once it is as far as another of its shape, the two become one: its members and its segments
go over. A query leaves when it is altered, suspended or made inactive: from then on its changes
are in its own change log.

INV-SHARED-1: the numbers of a log's changes in its shared log and behind it are those that it would
have alone: from 0 on, one after the other, in the order of delivery.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.engine.predicates.factors import Factors
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.dataflow.shared_log import QueryShape, find_shape
from millpond.runtime.shared_log_task import LoggedChanges, LogMembers
from millpond.service.queries.prepared import stream_of
from millpond.service.queries.shared_changes import has_plain_options
from millpond.state.epoch.epoch_change import EpochChange, StaleChange
from millpond.state.version import StreamClock, Version

Ints = npt.NDArray[np.int64]


def find_shared_shape(version: Version, query: QueryDef, bound: BoundQuery) -> QueryShape | None:
    """The shape by which a followed query may go to a shared log; None if it may not."""
    if not query.active or not has_plain_options(query.options):
        return None
    shape = find_shape(bound)
    if shape is None or stream_of(version, bound.streams[0]).is_pseudo:
        return None
    slot = _find_slot(version, query.id)
    found = None if slot is None else version.slot(*slot)
    # What DuckDB evaluates may fail, and is evaluated for each query by itself.
    return None if found is None or Factors.unpack(found.factors).others else shape


def _find_slot(version: Version, query_id: int) -> tuple[int, int] | None:
    leaves = version.leaves(query_id)
    if len(leaves) != 1 or leaves[0].slot is None:
        return None
    return leaves[0].stream_id, leaves[0].slot


@dataclass(eq=False)
class MemberTable:
    """The members of a shared log, in ascending order of their logs.

    Attributes:
        logs: Ids of their change logs.
        slots: The slots of their predicates.
        starts: The instants after which their changes begin.
        numbers: The numbers of their next changes.
        keep: How many changes of each are kept at least.
        stream_id: The stream that their queries read.
        query_id: One of the queries.
    """

    logs: Ints
    slots: Ints
    starts: Ints
    numbers: Ints
    keep: Ints
    stream_id: int = 0
    query_id: int = 0

    def note(self, logged: LoggedChanges) -> None:
        """Count changes that were committed."""
        places = np.searchsorted(self.logs, logged.logs)
        self.numbers[places] += logged.counts

    def to_job(self, stream: str, stem: str | None, counts_all: bool) -> LogMembers:
        """The members as a worker needs them."""
        order = np.argsort(self.slots, kind="stable")
        return LogMembers(
            stream,
            self.slots[order],
            self.logs[order],
            self.starts[order],
            self.numbers[order],
            stem,
            counts_all,
        )


_EMPTY = np.zeros(0, np.int64)


class SharedLogs:
    """Knows the members of the shared logs; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: object = None
        self._tables: dict[int, MemberTable] = {}

    def members(self, version: Version, shared_id: int) -> MemberTable:
        """The members of a shared log. Found anew when a stream came, went or was altered."""
        with self._lock:
            if self._known is not version.streams:
                self._tables = _read_tables(version)
                self._known = version.streams
            found = self._tables.get(shared_id)
            return found or MemberTable(_EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY)

    def forget(self) -> None:
        """Find the members anew: clocks were changed otherwise than by advancing."""
        with self._lock:
            self._known = None

    def note(self, logged: Mapping[int, LoggedChanges]) -> None:
        """Count changes that were committed to shared logs."""
        with self._lock:
            for shared_id, own in logged.items():
                if shared_id in self._tables:
                    self._tables[shared_id].note(own)


def _read_tables(version: Version) -> dict[int, MemberTable]:
    rows: defaultdict[int, list[tuple[int, int, int, int, int]]] = defaultdict(list)
    first: dict[int, tuple[int, int]] = {}
    for stream in version.streams.values():
        shared = stream.shared_log
        if shared is None:
            continue
        assert stream.derived is not None
        query_id = stream.derived.query_id or 0
        slot = _find_slot(version, query_id)
        if slot is None:
            continue
        clock = version.own_clock(stream.id)
        keep = stream.retain_rows or 0
        rows[shared].append((stream.id, slot[1], clock.position, clock.next_seq, keep))
        first[shared] = (slot[0], query_id)
    found = {}
    for shared, own in rows.items():
        logs, slots, starts, numbers, keep = np.array(sorted(own), np.int64).T.copy()
        found[shared] = MemberTable(logs, slots, starts, numbers, keep, *first[shared])
    return found


def count_changes(version: Version, logged: LoggedChanges, clocks: dict[int, StreamClock]) -> None:
    """Note in the clocks of change logs what a job wrote to their shared log.

    Raises:
        StaleChange: the job counted from other numbers than there are.
    """
    for id, first, count, last in zip(
        logged.logs.tolist(),
        logged.first.tolist(),
        logged.counts.tolist(),
        logged.last.tolist(),
        strict=True,
    ):
        stream = version.streams.get(id)
        if stream is None or stream.shared_log is None:
            continue  # dropped, or gone its own way
        clock = version.own_clock(id)
        if clock.next_seq != first:
            raise StaleChange(f"the next change of log {id} is not {first}")
        clocks[id] = replace(clock, next_seq=first + count, high=last)


def join_shared_logs(version: Version, into: StreamDef, other: StreamDef) -> EpochChange:
    """Have the members and the segments of a shared log go over to another at its position.

    Raises:
        StaleChange: they are not at one position.
    """
    if into.id not in version.streams:
        raise StaleChange(f"shared log {into.id} is not there any more")
    if version.clock(into.id).heartbeat != version.clock(other.id).heartbeat:
        raise StaleChange("the shared logs are not at one position")
    moved = [
        replace(log, derived=replace(log.derived, shared_log=into.id))
        for log in version.streams.values()
        if log.derived is not None and log.derived.shared_log == other.id
    ]
    segments = version.segments(other.id)
    high = max(
        (high for id in (into.id, other.id) if (high := version.clock(id).high) is not None),
        default=None,
    )
    return EpochChange(
        kind="join logs",
        replace=moved,
        drop=[other.id],
        segments=[replace(segment, id=0, stream_id=into.id) for segment in segments],
        clocks={into.id: replace(version.clock(into.id), high=high)},
    )


def find_joinable(
    version: Version, shapes: Mapping[int, tuple[object, ...]]
) -> Sequence[tuple[StreamDef, StreamDef]]:
    """Find the shared logs that can become one: (the one that stays, the one that goes over).

    Args:
        version: The version.
        shapes: By the id of each shared log, what those have in common that may become one.
    """
    first: dict[tuple[object, ...], StreamDef] = {}
    found = []
    for id in sorted(shapes):
        stream = version.streams.get(id)
        if stream is None:
            continue
        key = (*shapes[id], version.clock(id).heartbeat)
        into = first.setdefault(key, stream)
        if into is not stream:
            found.append((into, stream))
    return found
