"""Numbers for distinct texts: a hash table whose texts lie one behind the other in one array.

A text here is a string of bytes, and values of other types have a text each (`to_texts`). A Python
dictionary of texts takes some 200 bytes for each besides its own, in memory. These are arrays, so
they can lie in files (`mapped_memory`), as all state does.

INV-TEXT-1: distinct texts are numbered 0, 1, … in the order in which they first appear.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from millpond.model.compiled import I64, READ_I64, READ_U8, U8, U64, called, compiled
from millpond.model.nested_values import needs_keys, value_keys
from millpond.synopses.mapped_memory import allocate_like, choose_like, grow_array

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

READ_BOOLS = types.Array(types.boolean, 1, "C", readonly=True)
#: Parts of a head: a text in rising or in falling order.
RISING, FALLING = -1, -2
#: Texts that a new table has room for.
_ROOM = 64
#: The first sign bit of a whole number: without it, numbers compare as their bytes do.
_SIGN = np.uint64(1 << 63)


@called
def _hash(data, start, end, seed):  # type: ignore[no-untyped-def]
    mixed = seed
    for place in range(start, end):
        mixed = (mixed ^ np.uint64(data[place])) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
    return mixed


@called
def _equals(one, start, end, other, first, last):  # type: ignore[no-untyped-def]
    if end - start != last - first:
        return False
    length = end - start
    same = 0
    while same < length and one[start + same] == other[first + same]:
        same += 1
    return same == length


@compiled(
    types.int64(
        READ_I64, READ_U8, READ_BOOLS, types.uint64, I64, U8, I64, U64, I64, types.boolean, I64
    )
)
def _look_up(starts, data, chosen, seed, table, heap, ends, hashes, state, insert, out):  # type: ignore[no-untyped-def]
    """Number the chosen texts from row `state[1]` on; return the number of texts in the table.

    Where a new text has no room, it stops there: `state[1]` says at which row, and `state[0]`
    how many bytes that text has. With `insert` a new text gets the next number, else −1.
    """
    mask = len(table) - 1
    count = state[2]
    for row in range(state[1], len(out)):
        if not chosen[row]:
            out[row] = -1
            continue
        start, end = starts[row], starts[row + 1]
        mixed = _hash(data, start, end, seed)
        slot = np.int64(mixed >> np.uint64(1)) & mask
        number = np.int64(-1)
        while True:
            held = table[slot]
            if held < 0:
                break
            if hashes[held] == mixed and _equals(
                data, start, end, heap, ends[held], ends[held + 1]
            ):
                number = held
                break
            slot = (slot + 1) & mask
        if number < 0 and insert:
            used = ends[count]
            if count == len(hashes) or used + end - start > len(heap):
                state[0] = end - start
                state[1] = row
                state[2] = count
                return 0
            for i in range(end - start):
                heap[used + i] = data[start + i]
            number = count
            hashes[number] = mixed
            ends[number + 1] = used + end - start
            table[slot] = number
            count += 1
        out[row] = number
    state[1] = 0
    state[2] = count
    return 1


@compiled(types.void(U64, types.int64, I64))
def _fill_table(hashes, count, table):  # type: ignore[no-untyped-def]
    """Put numbers into an empty table, by their texts' hashes."""
    mask = len(table) - 1
    for number in range(count):
        slot = np.int64(hashes[number] >> np.uint64(1)) & mask
        while table[slot] >= 0:
            slot = (slot + 1) & mask
        table[slot] = number


@compiled(types.void(READ_BOOLS, I64, U8, I64, U8, I64))
def _keep(alive, ends, heap, new_ends, new_heap, moved):  # type: ignore[no-untyped-def]
    """Copy the texts that are alive; `moved` gets the new number of each, −1 for the others."""
    count = 0
    used = 0
    for number in range(len(alive)):
        moved[number] = -1
        if alive[number]:
            for place in range(ends[number], ends[number + 1]):
                new_heap[used] = heap[place]
                used += 1
            moved[number] = count
            count += 1
            new_ends[count] = used


@compiled(types.int64(READ_I64, READ_I64, READ_U8, READ_I64, I64, I64))
def _measure(numbers, ends, heap, parts, begins, out):  # type: ignore[no-untyped-def]
    """Find where each text begins behind its head, and where it lies when they are laid out."""
    used = 0
    for i in range(len(numbers)):
        out[i] = used
        if numbers[i] < 0:
            continue
        place, end = ends[numbers[i]], ends[numbers[i] + 1]
        for part in parts:
            if part >= 0:
                place += part
                continue
            mark = 0 if part == RISING else 255
            while place + 1 < end:
                if heap[place] != mark:
                    place += 1
                else:
                    place += 2
                    if heap[place - 1] == mark:
                        break
        begins[i] = place
        used += max(0, end - place)
    out[len(numbers)] = used
    return used


