"""How much memory operators' state takes, and moving it into mapped files and back.

The state of an operator can be pickled (`operators/protocol/node.py`), so a pickler finds all that
it consists of. Arrays and rows are taken out of its way: they are measured, or put elsewhere; what
is read back is the same operator over them. So no operator knows where its state lies, and each
operator that there will be can be moved.

INV-MOVE-1: an operator that was moved computes what it would have computed.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import numpy as np
import pyarrow as pa

from millpond.operators.protocol.node import Node, Operator
from millpond.synopses.mapped_memory import Home, find_home, find_written_size, write_rows

#: What operators share with their nodes, and never change.
_DESCRIPTIONS = (Node, pa.Schema, pa.DataType, pa.Field)
#: By type, what `_find_kind` says: it is asked for each object of an operator.
_KINDS: dict[type, str] = {}
#: A list or dict of more values is not pickled, but counted by some of them.
_FEW = 64
#: What an entry takes, besides its value or its key.
_ENTRY = 100
#: Where things lie in a file: at multiples of this.
_ALIGNMENT = 64


@dataclass(frozen=True)
class StateSize:
    """The bytes of an operator's state.

    Attributes:
        memory: In memory, about.
        files: In mapped files.
    """

    memory: int = 0
    files: int = 0


def measure_state(operator: Operator) -> StateSize:
    """Measure what the state of an operator takes.

    Raises:
        Exception: its state cannot be pickled, which breaks the protocol.
    """
    memory = files = 0
    seen: set[int] = set()

    def note(thing: Any) -> Any:
        nonlocal memory, files
        if id(thing) not in seen:
            seen.add(id(thing))
            if find_home(thing) is not None:
                files += thing.nbytes
            else:
                memory += thing.nbytes
        return thing

    walk = _Walk(note, _Counter())
    walk.dump(operator)
    return StateSize(memory + walk.in_objects + walk.sink.written, files)


def move_into_files(operator: Operator, home: Home, *, only_rows: bool = False) -> Operator:
    """Move an operator's state into mapped files; return the operator over the moved state.

    The operator that was given must not be used any more, if another one is returned.

    Args:
        operator: The operator, of whose state nothing is lent.
        home: Where the files are made.
        only_rows: Whether arrays that change stay in memory.
    """
    sizes: dict[int, tuple[Any, int]] = {}

    def choose(thing: Any) -> Any:
        if id(thing) in sizes or thing.nbytes <= home.least or find_home(thing) is not None:
            return thing
        if isinstance(thing, np.ndarray):
            if not only_rows and not thing.dtype.hasobject:
                sizes[id(thing)] = (thing, thing.nbytes)
        else:
            sizes[id(thing)] = (thing, find_written_size(_as_rows(thing)))
        return thing

    _Walk(choose, _Counter()).dump(operator)
    if not sizes:
        return operator
    places, total = {}, 0
    for key, (_, size) in sizes.items():
        places[key] = total
        total += -(-size // _ALIGNMENT) * _ALIGNMENT
    mapping = home.map(total)
    if mapping is None:
        return operator
    room = memoryview(mapping)
    moved: dict[int, Any] = {}
    for key, (thing, size) in sizes.items():
        own = room[places[key] : places[key] + size]
        if isinstance(thing, np.ndarray):
            array = np.frombuffer(own, thing.dtype, thing.size).reshape(thing.shape)
            array[...] = thing
            array.flags.writeable = thing.flags.writeable
            moved[key] = array
        else:
            moved[key] = _like(thing, write_rows(_as_rows(thing), own))
    return _replace(operator, lambda thing: moved.get(id(thing), thing))


def move_into_memory(operator: Operator) -> Operator:
    """Move an operator's state back into memory; return the operator over the moved state."""
    moved: dict[int, Any] = {}

    def copy(thing: Any) -> Any:
        if id(thing) not in moved:
            if find_home(thing) is None:
                moved[id(thing)] = thing, thing
            elif isinstance(thing, np.ndarray):
                array = thing.copy()
                array.flags.writeable = thing.flags.writeable
                moved[id(thing)] = thing, array
            else:
                rows = _as_rows(thing)
                room = memoryview(bytearray(find_written_size(rows)))
                moved[id(thing)] = thing, _like(thing, write_rows(rows, room))
        return moved[id(thing)][1]

    return _replace(operator, copy)


def _find_kind(type_: type) -> str:
    """Find what is done with things of a type."""
    if issubclass(type_, (np.ndarray, pa.RecordBatch, pa.Array)):
        return "values"
    if issubclass(type_, _DESCRIPTIONS):
        return "description"
    return "collection" if type_ in (dict, list) else "other"


class _Counter:
    """A file that forgets what is written."""

    def __init__(self) -> None:
        self.written = 0

    def write(self, data: Any) -> int:
        self.written += len(data)
        return len(data)


class _Walk(pickle.Pickler):
    """Pickles an operator, and hands arrays and rows to a function in place of pickling them.

    Attributes:
        sink: What is written to.
        in_objects: The bytes of long lists and dicts of values, which are not pickled either.
        kept: What the pickle refers to by numbers.
    """

    def __init__(self, visit: Callable[[Any], Any], sink: Any) -> None:
        super().__init__(sink, pickle.HIGHEST_PROTOCOL)
        self.sink = sink
        self.in_objects = 0
        self.kept: list[Any] = []
        self._visit = visit

    def persistent_id(self, thing: Any) -> int | None:
        type_ = type(thing)
        kind = _KINDS.get(type_) or _KINDS.setdefault(type_, _find_kind(type_))
        if kind == "other":
            return None
        if kind == "values":
            self.kept.append(self._visit(thing))
        elif kind == "description":
            self.kept.append(thing)
        elif len(thing) > _FEW and _is_plain(thing):
            self.in_objects += _measure_objects(thing)
            self.kept.append(thing)
        else:
            return None
        return len(self.kept) - 1


class _Reading(pickle.Unpickler):
    """Reads back what `_Walk` has written."""

    def __init__(self, source: Any, kept: list[Any]) -> None:
        super().__init__(source)
        self._kept = kept

    def persistent_load(self, number: Any) -> Any:
        return self._kept[number]


def _replace(operator: Operator, visit: Callable[[Any], Any]) -> Operator:
    """Make the operator again, with other arrays and rows."""
    walk = _Walk(visit, io.BytesIO())
    walk.dump(operator)
    walk.sink.seek(0)
    return cast(Operator, _Reading(walk.sink, walk.kept).load())


def _is_plain(values: dict[Any, Any] | list[Any]) -> bool:
    """Whether a list or dict has values of which nothing can be moved."""
    first = next(iter(values.values())) if isinstance(values, dict) else values[0]
    return isinstance(first, (int, float, str, bytes))


def _measure_objects(values: dict[Any, Any] | list[Any]) -> int:
    some = list(islice(values, _FEW))
    return len(values) * (_ENTRY + sum(map(sys.getsizeof, some)) // len(some))


def _as_rows(thing: pa.RecordBatch | pa.Array) -> pa.RecordBatch:
    if isinstance(thing, pa.RecordBatch):
        return thing
    return pa.RecordBatch.from_arrays([thing], ["c0"])


def _like(before: pa.RecordBatch | pa.Array, rows: pa.RecordBatch) -> pa.RecordBatch | pa.Array:
    return rows if isinstance(before, pa.RecordBatch) else rows.column(0)
