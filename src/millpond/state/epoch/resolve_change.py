"""Resolves a change: decides what it means for the version it meets.

`resolve_change` numbers new things, leaves out those whose object has gone meanwhile (matches of a
segment that was merged away, a batch's rows of a stream that was dropped), and refuses a change
that would no longer be right (`StaleChange`). The `ResolvedChange` is then written to SQLite and
applied to the version with no further decisions, so that the database and the version agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from millpond.catalog.objects import (
    Definition,
    FunctionDef,
    QueryDef,
    RelationDef,
    StreamDef,
    SummaryDef,
    fold_name,
)
from millpond.catalog.sink_def import SinkDef
from millpond.errors import MillpondError
from millpond.model.names import check_name
from millpond.state.bucket_map import BucketMap
from millpond.state.epoch.epoch_change import EpochChange, StaleChange
from millpond.state.epoch.resolve_joins import ResolvedJoins, StaleJoin, resolve_joins
from millpond.state.version import (
    DATA,
    REJECTS,
    SHED,
    WAITING,
    LeafRef,
    MatchRef,
    RelationDelta,
    SegmentRef,
    SlotRef,
    StreamClock,
    Version,
    count_shares,
)


@dataclass(frozen=True, kw_only=True)
class ResolvedChange:
    """An `EpochChange` with its ids and epochs filled in and all its consequences listed."""

    epoch: int
    kind: str
    batches: tuple[tuple[str, int], ...]
    add: tuple[Definition, ...]
    replace: tuple[Definition, ...]
    drop: tuple[Definition, ...]
    add_functions: tuple[FunctionDef, ...]
    drop_functions: tuple[FunctionDef, ...]
    add_summaries: tuple[SummaryDef, ...]
    drop_summaries: tuple[SummaryDef, ...]
    put_sinks: tuple[SinkDef, ...]
    drop_sinks: tuple[SinkDef, ...]
    segments: tuple[SegmentRef, ...]
    drop_segments: tuple[SegmentRef, ...]
    matches: tuple[MatchRef, ...]
    drop_matches: tuple[MatchRef, ...]
    clocks: dict[int, StreamClock]
    add_slots: tuple[SlotRef, ...]
    drop_slots: tuple[SlotRef, ...]
    leaves: dict[int, tuple[LeafRef, ...]]
    drop_leaves: frozenset[int]
    add_deltas: tuple[RelationDelta, ...]
    drop_deltas: tuple[RelationDelta, ...]
    joins: ResolvedJoins
    inbox_done: tuple[int, ...]
    settings: Mapping[str, Any] | None
    #: `Version.shared_files` after this epoch.
    shared_files: BucketMap[str, tuple[int, int]]
    #: Paths the new version does not refer to: this epoch drops them or leaves them out.
    unreferenced: tuple[str, ...]


def resolve_change(
    change: EpochChange, version: Version, next_segment: int, next_match: int, next_join: int = 1
) -> ResolvedChange:
    """Resolve a change as the epoch after `version`; number new things from the given numbers on.

    Raises:
        StaleChange: the change no longer fits the version.
        MillpondError: CQL-208, a name is taken; CQL-102, it cannot be a name.
    """
    epoch = version.epoch + 1
    add = tuple(change.add)
    for definition in add:
        if isinstance(definition, QueryDef) and definition.registered_epoch == 0:
            definition.note_registered(epoch)
    drop = tuple(_get_live(version, id) for id in change.drop)
    names = _FutureDefinitions(version, add, change.replace, drop)
    names.check()

    segments = {
        index: replace(segment, id=next_segment + index, epoch=segment.epoch or epoch)
        for index, segment in enumerate(change.segments)
        if names.has_stream(segment.stream_id)
    }
    drop_segments = tuple(_find_leaving_segments(change, version, drop))
    gone = {segment.id for segment in drop_segments}
    matches = tuple(_resolve_matches(change, version, segments, gone, next_match))
    drop_matches = tuple(
        {
            match.id: match
            for match in (
                *(m for id in gone for m in version.matches(id)),
                *(m for m in change.drop_matches if m in version.matches(m.segment_id)),
            )
        }.values()
    )
    deltas = tuple(
        replace(delta, epoch=delta.epoch or epoch)
        for delta in change.add_deltas
        if names.has_relation(delta.relation_id)
    )
    drop_deltas = tuple(_find_leaving_deltas(change, version, drop))
    shared_files, left_files = count_shares(version.shared_files, segments.values(), drop_segments)
    kept_files = {s.path for s in segments.values()}
    left_summaries = tuple(_find_leaving_summaries(change, version, names))
    try:
        joins = resolve_joins(
            change.joins,
            version.joins,
            next_join,
            [d.id for d in drop if isinstance(d, QueryDef)],
            gone,
            version.segments_by_id,
        )
    except StaleJoin as error:
        raise StaleChange(str(error)) from error
    return ResolvedChange(
        epoch=epoch,
        kind=change.kind,
        batches=tuple(change.batches),
        add=add,
        replace=tuple(change.replace),
        drop=drop,
        add_functions=tuple(change.add_functions),
        drop_functions=_find_leaving_functions(change, version),
        add_summaries=tuple(change.add_summaries),
        drop_summaries=left_summaries,
        put_sinks=_resolve_sinks(change, version),
        drop_sinks=tuple(change.drop_sinks),
        segments=tuple(segments.values()),
        drop_segments=drop_segments,
        matches=matches,
        drop_matches=drop_matches,
        clocks={id: clock for id, clock in change.clocks.items() if names.has_stream(id)},
        add_slots=tuple(_resolve_slots(change, version, names)),
        drop_slots=tuple(_find_leaving_slots(change, version, drop)),
        leaves=_resolve_leaves(change, names),
        drop_leaves=frozenset(change.drop_leaves) | {d.id for d in drop if isinstance(d, QueryDef)},
        add_deltas=deltas,
        drop_deltas=drop_deltas,
        joins=joins,
        inbox_done=tuple(change.inbox_done),
        settings=change.settings,
        shared_files=shared_files,
        unreferenced=(
            *joins.unreferenced,
            *({s.path for i, s in enumerate(change.segments) if i not in segments} - kept_files),
            *({m.path for m in change.matches} - {m.path for m in matches}),
            *({d.path for d in change.add_deltas} - {d.path for d in deltas}),
            # A segment that goes over to another stream keeps its file.
            *left_files,
            *(match.path for match in drop_matches),
            *(delta.path for delta in drop_deltas),
            *(s.file.path for s in left_summaries if s.file is not None),
        ),
    )


class _FutureDefinitions:
    """The definitions as they are once the change is made."""

    def __init__(
        self,
        version: Version,
        add: Iterable[Definition],
        replaced: Iterable[Definition],
        drop: Iterable[Definition],
    ) -> None:
        self.version = version
        self.added = {definition.id: definition for definition in add}
        self.replaced = list(replaced)
        self.dropped = {definition.id for definition in drop}

    def check(self) -> None:
        """Refuse a name that is taken or cannot be one, a live new id, an absent replaced id."""
        taken: set[str] = set()
        for id, definition in self.added.items():
            check_name(definition.name)
            folded = definition.name.lower()
            holder = self.version.ids.get(folded)
            if folded in taken or (holder is not None and holder not in self.dropped):
                raise MillpondError(
                    "CQL-208",
                    f'the name "{definition.name}" is taken',
                    hint="Choose another name, or drop what has it first.",
                )
            taken.add(folded)
            if self.version.definition(id) is not None:
                raise StaleChange(f"definition {id} is there already")
        for definition in self.replaced:
            old = self.version.definition(definition.id)
            if (
                old is None
                or definition.id in self.dropped
                or type(old) is not type(definition)
                or old.name.lower() != definition.name.lower()
            ):
                raise StaleChange(f'"{definition.name}" is not what it was')

    def find(self, id: int) -> Definition | None:
        if id in self.added:
            return self.added[id]
        return None if id in self.dropped else self.version.definition(id)

    def has_stream(self, id: int) -> bool:
        return isinstance(self.find(id), StreamDef)

    def has_relation(self, id: int) -> bool:
        return isinstance(self.find(id), RelationDef)

    def has_query(self, id: int) -> bool:
        return isinstance(self.find(id), QueryDef)


def _get_live(version: Version, id: int) -> Definition:
    definition = version.definition(id)
    if definition is None:
        raise StaleChange(f"definition {id} is not there any more")
    return definition


def _find_leaving_functions(change: EpochChange, version: Version) -> tuple[FunctionDef, ...]:
    """Find the functions that the change drops or replaces."""
    names = {f.name for f in (*change.add_functions, *change.drop_functions)}
    return tuple(version.functions[name] for name in names & version.functions.keys())


def _find_leaving_summaries(
    change: EpochChange, version: Version, names: _FutureDefinitions
) -> Iterable[SummaryDef]:
    """Find the summaries that are dropped, or stored elsewhere now.

    Raises:
        StaleChange: a summary that is to be stored is gone.
        MillpondError: CQL-208, a new summary's name is taken.
    """
    for definition in change.add_summaries:
        held = version.summaries.get(fold_name(definition.name))
        if held is None:
            check_name(definition.name)
        if definition.file is not None or (held is not None and held.id == definition.id):
            if held is None or held.id != definition.id:
                raise StaleChange(f'summary "{definition.name}" is not there any more')
            yield held
        elif held is not None:
            raise MillpondError(
                "CQL-208",
                f'there is a summary "{definition.name}" already',
                hint="Choose another name, or DROP SUMMARY the other first.",
            )
        elif not names.has_stream(definition.stream_id):
            raise StaleChange(f'stream "{definition.stream}" is not there any more')
    for definition in change.drop_summaries:
        held = version.summaries.get(fold_name(definition.name))
        if held is None or held.id != definition.id:
            raise StaleChange(f'summary "{definition.name}" is not there any more')
        yield held


def _resolve_sinks(change: EpochChange, version: Version) -> tuple[SinkDef, ...]:
    """The sinks that are put into the version.

    Raises:
        StaleChange: a sink that is replaced or dropped is gone.
        MillpondError: CQL-208, a new sink's name is taken; CQL-102, it cannot be a name.
    """
    for definition in change.add_sinks:
        check_name(definition.name)
        if fold_name(definition.name) in version.sinks:
            raise MillpondError(
                "CQL-208",
                f'there is a sink "{definition.name}" already',
                hint="Choose another name, or DROP SINK the other first.",
            )
    for definition in (*change.replace_sinks, *change.drop_sinks):
        held = version.sinks.get(fold_name(definition.name))
        if held is None or held.id != definition.id:
            raise StaleChange(f'sink "{definition.name}" is not there any more')
    return (*change.add_sinks, *change.replace_sinks)


def _find_leaving_segments(
    change: EpochChange, version: Version, drop: Iterable[Definition]
) -> Iterable[SegmentRef]:
    leaving: dict[int, SegmentRef] = {}
    for id in change.replaced:
        segment = version.segment(id)
        if segment is None:
            raise StaleChange(f"segment {id} is not there any more")
        leaving[id] = segment
    for id in change.expired:
        if (segment := version.segment(id)) is not None:
            leaving[id] = segment
    for definition in drop:
        if isinstance(definition, StreamDef):
            for kind in (DATA, REJECTS, SHED, WAITING):
                leaving.update((s.id, s) for s in version.segments(definition.id, kind))
    return leaving.values()


def _resolve_matches(
    change: EpochChange,
    version: Version,
    segments: dict[int, SegmentRef],
    gone: set[int],
    next_match: int,
) -> Iterable[MatchRef]:
    for number, match in enumerate(change.matches, next_match):
        if match.segment_id < 0:
            owner = segments.get(-1 - match.segment_id)
        else:
            owner = version.segment(match.segment_id)
        if owner is not None and owner.id not in gone:
            yield replace(match, id=number, segment_id=owner.id)


def _find_leaving_deltas(
    change: EpochChange, version: Version, drop: Iterable[Definition]
) -> Iterable[RelationDelta]:
    for delta in change.drop_deltas:
        if delta not in version.relation_deltas(delta.relation_id):
            raise StaleChange(f"relation delta {delta.path} is not there any more")
    leaving = {delta.path: delta for delta in change.drop_deltas}
    for definition in drop:
        leaving.update((delta.path, delta) for delta in version.relation_deltas(definition.id))
    return leaving.values()


def _resolve_slots(
    change: EpochChange, version: Version, names: _FutureDefinitions
) -> Iterable[SlotRef]:
    next_slot: dict[int, int] = {}
    for slot in change.add_slots:
        least = next_slot.get(slot.stream_id)
        if least is None:
            if not names.has_stream(slot.stream_id):
                raise StaleChange(f"stream {slot.stream_id} is not there any more")
            least = version.next_slot(slot.stream_id)
        if slot.slot < least:
            raise StaleChange(f"slot {slot.slot} of stream {slot.stream_id} was used before")
        next_slot[slot.stream_id] = slot.slot + 1
        yield slot


def _find_leaving_slots(
    change: EpochChange, version: Version, drop: Iterable[Definition]
) -> Iterable[SlotRef]:
    leaving = {(id, number): version.slot(id, number) for id, number in change.drop_slots}
    for definition in drop:
        leaving.update(((s.stream_id, s.slot), s) for s in version.slots(definition.id))
    return (slot for slot in leaving.values() if slot is not None)


def _resolve_leaves(
    change: EpochChange, names: _FutureDefinitions
) -> dict[int, tuple[LeafRef, ...]]:
    leaves: dict[int, list[LeafRef]] = {}
    streams = {id for id in {leaf.stream_id for leaf in change.add_leaves} if names.has_stream(id)}
    for leaf in change.add_leaves:
        if leaf.stream_id not in streams or not names.has_query(leaf.query_id):
            raise StaleChange(f"leaf {leaf.leaf} of query {leaf.query_id} has lost its object")
        leaves.setdefault(leaf.query_id, []).append(leaf)
    return {id: tuple(sorted(own, key=attrgetter("leaf"))) for id, own in leaves.items()}