@compiled(types.void(READ_I64, READ_I64, READ_U8, READ_I64, U8))
def _gather(numbers, ends, heap, begins, out):  # type: ignore[no-untyped-def]
    """Lay the texts of numbers one behind the other."""
    used = 0
    for i in range(len(numbers)):
        if numbers[i] >= 0:
            for place in range(begins[i], ends[numbers[i] + 1]):
                out[used] = heap[place]
                used += 1


@compiled(types.void(READ_I64, READ_U8, types.boolean, I64, U8))
def _mark_ends(starts, data, falling, out_ends, out):  # type: ignore[no-untyped-def]
    """Write texts as `mark_ends` does."""
    flip = np.uint8(255) if falling else np.uint8(0)
    used = 0
    for i in range(len(starts) - 1):
        for place in range(starts[i], starts[i + 1]):
            out[used] = data[place] ^ flip
            used += 1
            if data[place] == 0:
                out[used] = ~flip
                used += 1
        out[used] = out[used + 1] = flip
        used += 2
        out_ends[i + 1] = used


class TextNumbers:
    """Numbers 0, 1, … for the distinct texts it has seen.

    Attributes:
        heap: uint8: the texts, one behind the other.
        ends: int64: where each text begins, and the last one ends.
    """

    def __init__(self) -> None:
        self.heap: Bytes = np.zeros(16 * _ROOM, np.uint8)
        self.ends: Ints = np.zeros(_ROOM + 1, np.int64)
        self._hashes = np.zeros(_ROOM, np.uint64)
        self._table: Ints = np.full(2 * _ROOM, -1, np.int64)
        #: What `_look_up` says, and last the number of texts.
        self._state: Ints = np.zeros(3, np.int64)
        # Nobody can send texts that collide. Python's own seed would not do: Spark fixes it.
        self._seed = np.uint64(int.from_bytes(os.urandom(8)))

    def __len__(self) -> int:
        """The number of distinct texts."""
        return int(self._state[2])

    def number(self, texts: pa.Array, chosen: Bools | None = None) -> Ints:
        """Number texts; one not seen before gets the next number.

        Args:
            texts: Strings or bytes.
            chosen: Whether each takes part; None: all do.

        Returns:
            int64: the numbers; −1 for NULL and what is not chosen.
        """
        return self._walk(texts, chosen, True)

    def find(self, texts: pa.Array) -> Ints:
        """Find the numbers of texts; −1 for NULL and what was not seen before."""
        return self._walk(texts, None, False)

    def take(self, numbers: Ints, head: Sequence[int] = ()) -> pa.Array:
        """Return the texts of numbers, as bytes; NULL for −1.

        Args:
            numbers: The numbers.
            head: What is left out in front, part by part: so many bytes, or a text that `mark_ends`
                has written (`RISING`, `FALLING`). NULL for a text that is shorter.
        """
        offsets = np.empty(len(numbers) + 1, np.int64)
        begins = np.zeros(len(numbers), np.int64)
        parts = np.array(head, np.int64)
        total = _measure(numbers, self.ends, self.heap, parts, begins, offsets)
        data = np.empty(total, np.uint8)
        _gather(numbers, self.ends, self.heap, begins, data)
        has_text = numbers >= 0
        if head:
            has_text &= begins <= self.ends[numbers + 1]
        present = np.packbits(has_text, bitorder="little")
        buffers = [pa.py_buffer(part) for part in (present, offsets, data)]
        found = pa.Array.from_buffers(pa.large_binary(), len(numbers), buffers)
        return found.cast(pa.binary())

    def compact(self, alive: Bools) -> Ints:
        """Forget the texts where `alive` is false; return each one's new number, −1 if gone.

        The order of the others stays.
        """
        count = len(self)
        lengths = np.diff(self.ends[: count + 1])
        left, used = int(alive.sum()), int(lengths[alive].sum())
        heap = allocate_like(self.heap, max(used + used // 2, 16 * _ROOM))
        ends = allocate_like(self.ends, max(left + left // 2, _ROOM) + 1)
        moved: Ints = allocate_like(self._table, count)
        _keep(alive, self.ends, self.heap, ends, heap, moved)
        hashes = choose_like(self._hashes[:count], alive)
        self.heap, self.ends = heap, ends
        self._hashes = grow_array(hashes, len(ends) - 1, 0)[: len(ends) - 1]
        self._state[2] = left
        self._fill()
        return moved

    def size(self) -> int:
        """Bytes kept."""
        return sum(a.nbytes for a in (self.heap, self.ends, self._hashes, self._table))

    def _walk(self, texts: pa.Array, chosen: Bools | None, insert: bool) -> Ints:
        starts, data = read_texts(texts)
        takes = np.ones(len(texts), np.bool_) if chosen is None else chosen
        if texts.null_count:
            takes = takes & texts.is_valid().to_numpy(zero_copy_only=False)
        out = np.empty(len(texts), np.int64)
        while not _look_up(
            starts,
            data,
            np.ascontiguousarray(takes),
            self._seed,
            self._table,
            self.heap,
            self.ends,
            self._hashes,
            self._state,
            insert,
            out,
        ):
            self._make_room()
        return out

    def _make_room(self) -> None:
        """Make room for the text at which `_look_up` has stopped."""
        count = len(self)
        needed = int(self.ends[count] + self._state[0])
        if needed > len(self.heap):
            self.heap = grow_array(self.heap, needed, 0)
        if count == len(self._hashes):
            self._hashes = grow_array(self._hashes, count + 1, 0)
            self.ends = grow_array(self.ends, len(self._hashes) + 1, 0)
            self._fill()

    def _fill(self) -> None:
        """Make the table anew, with room for twice as many texts as there may be."""
        size = 1 << (2 * len(self._hashes) - 1).bit_length()
        self._table = allocate_like(self._table, size, -1)
        _fill_table(self._hashes, len(self), self._table)


def read_texts(texts: pa.Array) -> tuple[Ints, Bytes]:
    """Read texts as places in bytes, one more than there are texts, and the bytes."""
    type_ = texts.type
    wide = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
    if not (wide or pa.types.is_string(type_) or pa.types.is_binary(type_)):
        raise TypeError(f"no texts: {type_}")
    _, offsets, data = texts.buffers()
    if not len(texts) or offsets is None:
        return np.zeros(len(texts) + 1, np.int64), np.zeros(0, np.uint8)
    end = texts.offset + len(texts) + 1
    starts = np.frombuffer(offsets, np.int64 if wide else np.int32, end)[texts.offset :]
    held = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return np.ascontiguousarray(starts, np.int64), held


def to_texts(column: pa.Array) -> pa.Array:
    """Make a text for each value of a column: equal for equal values, NULL for NULL.

    Texts of strings, bytes, decimals and int64 are in the order of the values; others are not.
    """
    type_ = column.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return column
    if pa.types.is_large_string(type_) or pa.types.is_large_binary(type_):
        return column
    if pa.types.is_decimal128(type_):
        return _write_words(column, 2)
    if pa.types.is_int64(type_):
        return _write_words(column, 1)
    values = value_keys(column) if needs_keys(type_) else column.to_pylist()
    return pa.array([None if v is None else repr(v).encode() for v in values], pa.binary())


def from_texts(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Make the values again of which `to_texts` has made texts, of those that have an order."""
    if not pa.types.is_decimal128(type_):
        return texts.cast(type_)
    words = np.zeros((len(texts), 2), ">u8")
    starts, data = read_texts(texts)
    present = texts.is_valid().to_numpy(zero_copy_only=False)
    held = data[starts[0] : starts[-1]].view(">u8").reshape(-1, 2)
    words[present] = held
    values = np.empty((len(texts), 2), np.uint64)
    values[:, 0], values[:, 1] = words[:, 1], words[:, 0] ^ _SIGN
    buffers = [pa.py_buffer(np.packbits(present, bitorder="little")), pa.py_buffer(values)]
    return pa.Array.from_buffers(type_, len(texts), buffers)


def mark_ends(texts: pa.Array, falling: bool) -> pa.Array:
    """Write texts so that others can stand behind them: in order by these first.

    A byte 0 gets a byte 255 behind it, and two bytes 0 are the end. So no text begins another.

    Args:
        texts: Strings or bytes; what is written for NULL is arbitrary.
        falling: Whether they shall be in order from the greatest to the least: all bits are
            flipped, and two bytes 255 are the end.

    Returns:
        Large binary, without NULLs.
    """
    starts, data = read_texts(texts)
    ends = np.zeros(len(texts) + 1, np.int64)
    out = np.empty(2 * (int(starts[-1] - starts[0]) + len(texts)), np.uint8)
    _mark_ends(starts, data, falling, ends, out)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(out[: ends[-1]])]
    return pa.Array.from_buffers(pa.large_binary(), len(texts), buffers)


def _write_words(column: pa.Array, width: int) -> pa.Array:
    """Write whole numbers of 64-bit words, the greatest byte first: texts compare as they do."""
    count = len(column)
    data = column.buffers()[1]
    words = np.zeros((count, width), np.uint64)
    if data is not None and count:
        held = np.frombuffer(data, np.uint64, width * (column.offset + count))
        words = held.reshape(-1, width)[column.offset :]
    written = words[:, ::-1].astype(">u8")
    written[:, 0] ^= _SIGN
    lengths = np.full(count, 8 * width)
    present = None
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        present = pa.py_buffer(np.packbits(valid, bitorder="little"))
        written, lengths = written[valid], np.where(valid, lengths, 0)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [present, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(written))]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers)
