"""What a reader sees: one immutable Version of the store after each epoch.

A Version is a value. A commit makes the next Version, which shares everything the epoch did not
touch (`epoch/next_version.py`). So holding a Version costs nothing and reading it needs no lock. A
reader that opens a Version's files must pin it (`EpochLog.pin`), or `EpochLog.collect` may remove
the files.

Invariants:
    INV-VERSION-1: `segments(stream, kind)` is sorted by (min_ts, id); every element of an epoch up
        to `epoch` that has not expired is in exactly one of them.
    INV-VERSION-2: the slots of a stream are numbered as they are added and a number is never used
        again, so a `MatchRef` covering [low, upto) speaks of the same predicates for ever.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

from millpond.catalog.objects import (
    DATA,
    REJECTS,
    SHED,
    SUFFIXES,
    SYSTEM_STREAMS,
    WAITING,
    Definition,
    FunctionDef,
    QueryDef,
    RelationDef,
    StreamDef,
    SummaryDef,
)
from millpond.catalog.sink_def import SinkDef
from millpond.model.schema import Field
from millpond.model.time import BEGINNING
from millpond.state.bucket_map import BucketMap
from millpond.state.id_map import IdMap
from millpond.state.join_state import Joins

__all__ = ["DATA", "REJECTS", "SHED", "WAITING"]  # the kinds of segments, which the catalog names

#: The directories of files that versions refer to.
REFERENCED = ("segments", "matches", "rejects", "relations", "runs", "pairs", "summaries")


@dataclass(frozen=True)
class SegmentRef:
    """A segment: an immutable file of elements sorted by (`__ts`, `__seq`).

    Attributes:
        id: Given by the commit that adds the segment; 0 before.
        stream_id: The stream it belongs to.
        kind: 'data', 'rejects', 'shed' or 'waiting'.
        epoch: The epoch in which its (youngest) elements arrived; 0 in an `EpochChange` stands for
            the epoch being committed.
        level: Its level in the segment tree; 0 for a segment that is not a merge of others.
        path: The file's path, relative to the store.
        rows: How many elements the segment has. Small segments that were written together may be
            in one file, one behind the other (`Version.shared_files`).
        min_ts: The least timestamp in the segment.
        max_ts: The greatest timestamp in the segment.
        seq_runs: ((local_start, base), …) ascending: the file's `__seq` s with local_start ≤ s is
            the stream's arrival number base + s − local_start, up to the next run. The file's rows
            from the first local_start on are the segment's.
        checksum: The checksum of the file's bytes.
        bytes: The file's length.
    """

    id: int
    stream_id: int
    kind: str
    epoch: int
    level: int
    path: str
    rows: int
    min_ts: int
    max_ts: int
    seq_runs: tuple[tuple[int, int], ...]
    checksum: str
    bytes: int


def count_shares(
    before: BucketMap[str, tuple[int, int]],
    coming: Iterable[SegmentRef],
    leaving: Iterable[SegmentRef] = (),
) -> tuple[BucketMap[str, tuple[int, int]], list[str]]:
    """Count anew in which files there are several segments.

    Args:
        before: `Version.shared_files`.
        coming: Segments that are added. Segments of one file are added at once.
        leaving: Segments that go.

    Returns:
        `Version.shared_files`, and the paths of those that leave and are no segment's any more.
    """
    touched: dict[str, tuple[int, int]] = {}
    for sign, segments in ((-1, leaving), (1, coming)):
        for segment in segments:
            path = segment.path
            if path not in touched:  # a file of one segment is not in the map
                alone = (1, segment.rows) if sign < 0 else (0, 0)
                touched[path] = before.get(path, alone)
            count, rows = touched[path]
            touched[path] = count + sign, rows + sign * segment.rows
    several = {path: held for path, held in touched.items() if held[0] > 1}
    after = before.with_changes(several, drop=touched.keys() - several.keys())
    return after, [path for path, (count, _) in touched.items() if not count]


class FileRef(Protocol):
    """A reference to a file: its path, relative to the store, its length and checksum."""

    @property
    def path(self) -> str: ...

    @property
    def bytes(self) -> int: ...

    @property
    def checksum(self) -> str: ...


@dataclass(frozen=True, slots=True)
class MatchRef:
    """A file of a segment's matches for every slot in [low, upto) that was live when it was made.

    In an `EpochChange`, `segment_id` −1 − i stands for the change's i-th new segment.
    """

    id: int
    segment_id: int
    low: int
    upto: int
    path: str
    checksum: str
    bytes: int


@dataclass(frozen=True)
class StreamClock:
    """How far a stream has come.

    Attributes:
        high: The greatest timestamp committed, or None before the first element.
        heartbeat: No element with a timestamp before this instant is admitted any more.
        arrived_at: The clock at the last arrival, or None.
        next_seq: The arrival number the next element gets.
        rejected: How many rows were rejected so far.
        ended: Whether the source said that nothing more will come.
        kept_from: Every element with a timestamp from here on is still kept.
        relations_epoch: Of a derived stream: the epoch as of which the relations of its query were
            read to make its elements so far. (Its elements are made up to the instant before its
            heartbeat.)
        partitions: How far each partition of the source has come, by name: the greatest timestamp
            committed, or None, and the clock at its last arrival.
    """

    high: int | None = None
    heartbeat: int = BEGINNING
    arrived_at: int | None = None
    next_seq: int = 0
    rejected: int = 0
    ended: bool = False
    kept_from: int = BEGINNING
    relations_epoch: int = 0
    partitions: Mapping[str, tuple[int | None, int]] = field(default_factory=dict)

    @property
    def position(self) -> int:
        """The last instant up to which a derived stream has its elements."""
        return self.heartbeat - 1


@dataclass(frozen=True)
class RelationDelta:
    """A file of rows that were added to a relation, and of rows of the relation that ended.

    `epoch` 0 in an `EpochChange` stands for the epoch being committed.
    """

    relation_id: int
    epoch: int
    path: str
    checksum: str
    rows: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class SlotRef:
    """A predicate in a stream's Query SteM; `key` is equal for equal predicates."""

    stream_id: int
    slot: int
    key: bytes
    factors: bytes


