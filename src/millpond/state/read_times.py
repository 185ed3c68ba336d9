"""READ_TIMES: up to when the streams' sources were known to be read, over the end of a process.

IDLE AFTER lets a stream's heartbeat follow the clock, and readers are told what that makes final.
After a restart the heartbeat must not be before anything that was told, and need not be after it:
what waited in a source while nobody read it is not late. So this file says how far the clock
counted before, for the pond and for each stream with a source.

Each value is written before anybody is told what follows from it. The file is mapped and never
waits for the disk: it outlives the process, by SIGKILL too, but not the machine. So it is believed
only while the machine has not been started again, by the store it belongs to, and where no other
driver may have led in between; otherwise all that may have been told counts as told.

The file: a header of 96 bytes (who wrote it), then int64 values: the last clock that was shown, up
to when the sources count as read that are not named, the last 16 times in which nobody could push
(from, to; none is 0, 0), and pairs of a stream's id and up to when its source was read. Each value
is one aligned word with its complement behind it, so a file with a value that is damaged, or half
written when the process was killed, is not believed.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from millpond.model.owner_only import open_owner_only

NAME = "READ_TIMES"

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_HEADER = 96
#: How many times in which nobody could push are kept.
MOST_ABSENCES = 16
#: Words before the streams' pairs.
_FIRST = 2 + 2 * MOST_ABSENCES
_PAGE = mmap.PAGESIZE


class _Words:
    """The values of a file: int64, each with its complement behind it."""

    def __init__(self, memory: memoryview) -> None:
        self._held = memory.cast("B").cast("q")

    def __len__(self) -> int:
        return len(self._held) // 2

    def __getitem__(self, place: int) -> int:
        return self._held[2 * place]

    def __setitem__(self, place: int, value: int) -> None:
        self._held[2 * place], self._held[2 * place + 1] = value, ~value

    def are_whole(self) -> bool:
        return all(self._held[at] == ~self._held[at + 1] for at in range(0, 2 * len(self), 2))


def _count_bytes(streams: int) -> int:
    """How long a file for so many streams is: whole pages."""
    size = _HEADER + 16 * (_FIRST + 2 * streams)
    return -(-size // _PAGE) * _PAGE


@dataclass(frozen=True)
class Times:
    """What the file says; all are moments of the clock, in microseconds.

    Attributes:
        shown: The last clock that anything was told by.
        unread: Up to when the sources count as read that are not in `read`.
        away: The times in which nobody could push (from, to), at most 16.
        read: By a stream's id, up to when its source was read.
    """

    shown: int
    unread: int
    away: Sequence[tuple[int, int]] = ()
    read: Mapping[int, int] = field(default_factory=dict)


class ReadTimes:
    """Keeps the file, for the one process that has the store open.

    Its methods are called with a lock held, or by one thread. A disk that cannot be written makes
    them do nothing: then the next process finds no file, and takes all for told.

    Attributes:
        before: What the process before has left; None if that is not known.
    """

    def __init__(self, store: Path, incarnation: str | None) -> None:
        """Read what is there.

        Args:
            store: The store's directory.
            incarnation: The store's; None if what is there is not to be believed, nor written.
        """
        self._path = store / NAME
        self._owner = None if incarnation is None else _name_owner(incarnation)
        self.before = None if self._owner is None else _read(self._path, self._owner)
        self._places: dict[int, int] = {}
        self._words = _make_room()
        self._is_mapped = False

    def begin(self, times: Times) -> None:
        """Write the file anew, and keep it up to date from now on.

        In between there is none, so that a file that cannot be written is not an old one.
        """
        if self._owner is None:
            return
        size = _count_bytes(len(times.read))
        content = memoryview(bytearray(size))
        content[: len(self._owner)] = self._owner
        numbers = _Words(content[_HEADER:])
        for place in range(len(numbers)):
            numbers[place] = 0
        numbers[0], numbers[1] = times.shown, times.unread
        for place, absence in enumerate(times.away):
            numbers[2 + 2 * place], numbers[3 + 2 * place] = absence
        for place, (stream_id, upto) in enumerate(times.read.items()):
            numbers[_FIRST + 2 * place], numbers[_FIRST + 2 * place + 1] = stream_id, upto
        self.withdraw()
        with suppress(OSError):
            beside = self._path.with_name(NAME + ".new")
            descriptor = open_owner_only(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                os.pwrite(descriptor, content, 0)
                fresh = mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
            os.replace(beside, self._path)
            self._take(fresh, {id: place for place, id in enumerate(times.read)})

    def _take(self, fresh: mmap.mmap, places: dict[int, int]) -> None:
        # The file before is unmapped once nobody writes into it any more.
        self._words = _Words(memoryview(fresh)[_HEADER:])
        self._is_mapped, self._places = True, places

    def withdraw(self) -> None:
        """Take the file away, so that it says nothing: all may have been told."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def show(self, clock: int) -> None:
        """Note the clock that readers are about to be told something by."""
        self._words[0] = clock

    def note(self, stream_id: int, upto: int) -> None:
        """Note up to when a stream's source was read."""
        place = self._places.get(stream_id)
        if place is None:
            self._add(stream_id, upto)
        else:
            self._words[_FIRST + 2 * place + 1] = upto

    def _add(self, stream_id: int, upto: int) -> None:
        if not self._is_mapped:
            return
        place = len(self._places)
        at = _FIRST + 2 * place
        if at + 2 > len(self._words):
            known = _decode(self._words)
            self.begin(replace(known, read={**known.read, stream_id: upto}))
            return
        self._words[at + 1] = upto
        self._words[at] = stream_id  # last: a pair counts once it has its stream
        self._places[stream_id] = place

    def close(self) -> None:
        """Close the file; closing again does nothing, and neither does what is noted after it."""
        self._words = _make_room()
        self._is_mapped, self._places = False, {}


def _make_room() -> _Words:
    """Where values go that are kept nowhere."""
    return _Words(memoryview(bytearray(16 * _FIRST)))


def _name_owner(incarnation: str) -> bytes | None:
    """The header: the file's format, the machine's start, the store; None where none is known."""
    try:
        boot = _BOOT.read_text().strip()
    except OSError:
        return None
    owner = f"millpond read times 1 {boot} {incarnation}\n".encode()
    return owner if len(owner) <= _HEADER else None


def _read(path: Path, owner: bytes) -> Times | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if len(content) < _count_bytes(0) or len(content) % 16 or content[: len(owner)] != owner:
        return None
    words = _Words(memoryview(content)[_HEADER:])
    return _decode(words) if words.are_whole() else None


def _decode(words: _Words) -> Times:
    pairs = [(words[at], words[at + 1]) for at in range(2, len(words) - 1, 2)]
    away = tuple(pair for pair in pairs[:MOST_ABSENCES] if pair != (0, 0))
    return Times(words[0], words[1], away, {id: upto for id, upto in pairs[MOST_ABSENCES:] if id})
