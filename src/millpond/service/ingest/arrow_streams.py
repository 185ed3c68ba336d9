"""Reads Arrow IPC streams from outside, and never more of them than was agreed.

A few bytes of such a stream can stand for very many: its buffers may be compressed, values of a
dictionary or of a run are written once, and views may all show the same bytes. So the sizes are
added up before anything is unpacked or written out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from flatbuffers import encode, packer
from flatbuffers import number_types as numbers
from flatbuffers.table import Table

#: The fields of Arrow's Message.fbs: the places of their offsets in a table's own table.
_HEADER_TYPE, _HEADER = 6, 8
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_DATA, _BUFFERS, _COMPRESSION = 6, 8, 10
_BUFFER_BYTES = 16


def read_arrow(data: bytes, largest: int) -> pa.Table:
    """Read a stream's rows.

    Args:
        data: The stream.
        largest: The most bytes it may unpack to, and be when its values are written out.

    Raises:
        ValueError: It is larger, or cannot be read.
        pa.ArrowException: It cannot be read.
    """
    _check(sum(_unpacked_sizes(data)), largest)
    table = pa.ipc.open_stream(data).read_all()
    # Offsets beyond the buffers would be followed: these are bytes from outside.
    table.validate(full=True)
    _check(sum(plain_bytes(c) for column in table.columns for c in column.chunks), largest)
    return table


def _check(size: int, largest: int) -> None:
    if size > largest:
        raise ValueError(f"It unpacks to more than {largest:,} bytes; send it in parts")


def _unpacked_sizes(data: bytes) -> Iterator[int]:
    """The bytes each buffer of a stream has unpacked; the messages' own sizes where it is plain."""
    for message in pa.ipc.MessageReader.open_stream(data):
        try:
            yield from _message_sizes(message)
        except (struct.error, IndexError, TypeError) as error:
            raise ValueError("A message of the stream is damaged") from error


def _message_sizes(message: pa.ipc.Message) -> Iterator[int]:
    metadata = message.metadata.to_pybytes()
    root = Table(metadata, encode.Get(packer.uoffset, metadata, 0))
    kind = root.Get(numbers.Uint8Flags, root.Pos + root.Offset(_HEADER_TYPE))
    if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return
    batch = _child(root, _HEADER)
    if kind == _DICTIONARY_BATCH:
        batch = _child(batch, _DATA)
    body = memoryview(message.body)
    if not batch.Offset(_COMPRESSION):
        yield len(body)
        return
    place = batch.Offset(_BUFFERS)
    for number in range(batch.VectorLen(place) if place else 0):
        at = batch.Vector(place) + number * _BUFFER_BYTES
        start, length = struct.unpack_from("<qq", metadata, at)
        # A compressed buffer begins with its size unpacked, -1 if it is plain after all.
        if length >= 8:
            size = struct.unpack_from("<q", body, start)[0]
            yield length if size == -1 else max(size, 0)


def _child(table: Table, field: int) -> Table:
    return Table(table.Bytes, table.Indirect(table.Pos + table.Offset(field)))


def plain_bytes(array: pa.Array) -> int:
    """How many bytes an array's values take when each is written out.

    >>> plain_bytes(pa.array(["abc"] * 4).dictionary_encode())
    12
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        places = array.indices.drop_null()
        return int(_sizes(array.dictionary)[places.to_numpy(zero_copy_only=False)].sum())
    if pa.types.is_run_end_encoded(kind):
        ends = array.run_ends.to_numpy(zero_copy_only=False).astype(np.int64)
        ends = np.clip(ends - array.offset, 0, len(array))
        return int((_sizes(array.values) * np.diff(ends, prepend=0)).sum())
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return int(_sizes(array).sum())
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        lengths = pc.list_value_length(array).drop_null().to_numpy(zero_copy_only=False)
        most = _sizes(array.values).max(initial=1)
        return int(lengths.astype(np.int64).sum()) * int(most)
    if pa.types.is_struct(kind):
        return sum(plain_bytes(array.field(n)) for n in range(kind.num_fields))
    if pa.types.is_map(kind):
        return plain_bytes(array.keys) + plain_bytes(array.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return plain_bytes(array.values)
    return int(array.nbytes)


def _sizes(array: pa.Array) -> np.ndarray:
    """The bytes each value takes when it is written out, at least; int64."""
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        # A view is 16 bytes, and its first four are the length of its value.
        views = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)
        return views[array.offset : array.offset + len(array), 0].astype(np.int64)
    if any(test(kind) for test in _TEXTS):
        lengths = pc.fill_null(pc.binary_length(array), 0)
        return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)
    if pa.types.is_primitive(kind):
        return np.full(len(array), kind.bit_width // 8 + 1, np.int64)
    # Nested in a dictionary or a run: no value is larger than all of them.
    return np.full(len(array), plain_bytes(array), np.int64)


_TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
