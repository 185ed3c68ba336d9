"""Makes the next Version: copies what a resolved change touches, and shares the rest.

The cost is in proportion to the change. A registration touches a handful of buckets, however many
queries there are. A batch touches the tuple of its own stream's segments, which merging keeps
short.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

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
from millpond.state.epoch.resolve_change import ResolvedChange
from millpond.state.epoch.resolve_joins import next_joins
from millpond.state.id_map import IdMap
from millpond.state.version import (
    MatchRef,
    RelationDelta,
    SegmentRef,
    SlotRef,
    StreamState,
    Version,
    hold_leaves,
)

_D = TypeVar("_D", StreamDef, RelationDef)
_V = TypeVar("_V")
_N = TypeVar("_N", FunctionDef, SummaryDef, SinkDef)


def next_version(version: Version, change: ResolvedChange) -> Version:
    """Make the version after `change`."""
    streams, relations, queries = version.streams, version.relations, version.queries
    put = (*change.add, *change.replace)
    if any(isinstance(d, StreamDef) for d in (*put, *change.drop)):
        streams = _change_definitions(streams, put, change.drop, StreamDef)
    if any(isinstance(d, RelationDef) for d in (*put, *change.drop)):
        relations = _change_definitions(relations, put, change.drop, RelationDef)
    queries = queries.with_changes(
        {d.id: d for d in put if isinstance(d, QueryDef)},
        drop=[d.id for d in change.drop if isinstance(d, QueryDef)],
    )
    return Version(
        epoch=change.epoch,
        streams=streams,
        relations=relations,
        queries=queries,
        ids=version.ids.with_changes(
            {fold_name(d.name): d.id for d in change.add},
            drop=[fold_name(d.name) for d in change.drop],
        ),
        states=_states(version, change),
        segments_by_id=version.segments_by_id.with_changes(
            {s.id: s for s in change.segments}, drop=[s.id for s in change.drop_segments]
        ),
        shared_files=change.shared_files,
        matches_of=_matches(version, change),
        deltas=_deltas(version, change),
        leaves_of=version.leaves_of.with_changes(
            {id: hold_leaves(own) for id, own in change.leaves.items()}, drop=change.drop_leaves
        ),
        functions=_change_by_name(version.functions, change.add_functions, change.drop_functions),
        joins=next_joins(version.joins, change.joins),
        summaries=_change_by_name(version.summaries, change.add_summaries, change.drop_summaries),
        sinks=_change_by_name(version.sinks, change.put_sinks, change.drop_sinks),
        settings=version.settings
        if change.settings is None
        else MappingProxyType(dict(change.settings)),
        additions=tuple(sorted({*version.additions, *find_additions(put)})),
    )


def find_additions(definitions: Iterable[object]) -> set[int]:
    """Find the epochs at which columns were added to streams among some definitions."""
    streams = (d for d in definitions if isinstance(d, StreamDef))
    return {field.added for stream in streams for field in stream.schema.added}


def _change_definitions(
    held: Mapping[int, _D], put: Iterable[Definition], drop: Iterable[Definition], kind: type[_D]
) -> Mapping[int, _D]:
    """Apply additions, replacements and drops to the definitions of one kind, by their ids."""
    changed = _copy(held)
    for definition in drop:
        changed.pop(definition.id, None)
    changed.update((d.id, d) for d in put if isinstance(d, kind))
    return MappingProxyType(changed)


def _copy(held: Mapping[int, _V]) -> dict[int, _V]:
    """Copy a mapping at once; `dict` and `**` read a mapping proxy key by key, ten times slower."""
    return held.copy() if isinstance(held, MappingProxyType) else dict(held)


def _change_by_name(
    held: Mapping[str, _N], put: Sequence[_N], drop: Sequence[_N]
) -> Mapping[str, _N]:
    """Apply additions, replacements and drops to definitions that have names of their own."""
    if not put and not drop:
        return held
    changed = dict(held)
    for definition in drop:
        changed.pop(fold_name(definition.name), None)
    changed.update((fold_name(definition.name), definition) for definition in put)
    return MappingProxyType(changed)


def _states(version: Version, change: ResolvedChange) -> Mapping[int, StreamState]:
    touched: dict[int, StreamState] = {}

    def state(stream_id: int) -> StreamState:
        found = touched.get(stream_id) or version.states.get(stream_id)
        return found or StreamState()

    leaving: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
    coming: defaultdict[tuple[int, str], list[SegmentRef]] = defaultdict(list)
    for segment in change.drop_segments:
        leaving[segment.stream_id, segment.kind].add(segment.id)
    for segment in change.segments:
        coming[segment.stream_id, segment.kind].append(segment)
    for stream_id, kind in {**leaving, **coming}:
        old = state(stream_id)
        segments = old.segments(kind)
        segments = _with_segments(segments, leaving[stream_id, kind], coming[stream_id, kind])
        touched[stream_id] = old.with_segments(kind, segments)
    for stream_id, clock in change.clocks.items():
        touched[stream_id] = replace(state(stream_id), clock=clock)
    by_stream: defaultdict[int, tuple[list[SlotRef], list[SlotRef]]] = defaultdict(lambda: ([], []))
    for slot in change.add_slots:
        by_stream[slot.stream_id][0].append(slot)
    for slot in change.drop_slots:
        by_stream[slot.stream_id][1].append(slot)
    for stream_id, (add, drop) in by_stream.items():
        touched[stream_id] = _with_slots(state(stream_id), add, drop)

    dropped = [d.id for d in change.drop if isinstance(d, StreamDef)]
    if not touched and not dropped:
        return version.states
    states = _copy(version.states)
    states.update(touched)
    for stream_id in dropped:
        states.pop(stream_id, None)
    return MappingProxyType(states)


def _with_segments(
    segments: tuple[SegmentRef, ...], leaving: set[int], coming: Iterable[SegmentRef]
) -> tuple[SegmentRef, ...]:
    kept = [s for s in segments if s.id not in leaving] if leaving else list(segments)
    for segment in coming:
        insort(kept, segment, key=lambda s: (s.min_ts, s.id))
    return tuple(kept)


def _with_slots(state: StreamState, add: Iterable[SlotRef], drop: Iterable[SlotRef]) -> StreamState:
    add, drop = list(add), list(drop)
    return replace(
        state,
        slots=state.slots.with_changes({s.slot: s for s in add}, drop=[s.slot for s in drop]),
        slot_keys=state.slot_keys.with_changes(
            {s.key: s.slot for s in add},
            drop=[s.key for s in drop if state.slot_keys.get(s.key) == s.slot],
        ),
        next_slot=max([state.next_slot, *(s.slot + 1 for s in add)]),
    )


def _matches(version: Version, change: ResolvedChange) -> IdMap[tuple[MatchRef, ...]]:
    put: dict[int, tuple[MatchRef, ...]] = {}
    gone = {match.id for match in change.drop_matches}
    for match in change.drop_matches:
        if match.segment_id not in put:
            old = version.matches(match.segment_id)
            put[match.segment_id] = tuple(m for m in old if m.id not in gone)
    for match in change.matches:
        if match.segment_id not in put:
            put[match.segment_id] = version.matches(match.segment_id)
        matches = (*put[match.segment_id], match)
        put[match.segment_id] = tuple(sorted(matches, key=lambda m: (m.low, m.id)))
    empty = [segment_id for segment_id, left in put.items() if not left]
    for segment_id in empty:
        del put[segment_id]
    return version.matches_of.with_changes(put, drop=empty)


def _deltas(version: Version, change: ResolvedChange) -> Mapping[int, tuple[RelationDelta, ...]]:
    if not change.add_deltas and not change.drop_deltas:
        return version.deltas
    deltas = dict(version.deltas)
    gone = {delta.path for delta in change.drop_deltas}
    for relation_id in {d.relation_id for d in (*change.add_deltas, *change.drop_deltas)}:
        kept = [d for d in version.relation_deltas(relation_id) if d.path not in gone]
        kept += [d for d in change.add_deltas if d.relation_id == relation_id]
        if kept:
            deltas[relation_id] = tuple(sorted(kept, key=lambda d: (d.epoch, d.path)))
        else:
            deltas.pop(relation_id, None)
    return MappingProxyType(deltas)
