"""The epoch log against the obvious model: dicts that are changed in place and deep-copied.

Random epochs are committed to both. Whatever happened (reopening, collecting, readers pinning and
letting go) the log's version shows what the model holds, every pinned version still shows what the
model held then, and the directory has exactly the files some of them refer to.
"""

import copy
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millpond.catalog.objects import QueryDef, RelationDef, StreamDef
from millpond.model.schema import Field, Schema
from millpond.state.database import database
from millpond.state.epoch.epoch_change import EpochChange, new_segment_id
from millpond.state.epoch_log import EpochLog
from millpond.state.version import (
    LeafRef,
    MatchRef,
    RelationDelta,
    SegmentRef,
    SlotRef,
    StreamClock,
)

SCHEMA = Schema((Field("a", "BIGINT"),))


class Model:
    """What the store holds, naively."""

    def __init__(self):
        self.epoch = 0
        self.definitions, self.segments, self.matches, self.clocks = {}, {}, {}, {}
        self.slots, self.next_slot, self.leaves, self.deltas, self.batches = {}, {}, {}, {}, {}

    def of(self, kind):
        return sorted(id for id, d in self.definitions.items() if isinstance(d, kind))

    def paths(self):
        return {
            x.path for kept in (self.segments, self.matches, self.deltas) for x in kept.values()
        }

    def drop(self, id):
        del self.definitions[id]
        for segment in [s for s in self.segments.values() if s.stream_id == id]:
            self.drop_segment(segment.id)
        self.clocks.pop(id, None)
        self.next_slot.pop(id, None)
        self.slots = {key: slot for key, slot in self.slots.items() if key[0] != id}
        self.leaves.pop(id, None)
        self.deltas = {path: d for path, d in self.deltas.items() if d.relation_id != id}

    def drop_segment(self, id):
        del self.segments[id]
        self.matches = {n: m for n, m in self.matches.items() if m.segment_id != id}

    def assert_shown_by(self, version):
        assert version.epoch == self.epoch
        assert dict(version.streams) == {id: self.definitions[id] for id in self.of(StreamDef)}
        assert dict(version.relations) == {id: self.definitions[id] for id in self.of(RelationDef)}
        assert dict(version.queries) == {id: self.definitions[id] for id in self.of(QueryDef)}
        assert version.names() == sorted(d.name for d in self.definitions.values())
        for definition in self.definitions.values():
            assert version.find(definition.name.upper()) == definition
        for stream in self.of(StreamDef):
            for kind in ("data", "rejects"):
                own = [s for s in self.segments.values() if (s.stream_id, s.kind) == (stream, kind)]
                own.sort(key=lambda s: (s.min_ts, s.id))
                assert version.segments(stream, kind) == tuple(own)
            assert version.clock(stream) == self.clocks.get(stream, StreamClock())
            assert version.next_slot(stream) == self.next_slot.get(stream, 0)
            slots = sorted(s.slot for s in self.slots.values() if s.stream_id == stream)
            assert [s.slot for s in version.slots(stream)] == slots
            for number in slots:
                slot = self.slots[stream, number]
                assert version.slot(stream, number) == slot
                assert version.slot_of_key(stream, slot.key) == slot
        for segment in self.segments.values():
            own = [m for m in self.matches.values() if m.segment_id == segment.id]
            assert version.matches(segment.id) == tuple(sorted(own, key=lambda m: (m.low, m.id)))
        for query in self.of(QueryDef):
            assert version.leaves(query) == self.leaves.get(query, ())
        for relation in self.of(RelationDef):
            own = [d for d in self.deltas.values() if d.relation_id == relation]
            own.sort(key=lambda d: (d.epoch, d.path))
            assert version.relation_deltas(relation) == tuple(own)
        assert version.paths().keys() == self.paths()
        assert dict(version.leaves_by_query()) == self.leaves
        assert dict(version.segments_by_id) == self.segments
        assert version.matches_of.keys() == {m.segment_id for m in self.matches.values()}
        assert version.deltas.keys() == {d.relation_id for d in self.deltas.values()}
        assert version.states.keys() <= set(self.of(StreamDef))