@dataclass(frozen=True, slots=True)
class LeafRef:
    """A standing query's n-th occurrence of a stream, and the slot its predicate has there."""

    query_id: int
    leaf: int
    stream_id: int
    slot: int | None


#: A query's leaves in order, or its only leaf: very many queries have one.
HeldLeaves = tuple[LeafRef, ...] | LeafRef


def hold_leaves(leaves: Iterable[LeafRef]) -> HeldLeaves:
    """A query's leaves as a version holds them."""
    held = tuple(leaves)
    return held[0] if len(held) == 1 else held


@dataclass(frozen=True)
class StreamState:
    """Everything of one stream that epochs change."""

    data: tuple[SegmentRef, ...] = ()
    rejects: tuple[SegmentRef, ...] = ()
    shed: tuple[SegmentRef, ...] = ()
    waiting: tuple[SegmentRef, ...] = ()
    clock: StreamClock = StreamClock()
    slots: IdMap[SlotRef] = field(default_factory=IdMap)
    slot_keys: BucketMap[bytes, int] = field(default_factory=BucketMap)
    next_slot: int = 0

    def segments(self, kind: str) -> tuple[SegmentRef, ...]:
        """The segments of a kind, sorted by (min_ts, id)."""
        found: tuple[SegmentRef, ...] = getattr(self, kind)
        return found

    def with_segments(self, kind: str, segments: tuple[SegmentRef, ...]) -> StreamState:
        """The state with other segments of a kind."""
        if kind == DATA:
            return replace(self, data=segments)
        if kind == REJECTS:
            return replace(self, rejects=segments)
        if kind == SHED:
            return replace(self, shed=segments)
        return replace(self, waiting=segments)


_NOTHING = StreamState()


def shared_log_name(id: int) -> str:
    """Return the catalog's name for a shared log, a name that no user can write."""
    return f"{id}$shared"


def change_log_name(query_id: int) -> str:
    """Return the catalog's name for a query's change log, a name that no user can write."""
    return f"{query_id}$changes"


