"""What a reader does with the messages of a slot, without a server; with one: `tests/postgres`."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.catalog.objects import RelationDef, SourceDef
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.runtime.postgres.source_options import read_source
from millpond.service.ingest import slot_reader
from millpond.service.ingest.slot_reader import SlotReader, position_key
from millpond.service.pond import Pond
from millpond.testing.local_runtime import open_local

COLUMNS = Schema((Field("k", "INTEGER"), Field("v", "INTEGER")))


class Cursor:
    """What of psycopg2's cursor a reader tells the server by."""

    def __init__(self) -> None:
        self.confirmed: list[int] = []

    def send_feedback(self, flush_lsn: int, force: bool) -> None:
        self.confirmed.append(flush_lsn)


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_local(tmp_path / "store") as pond:
        yield pond


@pytest.fixture
def make_reader(pond: Pond) -> Callable[[], SlotReader]:
    """Makes readers of the tables 1 and 2, whose copies are of position 100."""
    parts = pond._components
    for oid in (1, 2):
        options = {"host": "h", "database": "d", "user": "u", "table": "t"}
        source = SourceDef("postgres", {**options, "slot": "s", "oid": str(oid)})
        relation = RelationDef(parts.log.next_id(), f"r{oid}", COLUMNS, ("k",), source=source)
        parts.relations_state.create_replicated(
            relation, COLUMNS.to_arrow().empty_table(), 0, [(position_key(relation.id), 100)]
        )

    def make() -> SlotReader:
        relations = [parts.log.version.find(f"r{oid}") for oid in (1, 2)]
        sources = [(r, read_source(r)) for r in relations if isinstance(r, RelationDef)]
        reader = SlotReader(sources, parts.log, parts.relations_state)
        reader._load()
        return reader

    return make


def transaction(at: int, end: int, *rows: tuple[int, int, int]) -> list[bytes]:
    """A transaction that inserts rows: the table, k and v of each.

    A table's shape comes before its first row in a transaction. A server says it anew only where it
    has changed, which makes no difference.
    """
    told = [b"B" + struct.pack("!QqI", end - 1, at - 946_684_800_000_000, 7)]
    for oid in sorted({oid for oid, _, _ in rows}):
        shape = struct.pack("!I", oid) + b"s\0t\0d" + struct.pack("!H", 2)
        shape += b"\1k\0" + struct.pack("!Ii", 23, -1) + b"\0v\0" + struct.pack("!Ii", 23, -1)
        told.append(b"R" + shape)
    for oid, k, v in rows:
        row = struct.pack("!H", 2)
        for value in (k, v):
            text = str(value).encode()
            row += b"t" + struct.pack("!I", len(text)) + text
        told.append(b"I" + struct.pack("!I", oid) + b"N" + row)
    return [*told, b"C" + struct.pack("!BQQq", 0, end - 1, end, 0)]


def held(pond: Pond, name: str) -> list[dict[str, Any]]:
    parts = pond._components
    relation = parts.log.version.find(name)
    assert isinstance(relation, RelationDef)
    return list(parts.relations_state.read_rows(parts.log.version, relation).table.to_pylist())


def test_a_transaction_is_one_epoch_and_one_instant(pond, make_reader):
    reader, cursor = make_reader(), Cursor()
    epoch = pond._components.log.version.epoch
    for message in transaction(50, 110, (1, 1, 1), (2, 1, 1), (1, 2, 2)):
        reader._take(message)
    reader._store(cursor)
    assert pond._components.log.version.epoch == epoch + 1
    assert [(row["k"], row["__from"]) for row in held(pond, "r1")] == [(1, 50), (2, 50)]
    assert [(row["k"], row["__from"]) for row in held(pond, "r2")] == [(1, 50)]
    assert cursor.confirmed == [109]


def test_time_does_not_go_back(pond, make_reader):
    reader, cursor = make_reader(), Cursor()
    for at, end in ((50, 110), (40, 120), (60, 130)):
        for message in transaction(at, end, (1, end, 0)):
            reader._take(message)
    reader._store(cursor)
    assert [row["__from"] for row in held(pond, "r1")] == [50, 50, 60]
    # Also where another process goes on.
    reader = make_reader()
    for message in transaction(30, 140, (2, 1, 0)):
        reader._take(message)
    reader._store(cursor)
    assert [row["__from"] for row in held(pond, "r2")] == [60]


def test_what_is_stored_is_left_out_when_it_is_told_again(pond, make_reader):
    reader, cursor = make_reader(), Cursor()
    early = transaction(10, 100, (1, 7, 7))  # it was in the rows that the relation began with
    first, second = transaction(50, 110, (1, 1, 1)), transaction(60, 120, (1, 2, 2), (2, 2, 2))
    for message in (*early, *first):
        reader._take(message)
    reader._store(cursor)
    reader = make_reader()  # nothing was confirmed: the server tells all of it again
    for message in (*early, *first, *second):
        reader._take(message)
    reader._store(cursor)
    assert [row["k"] for row in held(pond, "r1")] == [1, 2]
    assert [row["k"] for row in held(pond, "r2")] == [2]


def test_a_transaction_without_an_end_is_not_stored(pond, make_reader):
    reader = make_reader()
    for message in transaction(50, 110, (1, 1, 1))[:-1]:
        reader._take(message)
    reader._store(Cursor())
    assert held(pond, "r1") == []


def test_a_mark_within_a_transaction_marks_no_place(make_reader):
    reader = make_reader()
    for is_in_transaction, marked in ((1, 0), (0, 150)):
        reader._take(b"M" + struct.pack("!BQ", is_in_transaction, 150) + b"x\0\0\0\0\0")
        assert reader._marked == marked


def test_a_transaction_that_is_too_large_stops_the_reader(make_reader, monkeypatch):
    monkeypatch.setattr(slot_reader, "MOST_BYTES", 100)
    reader = make_reader()
    told = transaction(50, 110, *((1, k, 1) for k in range(9)))
    with pytest.raises(MillpondError, match="more than 100 bytes"):
        deque(map(reader._take, told), 0)