class EpochLogMachine(RuleBasedStateMachine):
    """Each rule commits one epoch to the log and to the model, or does something without effect."""

    @initialize()
    def create(self):
        self.directory = Path(tempfile.mkdtemp())
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(database, "_SNAPSHOT_BYTES", 1_000)
        self.patch.setattr(database, "_SNAPSHOT_SHARE", 0)
        self.log = EpochLog.open(self.directory, clock=lambda: 0)
        self.model = Model()
        self.files = 0
        self.readers = []
        self.numbers = {"segment": 1, "match": 1}

    def teardown(self):
        for pin, _, _ in self.readers:
            pin.__exit__(None, None, None)
        self.log.close()
        self.patch.undo()
        shutil.rmtree(self.directory)

    def file(self):
        self.files += 1
        path = f"f{self.files}"
        (self.directory / path).touch()
        return path

    def number(self, name):
        self.numbers[name] += 1
        return self.numbers[name] - 1

    def commit(self, **change):
        self.log.commit(EpochChange(kind="test", **change))
        self.model.epoch += 1

    @rule(kind=st.sampled_from(["stream", "relation", "query"]))
    def add(self, kind):
        id = self.log.next_id()
        name = f"Name{id}"
        definition = {
            "stream": StreamDef(id, name, SCHEMA),
            "relation": RelationDef(id, name, SCHEMA),
            "query": QueryDef(id, name, "…", {}, self.model.epoch + 1),
        }[kind]
        self.commit(add=[definition])
        self.model.definitions[id] = definition

    @precondition(lambda self: self.model.definitions)
    @rule(data=st.data())
    def drop(self, data):
        chosen = data.draw(st.sets(st.sampled_from(sorted(self.model.definitions)), max_size=3))
        self.commit(drop=sorted(chosen))
        for id in chosen:
            self.model.drop(id)

    @precondition(lambda self: self.model.of(StreamDef))
    @rule(data=st.data(), times=st.lists(st.integers(0, 9), max_size=3))
    def batch(self, data, times):
        stream = data.draw(st.sampled_from(self.model.of(StreamDef)))
        kind = data.draw(st.sampled_from(["data", "rejects"]))
        new = [
            SegmentRef(0, stream, kind, 0, 0, self.file(), 1, ts, ts, ((0, 0),), "c", 1)
            for ts in times
        ]
        matches = [
            MatchRef(0, new_segment_id(i), low, low + 1, self.file(), "c", 1)
            for i in range(len(new))
            for low in data.draw(st.sets(st.integers(0, 3), max_size=2))
        ]
        clock = StreamClock(high=data.draw(st.integers(0, 99)), next_seq=self.model.epoch)
        batch_id = self.model.batches.get("s", -1) + 1
        self.commit(
            segments=new, matches=matches, clocks={stream: clock}, batches=[("s", batch_id)]
        )
        self.model.batches["s"] = batch_id
        self.model.clocks[stream] = clock
        ids = [self.number("segment") for _ in new]
        for id, segment in zip(ids, new, strict=True):
            self.model.segments[id] = replace(segment, id=id, epoch=self.model.epoch)
        for match in matches:
            number = self.number("match")
            owner = ids[-1 - match.segment_id]
            self.model.matches[number] = replace(match, id=number, segment_id=owner)

    @precondition(lambda self: self.model.segments)
    @rule(data=st.data())
    def backfill(self, data):
        owner = data.draw(st.sampled_from(sorted(self.model.segments)))
        old = [m for m in self.model.matches.values() if m.segment_id == owner]
        dropped = data.draw(st.lists(st.sampled_from(old), unique=True)) if old else []
        match = MatchRef(0, owner, data.draw(st.integers(0, 3)), 5, self.file(), "c", 1)
        self.commit(matches=[match], drop_matches=dropped)
        for gone in dropped:
            del self.model.matches[gone.id]
        number = self.number("match")
        self.model.matches[number] = replace(match, id=number)

    @precondition(lambda self: len(self.model.segments) > 1)
    @rule(data=st.data())
    def merge_or_expire(self, data):
        gone = data.draw(st.sets(st.sampled_from(sorted(self.model.segments)), min_size=1))
        parts = [self.model.segments[id] for id in sorted(gone)]
        first = parts[0]
        together = all((s.stream_id, s.kind) == (first.stream_id, first.kind) for s in parts)
        if not together or data.draw(st.booleans()):
            self.commit(expired=[*gone, 10_000])
        else:
            merged = SegmentRef(
                **{**vars(first), "id": 0, "path": self.file(), "epoch": parts[-1].epoch}
            )
            self.commit(segments=[merged], replaced=sorted(gone))
            id = self.number("segment")
            self.model.segments[id] = replace(merged, id=id)
        for id in gone:
            self.model.drop_segment(id)

    @precondition(lambda self: self.model.of(StreamDef))
    @rule(data=st.data(), count=st.integers(1, 3))
    def register(self, data, count):
        stream = data.draw(st.sampled_from(self.model.of(StreamDef)))
        query = self.log.next_id()
        low = self.log.version.next_slot(stream)
        slots = [SlotRef(stream, low + i, f"key {low + i}".encode(), b"\0f") for i in range(count)]
        leaves = tuple(LeafRef(query, i, stream, s.slot) for i, s in enumerate(slots))
        definition = QueryDef(query, f"Name{query}", "…", {"weight": 0.5}, self.model.epoch + 1)
        self.commit(add=[definition], add_slots=slots, add_leaves=leaves)
        self.model.definitions[query] = definition
        self.model.leaves[query] = leaves
        self.model.next_slot[stream] = low + count
        self.model.slots.update(((stream, s.slot), s) for s in slots)

    @precondition(lambda self: self.model.slots)
    @rule(data=st.data())
    def drop_slots(self, data):
        gone = data.draw(st.sets(st.sampled_from(sorted(self.model.slots)), min_size=1))
        self.commit(drop_slots=sorted(gone))
        for key in gone:
            del self.model.slots[key]

    @precondition(lambda self: self.model.of(RelationDef))
    @rule(data=st.data())
    def update_relation(self, data):
        relation = data.draw(st.sampled_from(self.model.of(RelationDef)))
        old = [d for d in self.model.deltas.values() if d.relation_id == relation]
        folded = old if data.draw(st.booleans()) else []
        epoch = max([d.epoch for d in folded], default=0)
        delta = RelationDelta(relation, epoch, self.file(), "c", 1, 1)
        self.commit(add_deltas=[delta], drop_deltas=folded)
        for gone in folded:
            del self.model.deltas[gone.path]
        self.model.deltas[delta.path] = RelationDelta(
            **{**vars(delta), "epoch": epoch or self.model.epoch}
        )

    @rule()
    def pin(self):
        pin = self.log.pin()
        self.readers.append((pin, pin.__enter__(), copy.deepcopy(self.model)))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def let_go(self, data):
        place = data.draw(st.integers(0, len(self.readers) - 1))
        self.readers.pop(place)[0].__exit__(None, None, None)

    @rule()
    def collect(self):
        self.log.collect()
        needed = self.model.paths().union(*(model.paths() for _, _, model in self.readers))
        found = {file.name for file in self.directory.glob("f*")}
        assert needed <= found
        if not self.readers:
            assert found == needed

    @rule(takes_snapshot=st.booleans(), loses=st.sampled_from(["nothing", "its end", "its log"]))
    def reopen(self, takes_snapshot, loses):
        """Open again: as it was closed, or as a machine leaves it that lost the database's end."""
        while self.readers:
            self.readers.pop()[0].__exit__(None, None, None)
        self.log.collect()
        if takes_snapshot:
            self.log.snapshot_if_due()
        file = self.directory / "pond.db"
        if loses == "its log":  # the journal has all of it, SQLite's main file only a part
            shutil.copy(file, self.directory / "kept")
            self.log.close()
            shutil.copy(self.directory / "kept", file)
        else:
            self.log.close()
            if loses == "its end" and (self.directory / "earlier").exists():
                shutil.copy(self.directory / "earlier", file)
        shutil.copy(file, self.directory / "earlier")
        self.log = EpochLog.open(self.directory, clock=lambda: 0)

    @invariant()
    def the_version_shows_the_model(self):
        self.model.assert_shown_by(self.log.version)
        last = self.model.batches.get("s", -1)
        assert not self.log.is_committed("s", last + 1)
        assert last < 0 or self.log.is_committed("s", last)

    @invariant()
    def every_reader_sees_what_it_saw(self):
        for _, version, model in self.readers:
            model.assert_shown_by(version)


EpochLogMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=40)
TestEpochLog = EpochLogMachine.TestCase
