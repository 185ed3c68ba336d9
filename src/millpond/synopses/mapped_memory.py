"""Memory that lies in files: arrays and rows whose bytes the system keeps on disk.

State that is too large for memory is moved into mapped files. It is read and written in place, as
any array; the system keeps in memory what is used, and may take that back at any time. Who makes
something larger, or a smaller copy, asks here for memory where the old thing lies, so that what was
moved stays there.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]


class Mapping(mmap.mmap):
    """A mapped file without a name: it is gone when nothing refers to the mapping."""


class Home(Protocol):
    """Where mapped files are made."""

    @property
    def least(self) -> int:
        """Things of so many bytes are not worth a place in a file."""
        ...

    def map(self, size: int) -> Mapping | None:
        """Make a file of zeros and map it; None if there is no room on the disk."""
        ...


class _Mappings:
    """The mappings of this process, by address; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starts: list[int] = []
        #: By start: where it ends, its home, and what tells that it has gone.
        self._known: dict[int, tuple[int, Home, weakref.ref[Mapping]]] = {}
        #: Starts of mappings that have gone. A mapping may go at any moment, also while the lock
        #: is held.
        self._gone: deque[tuple[int, weakref.ref[Mapping]]] = deque()

    def add(self, mapping: Mapping, home: Home) -> None:
        start = find_address(np.frombuffer(mapping, np.uint8))
        reference = weakref.ref(mapping, lambda gone: self._gone.append((start, gone)))
        with self._lock:
            self._forget()
            self._starts.insert(bisect_right(self._starts, start), start)
            self._known[start] = (start + len(mapping), home, reference)

    def find(self, address: int) -> Home | None:
        if not self._starts:
            return None
        with self._lock:
            self._forget()
            place = bisect_right(self._starts, address) - 1
            if place < 0:
                return None
            end, home, _ = self._known[self._starts[place]]
            return home if address < end else None

    def _forget(self) -> None:
        while self._gone:
            start, reference = self._gone.popleft()
            if self._known[start][2] is reference:
                del self._known[start]
                self._starts.remove(start)


_mappings = _Mappings()


def map_file(descriptor: int, size: int, home: Home) -> Mapping:
    """Map an open file of so many bytes; `find_home` finds what is put there."""
    mapping = Mapping(descriptor, size)
    _mappings.add(mapping, home)
    return mapping


def find_address(values: Array) -> int:
    """Find where an array's bytes begin."""
    address: int = values.__array_interface__["data"][0]
    return address


def find_home(thing: Array | pa.RecordBatch | pa.Array) -> Home | None:
    """Find the home of the file in which an array or rows lie; None: they lie in memory.

    Rows lie where their columns do; if some of the columns lie in memory, they do not count as
    moved.
    """
    if isinstance(thing, np.ndarray):
        return _mappings.find(find_address(thing)) if thing.nbytes else None
    found: Home | None = None
    for address in _list_addresses(thing.columns if isinstance(thing, pa.RecordBatch) else [thing]):
        found = _mappings.find(address)
        if found is None:
            return None
    return found


def _list_addresses(columns: list[pa.Array]) -> Iterator[int]:
    for column in columns:
        for buffer in column.buffers():
            if buffer is not None and buffer.size:
                yield buffer.address


def allocate_like(values: Array, shape: int | tuple[int, ...], fill: int = 0) -> Array:
    """Make an array of the same type as another, where the other lies, filled with a value."""
    home = find_home(values)
    count = math.prod(shape) if isinstance(shape, tuple) else shape
    size = count * values.itemsize
    mapping = home.map(size) if home is not None and size > home.least else None
    if mapping is None:
        # Zeros cost nothing until they are touched.
        return np.full(shape, fill, values.dtype) if fill else np.zeros(shape, values.dtype)
    found = np.frombuffer(mapping, values.dtype, count).reshape(shape)
    if fill:
        found[...] = fill
    return found


def grow_array(values: Array, needed: int, fill: int = 0) -> Array:
    """Return the array, or, if it is too short, a longer copy with `fill` at the end.

    Its first dimension grows, and at least doubles; it lies where the array lies.
    """
    if needed <= len(values):
        return values
    grown = allocate_like(values, (max(needed, 2 * len(values), 64), *values.shape[1:]), fill)
    grown[: len(values)] = values
    return grown


def choose_like(values: Array, chosen: npt.NDArray[np.bool_]) -> Array:
    """Copy the chosen entries of an array, to where the array lies."""
    if find_home(values) is None:
        return values[chosen]
    found = allocate_like(values, (int(chosen.sum()), *values.shape[1:]))
    return np.compress(chosen, values, axis=0, out=found)


def keep_like(before: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Put rows where other rows lie."""
    home = find_home(before)
    if home is None or rows.nbytes <= home.least:
        return rows
    size = find_written_size(rows)
    mapping = home.map(size)
    return rows if mapping is None else write_rows(rows, memoryview(mapping))


def find_written_size(rows: pa.RecordBatch) -> int:
    """Find how many bytes `write_rows` writes."""
    sink = pa.MockOutputStream()
    _write(rows, sink)
    return int(sink.size())


def write_rows(rows: pa.RecordBatch, room: memoryview) -> pa.RecordBatch:
    """Write rows into a mapped file; return the same rows, as they lie there."""
    buffer = pa.py_buffer(room)
    _write(rows, pa.FixedSizeBufferWriter(buffer))
    return pa.ipc.open_stream(pa.BufferReader(buffer)).read_next_batch()


def _write(rows: pa.RecordBatch, sink: Any) -> None:
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
