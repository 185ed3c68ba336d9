"""Messages of `pgoutput`, the plug-in by which PostgreSQL tells a subscriber of its changes.

The form is that of PostgreSQL's documentation, "Logical Replication Message Formats", version 1:
a message a change, between the `Begin` and the `Commit` of its transaction, whole transactions in
the order of their commits. Values are texts.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

#: PostgreSQL counts microseconds from 2000, Millpond from 1970.
_EPOCH = 946_684_800_000_000


class Unchanged:
    """The type of `UNCHANGED`."""

    def __repr__(self) -> str:
        return "UNCHANGED"


#: A value that is kept outside of its row (TOAST) and has not changed: it is not sent.
UNCHANGED = Unchanged()

#: A row as it is sent: by column a text, None for NULL, or `UNCHANGED`.
Sent = tuple[str | Unchanged | None, ...]


@dataclass(frozen=True)
class Begin:
    """A transaction begins; `at` is when it was committed, microseconds since 1970."""

    at: int


@dataclass(frozen=True)
class Commit:
    """The transaction ends; `end` is where its record ends in the server's log."""

    end: int


@dataclass(frozen=True)
class TableShape:
    """A table as it is from here on.

    Attributes:
        oid: The table's number, which it keeps when it is renamed.
        name: Its schema and name.
        identity: Its replica identity: 'd', 'n', 'f' or 'i'.
        columns: The names of its columns.
        keys: The columns by which changes name the old row.
    """

    oid: int
    name: str
    identity: str
    columns: tuple[str, ...]
    keys: frozenset[str]


@dataclass(frozen=True)
class SentChange:
    """A row came (no `old`), changed, or went (no `new`).

    `old` is None for a change that leaves the columns alone that name the row.
    """

    oid: int
    kind: str
    old: Sent | None
    new: Sent | None


@dataclass(frozen=True)
class Truncate:
    """All rows of tables went."""

    oids: tuple[int, ...]


@dataclass(frozen=True)
class Mark:
    """A message that somebody wrote into the log: all that was committed before was told.

    Attributes:
        at: Where its record ends in the server's log.
        is_in_transaction: Whether it is told with a transaction, so that it marks no place.
    """

    at: int
    is_in_transaction: bool


Message = Begin | Commit | TableShape | SentChange | Truncate | Mark


def read_message(data: bytes) -> Message | None:
    """Read a message; None for one that says nothing of rows (types, origins)."""
    kind, reader = chr(data[0]), _Reader(data)
    match kind:
        case "B":
            _, at, _ = reader.take("!QqI")
            return Begin(at + _EPOCH)
        case "C":
            _, _, end, _ = reader.take("!BQQq")
            return Commit(end)
        case "R":
            return _read_shape(reader)
        case "I" | "U" | "D":
            return _read_change(kind, reader)
        case "T":
            count, _ = reader.take("!IB")
            return Truncate(reader.take(f"!{count}I"))
        case "M":
            flags, at = reader.take("!BQ")
            return Mark(at, bool(flags & 1))
    return None


class _Reader:
    """Reads the parts of a message one behind the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 1

    def take(self, shape: str) -> tuple[int, ...]:
        found = struct.unpack_from(shape, self._data, self._at)
        self._at += struct.calcsize(shape)
        return found

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        found = self._data[self._at : end].decode()
        self._at = end + 1
        return found

    def letter(self) -> str:
        return chr(self.take("!B")[0])

    def row(self) -> Sent:
        (count,) = self.take("!H")
        return tuple(self._value() for _ in range(count))

    def _value(self) -> str | Unchanged | None:
        kind = self.letter()
        if kind == "n":
            return None
        if kind == "u":
            return UNCHANGED
        (length,) = self.take("!I")
        found = self._data[self._at : self._at + length].decode()
        self._at += length
        return found


def _read_shape(reader: _Reader) -> TableShape:
    (oid,) = reader.take("!I")
    schema, name = reader.text() or "pg_catalog", reader.text()
    identity = reader.letter()
    (count,) = reader.take("!H")
    columns, keys = [], set()
    for _ in range(count):
        (flags,) = reader.take("!B")
        column = reader.text()
        reader.take("!Ii")
        columns.append(column)
        if flags & 1:
            keys.add(column)
    return TableShape(oid, f"{schema}.{name}", identity, tuple(columns), frozenset(keys))


def _read_change(kind: str, reader: _Reader) -> SentChange:
    (oid,) = reader.take("!I")
    old: Sent | None = None
    part = reader.letter()
    if part in "KO":
        old = reader.row()
        if kind == "D":
            return SentChange(oid, kind, old, None)
        reader.letter()
    return SentChange(oid, kind, old, reader.row())
