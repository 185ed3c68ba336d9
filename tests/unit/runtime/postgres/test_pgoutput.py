"""Messages of pgoutput, as the documentation of their form has them."""

from __future__ import annotations

import struct

import pytest

from millpond.runtime.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Mark,
    SentChange,
    TableShape,
    Truncate,
    read_message,
)


def row(*values: str | object | None) -> bytes:
    found = struct.pack("!H", len(values))
    for value in values:
        if isinstance(value, str):
            text = value.encode()
            found += b"t" + struct.pack("!I", len(text)) + text
        else:
            found += b"n" if value is None else b"u"
    return found


OID = struct.pack("!I", 16_384)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"B" + struct.pack("!QqI", 7, 5, 700), Begin(946_684_800_000_005)),
        (b"C" + struct.pack("!BQQq", 0, 7, 2**40, 5), Commit(2**40)),
        (
            b"R" + OID + b"shop\0planes\0d" + struct.pack("!H", 2)
            + b"\1tail\0" + struct.pack("!Ii", 25, -1)
            + b"\0model\0" + struct.pack("!Ii", 25, -1),
            TableShape(16_384, "shop.planes", "d", ("tail", "model"), frozenset({"tail"})),
        ),
        (b"I" + OID + b"N" + row("N1", None), SentChange(16_384, "I", None, ("N1", None))),
        (
            b"U" + OID + b"N" + row("Łódź", UNCHANGED),
            SentChange(16_384, "U", None, ("Łódź", UNCHANGED)),
        ),
        (
            b"U" + OID + b"K" + row("N1", None) + b"N" + row("N2", ""),
            SentChange(16_384, "U", ("N1", None), ("N2", "")),
        ),
        (b"D" + OID + b"O" + row("N1", "x"), SentChange(16_384, "D", ("N1", "x"), None)),
        (b"T" + struct.pack("!IBII", 2, 3, 5, 6), Truncate((5, 6))),
        (b"M" + struct.pack("!BQ", 0, 99) + b"millpond\0\0\0\0\0", Mark(99, False)),
        (b"M" + struct.pack("!BQ", 1, 99) + b"other\0\0\0\0\0", Mark(99, True)),
        (b"Y" + OID + b"shop\0mood\0", None),
    ],
)  # fmt: skip
def test_messages(data: bytes, expected: object) -> None:
    assert read_message(data) == expected
