"""Reads from SQLite the version that the last committed epoch made."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
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
from millpond.state.bucket_map import BucketMap
from millpond.state.database.database import Database
from millpond.state.database.join_rows import read_joins
from millpond.state.database_tables import SETTINGS, definition_of
from millpond.state.epoch.next_version import find_additions
from millpond.state.id_map import IdMap
from millpond.state.version import (
    DATA,
    REJECTS,
    SHED,
    WAITING,
    HeldLeaves,
    LeafRef,
    MatchRef,
    RelationDelta,
    SegmentRef,
    SlotRef,
    StreamClock,
    StreamState,
    Version,
    count_shares,
    hold_leaves,
)


def read_version(database: Database) -> Version:
    """Read the version of the last epoch in the database."""
    with database.lock:
        epoch = database.read("SELECT coalesce(max(epoch), 0) FROM epoch")[0][0]
        definitions: list[Definition] = []
        functions: dict[str, FunctionDef] = {}
        summaries: dict[str, SummaryDef] = {}
        sinks: dict[str, SinkDef] = {}
        settings: dict[str, Any] = {}
        numbers = _Numbers()
        decode = json.JSONDecoder(parse_int=numbers.read).decode
        for id, kind, body in database.each("SELECT id, kind, body FROM definition"):
            if kind == SETTINGS:
                settings = json.loads(body)
                continue
            definition = definition_of(numbers.one(id), kind, body, decode)
            if isinstance(definition, FunctionDef):
                functions[definition.name] = definition
            elif isinstance(definition, SummaryDef):
                summaries[fold_name(definition.name)] = definition
            elif isinstance(definition, SinkDef):
                sinks[fold_name(definition.name)] = definition
            else:
                definitions.append(definition)
        segments = _segments(database)
        rows = database.each("SELECT * FROM leaf ORDER BY query_id, leaf")
        leaves = {
            numbers.one(id): hold_leaves(LeafRef(*map(numbers.one, row)) for row in own)
            for id, own in groupby(rows, itemgetter(0))
        }
        matches: defaultdict[int, list[MatchRef]] = defaultdict(list)
        for row in database.read("SELECT * FROM matches ORDER BY segment_id, low, id"):
            matches[row[1]].append(MatchRef(*row))
        deltas: defaultdict[int, list[RelationDelta]] = defaultdict(list)
        for row in database.read(
            "SELECT relation_id, epoch, path, checksum, rows, bytes FROM relation_delta"
            " ORDER BY relation_id, epoch, path"
        ):
            deltas[row[0]].append(RelationDelta(*row))
        return Version(
            epoch=epoch,
            streams=MappingProxyType({d.id: d for d in definitions if isinstance(d, StreamDef)}),
            relations=MappingProxyType(
                {d.id: d for d in definitions if isinstance(d, RelationDef)}
            ),
            queries=IdMap[QueryDef]().with_changes(
                {d.id: d for d in definitions if isinstance(d, QueryDef)}
            ),
            ids=BucketMap[str, int]().with_changes({fold_name(d.name): d.id for d in definitions}),
            states=MappingProxyType(_states(database, segments, numbers)),
            segments_by_id=IdMap[SegmentRef]().with_changes({s.id: s for s in segments}),
            shared_files=count_shares(BucketMap[str, tuple[int, int]](), segments)[0],
            matches_of=IdMap[tuple[MatchRef, ...]]().with_changes(
                {id: tuple(own) for id, own in matches.items()}
            ),
            deltas=MappingProxyType({id: tuple(own) for id, own in deltas.items()}),
            leaves_of=IdMap[HeldLeaves]().with_changes(leaves),
            functions=MappingProxyType(functions),
            joins=read_joins(database),
            summaries=MappingProxyType(summaries),
            sinks=MappingProxyType(sinks),
            settings=MappingProxyType(settings),
            additions=tuple(sorted(find_additions(definitions))),
        )


class _Numbers:
    """Gives one object for equal numbers, because tens of thousands of queries share many."""

    def __init__(self) -> None:
        self._known: dict[int | None, int | None] = {}

    def one(self, number: Any) -> Any:
        return self._known.setdefault(number, number)

    def read(self, digits: str) -> Any:
        return self.one(int(digits))


def _segments(database: Database) -> list[SegmentRef]:
    found = []
    for row in database.read("SELECT * FROM segment ORDER BY min_ts, id"):
        values = list(row)
        values[9] = tuple((start, base) for start, base in json.loads(row[9]))
        found.append(SegmentRef(*values))
    return found


def _states(
    database: Database, segments: list[SegmentRef], numbers: _Numbers
) -> dict[int, StreamState]:
    kinds: dict[str, defaultdict[int, list[SegmentRef]]] = {
        kind: defaultdict(list) for kind in (DATA, REJECTS, SHED, WAITING)
    }
    for segment in segments:
        kinds[segment.kind][segment.stream_id].append(segment)
    clocks = {}
    partitions: defaultdict[int, dict[str, tuple[int | None, int]]] = defaultdict(dict)
    for id, name, high, arrived_at in database.read("SELECT * FROM partition"):
        partitions[id][name] = high, arrived_at
    for id, *values in database.read("SELECT * FROM clock"):
        values[5] = bool(values[5])
        clocks[id] = replace(StreamClock(*values), partitions=partitions.get(id, {}))
    slots: defaultdict[int, dict[int, SlotRef]] = defaultdict(dict)
    for row in database.each("SELECT * FROM slot ORDER BY stream_id, slot"):
        stream_id, slot, *predicate = row
        slots[stream_id][numbers.one(slot)] = SlotRef(
            numbers.one(stream_id), numbers.one(slot), *predicate
        )
    floors = dict(database.read("SELECT stream_id, next_slot FROM slot_floor"))
    return {
        id: StreamState(
            data=tuple(kinds[DATA].get(id, ())),
            rejects=tuple(kinds[REJECTS].get(id, ())),
            shed=tuple(kinds[SHED].get(id, ())),
            waiting=tuple(kinds[WAITING].get(id, ())),
            clock=clocks.get(id, StreamClock()),
            slots=IdMap[SlotRef]().with_changes(slots.get(id, {})),
            slot_keys=BucketMap[bytes, int]().with_changes(
                {slot.key: number for number, slot in slots.get(id, {}).items()}
            ),
            next_slot=floors.get(id, 0),
        )
        for id in set().union(*kinds.values(), clocks, slots, floors)
    }
