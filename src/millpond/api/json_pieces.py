"""Rows as JSON, written piece by piece: as values of Python they take ten times their bytes.

A piece has few rows and few bytes. A row that alone has more, such as a list of millions of texts,
is cut within its values: a list in its elements, a struct in its fields, a text in its characters.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from millpond.service.json_values import dumps, json_columns, to_json_value
from millpond.service.results import python_values

#: Rows, or values, and bytes of them that are turned into JSON at once.
_PIECE = 10_000
_PIECE_BYTES = 4 << 20
#: Values within lists, of whatever depth, that are turned into JSON at once.
_PIECE_VALUES = 50_000
#: Of one long text; a multiple of three, so that base64 of its pieces is that of the whole.
_TEXT_BYTES = 3 << 18

#: The values that are cut.
_CUT = (
    pa.ListScalar,
    pa.StructScalar,
    pa.BinaryScalar,  # a text is one, too
    pa.ExtensionScalar,
)

Write = Callable[[bytes], object]
Cut = TypeVar("Cut", pa.Table, pa.Array)


def cut_into_pieces(rows: Cut) -> Iterator[Cut]:
    """Cut rows into pieces of few rows and few bytes; a wide row is a piece of its own."""
    if len(rows) <= 1 or (len(rows) <= _PIECE and not is_large(rows)):
        if len(rows):
            yield rows
        return
    half = len(rows) // 2
    yield from cut_into_pieces(rows.slice(0, half))
    yield from cut_into_pieces(rows.slice(half))


def is_large(rows: pa.Table | pa.ChunkedArray | pa.Array) -> bool:
    """Whether rows have more bytes, or more values within lists, than a piece."""
    if rows.nbytes > _PIECE_BYTES:
        return True
    columns = rows.columns if isinstance(rows, pa.Table) else [rows]
    return any(
        sum(map(_count_values, c.chunks if isinstance(c, pa.ChunkedArray) else [c])) > _PIECE_VALUES
        for c in columns
        if pa.types.is_nested(c.type)
    )


def _count_values(array: pa.Array) -> int:
    """How many values an array has, with those within its lists and structs."""
    if pa.types.is_struct(array.type):
        return len(array) + sum(map(_count_values, array.flatten()))
    if pa.types.is_map(array.type):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return len(array) + sum(
            _count_values(part.slice(first, last - first)) for part in (array.keys, array.items)
        )
    if pa.types.is_nested(array.type) and not pa.types.is_union(array.type):
        return len(array) + _count_values(array.flatten())
    return len(array)


def write_rows(table: pa.Table, write: Write) -> None:
    """Write each row as an array, with commas between them."""
    comma = b""
    for part in cut_into_pieces(table):
        write(comma)
        comma = b","
        if is_large(part):
            write(b"[")
            _write_columns(part, [b""] + [b","] * (part.num_columns - 1), write)
            write(b"]")
        else:
            write(dumps(list(zip(*json_columns(part), strict=True)))[1:-1])


def write_objects(table: pa.Table, write: Write) -> None:
    """Write each row as an object on a line of its own; of equal names the last one counts."""
    names = table.column_names
    for part in cut_into_pieces(table):
        if is_large(part):
            last = list({name: column for column, name in enumerate(names)}.values())
            heads = [dumps(names[column]) + b":" for column in last]
            write(b"{")
            _write_columns(part.select(last), heads[:1] + [b"," + h for h in heads[1:]], write)
            write(b"}\n")
        else:
            rows = zip(*json_columns(part), strict=True)
            write(b"".join(dumps(dict(zip(names, row, strict=True))) + b"\n" for row in rows))


def _write_columns(row: pa.Table, heads: list[bytes], write: Write) -> None:
    """Write the values of one row, each after its head."""
    for column, head in zip(range(row.num_columns), heads, strict=True):
        write(head)
        value = row.column(column)
        if is_large(value) and isinstance(value[0], _CUT):
            _write_value(value[0], write)
        else:
            write(dumps(json_columns(row.select([column]))[0][0]))


def _write_value(value: pa.Scalar, write: Write) -> None:
    """Write one value that may be large, as `to_json_value` of its Python value."""
    if isinstance(value, pa.ExtensionScalar):
        value = value.value
    if not value.is_valid:
        write(b"null")
    elif isinstance(value, pa.ListScalar):
        is_map = isinstance(value, pa.MapScalar)
        write(b"[")
        comma = b""
        for part in cut_into_pieces(value.values):
            write(comma)
            comma = b","
            (_write_entries if is_map else _write_values)(part, write)
        write(b"]")
    elif isinstance(value, pa.StructScalar):
        head = b"{"
        for name, part in value.items():
            write(head + dumps(name) + b":")
            head = b","
            _write_value(part, write)
        write(b"}")
    elif isinstance(value, pa.StringScalar):
        _write_text(value.as_buffer(), write)
    elif isinstance(value, pa.BinaryScalar):
        _write_binary(value.as_buffer(), write)
    else:
        write(dumps(_nested_values(pa.array([value], value.type))[0]))


def _write_values(values: pa.Array, write: Write) -> None:
    """Write a piece of a list's values, with commas between them."""
    if is_large(values):
        _write_value(values[0], write)
    else:
        write(dumps(_nested_values(values))[1:-1])


def _write_entries(entries: pa.Array, write: Write) -> None:
    """Write a piece of a map's entries as pairs, with commas between them."""
    keys, values = entries.field(0), entries.field(1)
    if is_large(entries):
        write(b"[")
        _write_value(keys[0], write)
        write(b",")
        _write_value(values[0], write)
        write(b"]")
    else:
        pairs = zip(_nested_values(keys), _nested_values(values), strict=True)
        write(dumps(list(pairs))[1:-1])


def _nested_values(values: pa.Array) -> list[object]:
    return [to_json_value(value) for value in python_values(pa.chunked_array([values]))]


def _write_text(text: pa.Buffer, write: Write) -> None:
    """Write a text as JSON, cut between characters: no piece begins with a byte 10xxxxxx."""
    held = memoryview(text)
    write(b'"')
    at = 0
    while at < len(held):
        end = min(at + _TEXT_BYTES, len(held))
        while end < len(held) and held[end] & 0xC0 == 0x80:
            end -= 1
        write(dumps(str(held[at:end], "utf-8"))[1:-1])
        at = end
    write(b'"')


def _write_binary(data: pa.Buffer, write: Write) -> None:
    held = memoryview(data)
    write(b'"')
    for at in range(0, len(held), _TEXT_BYTES):
        write(base64.b64encode(held[at : at + _TEXT_BYTES]))
    write(b'"')