@dataclass(frozen=True, eq=False)
class Version:
    """The store after one epoch. Names are looked up without regard to case."""

    epoch: int = 0
    streams: Mapping[int, StreamDef] = field(default_factory=lambda: MappingProxyType({}))
    relations: Mapping[int, RelationDef] = field(default_factory=lambda: MappingProxyType({}))
    queries: IdMap[QueryDef] = field(default_factory=IdMap)
    ids: BucketMap[str, int] = field(default_factory=BucketMap)
    states: Mapping[int, StreamState] = field(default_factory=lambda: MappingProxyType({}))
    segments_by_id: IdMap[SegmentRef] = field(default_factory=IdMap)
    #: By path, of files that several segments are in: how many segments, and their rows together.
    shared_files: BucketMap[str, tuple[int, int]] = field(default_factory=BucketMap)
    matches_of: IdMap[tuple[MatchRef, ...]] = field(default_factory=IdMap)
    deltas: Mapping[int, tuple[RelationDelta, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    #: By query id its leaves as `hold_leaves` gives them; read them with `leaves`.
    leaves_of: IdMap[HeldLeaves] = field(default_factory=IdMap)
    #: User-defined functions by their names.
    functions: Mapping[str, FunctionDef] = field(default_factory=lambda: MappingProxyType({}))
    joins: Joins = field(default_factory=Joins)
    #: Summaries by their names in lower case.
    summaries: Mapping[str, SummaryDef] = field(default_factory=lambda: MappingProxyType({}))
    #: Sinks by their names in lower case.
    sinks: Mapping[str, SinkDef] = field(default_factory=lambda: MappingProxyType({}))
    #: The pond's settings that ALTER SYSTEM has set.
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    #: The epochs at which columns were added to streams, in ascending order.
    additions: tuple[int, ...] = ()

    def seen_by(self, text_epoch: int) -> int | None:
        """Up to which addition a text given at an epoch knows columns; None: it knows all.

        Texts with equal numbers see equal columns.
        """
        known = bisect_right(self.additions, text_epoch)
        if known == len(self.additions):
            return None
        return self.additions[known - 1] if known else 0

    def definition(self, id: int) -> Definition | None:
        """Find the stream, relation or query of that id."""
        found = self.streams.get(id) or self.relations.get(id) or self.queries.get(id)
        return found or SYSTEM_STREAMS.get(id)

    def find(self, name: str) -> Definition | None:
        """Find a definition by name; `name$rejects` and `name$shed` are pseudo-streams."""
        folded = name.lower()
        id = self.ids.get(folded)
        if id is not None:
            found = self.definition(id)
            return None if isinstance(found, StreamDef) and found.is_change_log else found
        for system_stream in SYSTEM_STREAMS.values():
            if folded == system_stream.name:
                return system_stream
        for kind, suffix in SUFFIXES.items():
            if folded.endswith(suffix):
                stream = self.streams.get(self.ids.get(folded.removesuffix(suffix), -1))
                return stream.pseudo(kind) if stream else None
        return None

    def names(self, most_queries: int | None = None) -> list[str]:
        """List every name as declared, without the pseudo-streams, in alphabetical order.

        Args:
            most_queries: If there are more queries than this, theirs are left out.
        """
        found: list[Definition] = [*self.named_streams(), *self.relations.values()]
        if most_queries is None or len(self.queries) <= most_queries:
            found += self.queries.sort_values()
        return [d.name for d in sorted(found, key=lambda d: d.name.lower())]

    def named_streams(self) -> list[StreamDef]:
        """List the streams that have a name: all but the change logs of standing queries."""
        return [s for s in self.streams.values() if not s.is_change_log]

    def count_accepted(self, stream: StreamDef) -> int:
        """Count the elements a stream ever had; those that a reset made rejects are no elements."""
        return self.clock(stream.id).next_seq - stream.taken_back

    def change_log(self, query_id: int) -> StreamDef | None:
        """Find the change log of a standing query; None if nobody ever followed the query."""
        return self.streams.get(self.ids.get(change_log_name(query_id), -1))

    def query_of(self, derived: StreamDef) -> QueryDef | None:
        """Find the standing query of a derivation's change log; None for a derived stream."""
        assert derived.derived is not None
        id = derived.derived.query_id
        return None if id is None else self.queries.get(id)

    def name_of(self, derived: StreamDef) -> str:
        """Return the name users know a derivation by: its query's name, or the derived stream's."""
        query = self.query_of(derived)
        return derived.name if query is None else query.name

    def segments(self, stream_id: int, kind: str = DATA) -> tuple[SegmentRef, ...]:
        """Return a stream's segments, sorted by (min_ts, id)."""
        return self.states.get(stream_id, _NOTHING).segments(kind)

    def added_columns(self, stream_id: int) -> tuple[Field, ...]:
        """Return the columns that older elements of a stream do not have."""
        stream = self.streams.get(stream_id)
        return () if stream is None else stream.schema.added

    def bytes_of(self, segment: SegmentRef) -> int:
        """Return how many bytes of its file are a segment's, about."""
        _, rows = self.shared_files.get(segment.path, (1, segment.rows))
        return segment.bytes * segment.rows // max(rows, 1)

    def segment(self, segment_id: int) -> SegmentRef | None:
        """Find the segment of that id; None if it is gone."""
        found: SegmentRef | None = self.segments_by_id.get(segment_id)
        return found

    def matches(self, segment_id: int) -> tuple[MatchRef, ...]:
        """Return the stored matches of a segment, in the order of `low`."""
        found: tuple[MatchRef, ...] = self.matches_of.get(segment_id, ())
        return found

    def clock(self, stream_id: int) -> StreamClock:
        """Return how far a stream has come; a change log in a shared log as far as that."""
        own = self.states.get(stream_id, _NOTHING).clock
        stream = self.streams.get(stream_id)
        shared = None if stream is None else stream.shared_log
        if shared is None:
            return own
        heartbeat = self.states.get(shared, _NOTHING).clock.heartbeat
        return own if heartbeat <= own.heartbeat else replace(own, heartbeat=heartbeat)

    def own_clock(self, stream_id: int) -> StreamClock:
        """Return a stream's clock as it is stored."""
        return self.states.get(stream_id, _NOTHING).clock

    def maker(self, stream: StreamDef) -> StreamDef:
        """Find the stream that a derivation's changes are made in: its shared log, or itself."""
        shared = stream.shared_log
        return stream if shared is None else self.streams.get(shared, stream)

    def relation_deltas(self, relation_id: int) -> tuple[RelationDelta, ...]:
        """Return a relation's deltas in the order of their epochs."""
        return self.deltas.get(relation_id, ())

    def slots_by_number(self, stream_id: int) -> IdMap[SlotRef]:
        """Return a stream's live slots by their numbers."""
        return self.states.get(stream_id, _NOTHING).slots

    def slots(self, stream_id: int) -> tuple[SlotRef, ...]:
        """Return a stream's live slots in ascending order; computed once per set of slots."""
        return self.states.get(stream_id, _NOTHING).slots.sort_values()

    def slot_count(self, stream_id: int) -> int:
        """Count a stream's live slots."""
        return len(self.states.get(stream_id, _NOTHING).slots)

    def greatest_slot(self, stream_id: int) -> int | None:
        """Return the greatest number of a live slot of a stream; None if there is none."""
        return self.states.get(stream_id, _NOTHING).slots.greatest()

    def slot(self, stream_id: int, slot: int) -> SlotRef | None:
        """Find a live slot by its number."""
        found: SlotRef | None = self.states.get(stream_id, _NOTHING).slots.get(slot)
        return found

    def slot_of_key(self, stream_id: int, key: bytes) -> SlotRef | None:
        """Find the live slot of an equal predicate, which a new query can share."""
        state = self.states.get(stream_id, _NOTHING)
        number = state.slot_keys.get(key)
        return None if number is None else state.slots[number]

    def next_slot(self, stream_id: int) -> int:
        """Return the number for a stream's next slot: above every number ever used."""
        return self.states.get(stream_id, _NOTHING).next_slot

    def leaves(self, query_id: int) -> tuple[LeafRef, ...]:
        """Return a query's leaves in order."""
        found: HeldLeaves = self.leaves_of.get(query_id, ())
        return found if type(found) is tuple else (found,)  # type: ignore[return-value]

    def leaves_by_query(self) -> Iterator[tuple[int, tuple[LeafRef, ...]]]:
        """Yield each query's id and its leaves in order, by the ids."""
        for query_id in self.leaves_of:
            yield query_id, self.leaves(query_id)

    def paths(self) -> dict[str, int]:
        """Map every file this version refers to, to its length (0 where it is not known)."""
        return {ref.path: ref.bytes for ref in self.files()}

    def files(self) -> Iterator[FileRef]:
        """Yield every reference to a file; several may refer to one file."""
        yield from self.segments_by_id.values()
        for matches in self.matches_of.values():
            yield from matches
        for deltas in self.deltas.values():
            yield from deltas
        for summary in self.summaries.values():
            if summary.file is not None:
                yield summary.file
        yield from self.joins.files()
