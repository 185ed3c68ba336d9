"""The totals of segments that are kept: in memory, in files, and in the tree above the segments.

All of this is a cache, as matches are: made at first use, or before that by maintenance, never in a
commit. The totals that a registered query asks for stay; maintenance removes them when no query
asks for them any more.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.catalog.objects import StreamDef
from millpond.engine.aggregates.segment_forest import SegmentForest, Subtree, split_at_window
from millpond.engine.aggregates.segment_totals import Asked, BlockedSegment
from millpond.errors import MillpondError
from millpond.model.windows import Window, interval
from millpond.state.aggregate_file import (
    Kept,
    Measured,
    list_files,
    read_totals,
    remove_files,
    segment_of_name,
)
from millpond.state.version import DATA, SegmentRef, Version

log = logging.getLogger("millpond.aggregates")

#: Segments whose totals are kept open, the least recently used closed first.
_OPEN_SEGMENTS = 4_096
#: Segments that are open for what a query asks of them; beyond that all are closed.
_OPEN_READERS = 4_096
#: About what a total takes in the tree.
_TOTAL_BYTES = 300


@dataclass(frozen=True)
class StoredTotals:
    """A file of a segment's totals: its path and length, and what it has totals of."""

    path: Path
    bytes: int
    measured: frozenset[Measured]


@dataclass(frozen=True)
class WindowCut:
    """A stream's segments, cut at the edges of a window.

    Attributes:
        low: The least timestamp in the window, in microseconds; None: it has no lower bound.
        high: The greatest timestamp in the window.
        whole: The greatest subtrees that lie wholly in the window.
        straddling: The segments that straddle an edge.
    """

    low: int | None
    high: int
    whole: list[Subtree]
    straddling: list[SegmentRef]


#: Segments opened for what one query asks, by their ids.
OpenTotals = dict[int, BlockedSegment]


def segment_of(node: Subtree) -> SegmentRef:
    """Return the segment that a subtree consists of."""
    assert isinstance(node.segment, SegmentRef)
    return node.segment


class KeptTotals:
    """The totals of a pond's segments; safe to use from any thread."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._forests: defaultdict[tuple[int, str], SegmentForest] = defaultdict(SegmentForest)
        #: By the id of the segment: what its files and earlier uses gave.
        self._opened: OrderedDict[int, dict[Measured, Kept]] = OrderedDict()
        #: By the slot whose matches they are opened for, and what is asked of these.
        self._readers: dict[tuple[int | None, tuple[Asked, ...]], OpenTotals] = {}
        self._reader_count = 0
        #: By the stem of the segment's file; `_unread` has those of earlier processes.
        self._files: dict[str, list[StoredTotals]] = {}
        self._unread: dict[str, list[Path]] = {}
        #: By stream, what registered queries ask for.
        self._wanted: Mapping[int, frozenset[Measured]] = {}
        self._torn = False
        for file in list_files(store):
            if (stem := segment_of_name(file.name)) is not None:
                self._unread.setdefault(stem, []).append(file)

    def cut(self, version: Version, stream: StreamDef, window: Window, instant: int) -> WindowCut:
        """Cut the tree above a stream's segments at a window as of an instant."""
        low, high = interval(window, instant)
        with self._lock:
            root = self._forests[stream.id, stream.kind].root(
                version.segments(stream.id, stream.kind)
            )
        whole, straddling = split_at_window(root, low, high)
        return WindowCut(low, high, whole, [segment_of(node) for node in straddling])

    def list_wanted(self, stream_id: int) -> frozenset[Measured]:
        """List the totals of a stream that registered queries ask for."""
        return self._wanted.get(stream_id, frozenset())

    def is_wanted(self, stream: StreamDef, measured: Measured) -> bool:
        """Whether a registered query asks for these totals."""
        return measured in self._wanted.get(stream.id, frozenset())

    def find(self, segment: SegmentRef, measured: Measured) -> Kept | None:
        """Find a segment's totals in memory, or else in its files."""
        opened = self._open(segment)
        return opened.get(measured)

    def remember(self, segment: SegmentRef, measured: Measured, blocks: Kept) -> None:
        """Keep totals that were computed, as long as memory lasts."""
        self._open(segment)[measured] = blocks

    def readers_of(self, slot: int | None, asked: Sequence[Asked]) -> OpenTotals:
        """Return the segments that are open for what is asked of a slot's matches.

        A segment that is open for least and greatest values alone has no sums (`Asked`), so
        sums of the same column are read from another one. Only `add_reader` adds to what this
        returns.
        """
        key = slot, tuple(asked)
        found = self._readers.get(key)
        if found is None:
            with self._lock:
                found = self._readers.setdefault(key, {})
        return found

    def add_reader(self, readers: OpenTotals, segment: SegmentRef, opened: BlockedSegment) -> None:
        """Keep a segment open for the totals that `readers` are of."""
        with self._lock:
            if self._reader_count >= _OPEN_READERS:
                self._close_readers()
            readers[segment.id] = opened
            self._reader_count += 1

    def close(self) -> None:
        """Close all segments, so that the disk gets the space of removed files back."""
        with self._lock:
            self._close_readers()

    def _close_readers(self) -> None:
        # Answers that are being computed go on with what they have.
        self._readers, self._reader_count = {}, 0

    def _open(self, segment: SegmentRef) -> dict[Measured, Kept]:
        with self._lock:
            opened = self._opened.get(segment.id)
            if opened is not None:
                self._opened.move_to_end(segment.id)
                return opened
        entries: dict[Measured, Kept] = {}
        for file in self._files_of(segment):
            try:
                entries.update(read_totals(file.path))
            except MillpondError:
                self._forget_torn(segment, file)
        with self._lock:
            opened = self._opened.setdefault(segment.id, entries)
            while len(self._opened) > _OPEN_SEGMENTS:
                self._opened.popitem(last=False)
        return opened

    def _files_of(self, segment: SegmentRef) -> list[StoredTotals]:
        """List the files of a segment's totals; those of earlier processes are read first."""
        stem = Path(segment.path).stem
        with self._lock:
            unread = self._unread.pop(stem, ())
        for path in unread:
            try:
                stored = StoredTotals(path, path.stat().st_size, frozenset(read_totals(path)))
            except (MillpondError, OSError):
                stored = None
            if stored is None or not stored.measured:
                remove_files([path])
                continue
            with self._lock:
                self._files.setdefault(stem, []).append(stored)
        with self._lock:
            return list(self._files.get(stem, ()))

    def _forget_torn(self, segment: SegmentRef, file: StoredTotals) -> None:
        stem = Path(segment.path).stem
        with self._lock:
            self._files[stem] = [f for f in self._files.get(stem, ()) if f is not file]
            self._torn = True
        log.warning("totals are made again: %s", file.path.name)
        remove_files([file.path])

    # -- for maintenance -----------------------------------------------------------------------

    def take_torn(self) -> bool:
        """Whether files were found torn since this was asked last; they are gone."""
        with self._lock:
            torn, self._torn = self._torn, False
        return torn

    def lacking(self, segment: SegmentRef, wanted: frozenset[Measured]) -> frozenset[Measured]:
        """Return which of these totals no file of a segment has."""
        return wanted.difference(*(file.measured for file in self._files_of(segment)))

    def add_file(self, segment: SegmentRef, stored: StoredTotals, alone: bool) -> None:
        """Take over a file that was written; if `alone`, it replaces the segment's other files."""
        stem = Path(segment.path).stem
        with self._lock:
            before = self._files.get(stem, [])
            self._files[stem] = [stored] if alone else [*before, stored]
            self._opened.pop(segment.id, None)
            for readers in self._readers.values():
                readers.pop(segment.id, None)
        if alone:
            remove_files(file.path for file in before if file.path != stored.path)

    def count_files(self, segment: SegmentRef) -> int:
        """Count the files of a segment's totals."""
        return len(self._files_of(segment))

    def retain(self, wanted: Mapping[int, frozenset[Measured]], version: Version) -> None:
        """Drop what no registered query asks for any more, and the files of segments that are gone.

        Args:
            wanted: What registered queries ask for, by stream.
            version: The current version.
        """
        streams = {Path(s.path).stem: s.stream_id for s in version.segments_by_id.values()}
        nothing: frozenset[Measured] = frozenset()
        gone: list[Path] = []
        with self._lock:
            changed = wanted != self._wanted
            self._wanted = dict(wanted)
            for stem, files in list(self._files.items()):
                asked = wanted.get(streams.get(stem, -1), nothing)
                kept = [file for file in files if not file.measured.isdisjoint(asked)]
                gone += [file.path for file in files if file not in kept]
                self._files[stem] = kept
                if not kept:
                    del self._files[stem]
            for stem in list(self._unread):
                if streams.get(stem) not in wanted:
                    gone += self._unread.pop(stem)
            for id in [id for id in self._opened if version.segment(id) is None]:
                del self._opened[id]
            if changed:
                self._close_readers()
                self._forget_totals(wanted, version)
            for stream_id, kind in list(self._forests):
                if stream_id not in version.streams:
                    del self._forests[stream_id, kind]
        remove_files(gone)

    def _forget_totals(self, wanted: Mapping[int, frozenset[Measured]], version: Version) -> None:
        nothing: frozenset[Measured] = frozenset()
        for id, entries in self._opened.items():
            segment = version.segment(id)
            asked = wanted.get(segment.stream_id, nothing) if segment else nothing
            for measured in [m for m in list(entries) if m not in asked]:
                entries.pop(measured, None)
        for (stream_id, _), forest in self._forests.items():
            asked = wanted.get(stream_id, nothing)
            for node in forest.nodes():
                for key in [k for k in list(node.totals) if k not in asked]:
                    node.totals.pop(key, None)

    # -- for EXPLAIN ---------------------------------------------------------------------------

    def measure(
        self, version: Version, stream: StreamDef, measured: Iterable[Measured]
    ) -> dict[str, Any]:
        """Measure what is kept for some totals: segments with stored totals, disk, and memory.

        A file's bytes are divided evenly among what it has totals of.
        """
        asked = set(measured)
        segments = version.segments(stream.id)
        stored, disk, memory = 0, 0.0, 0
        for segment in segments:
            shares = [(f, len(asked & f.measured)) for f in self._files_of(segment)]
            stored += bool(asked) and sum(share for _, share in shares) >= len(asked)
            disk += sum(f.bytes * share / len(f.measured) for f, share in shares)
        with self._lock:
            for segment in segments:
                entries = self._opened.get(segment.id, {})
                memory += sum(b.nbytes for m, b in list(entries.items()) if m in asked)
            forest = self._forests.get((stream.id, DATA))
            nodes = list(forest.nodes()) if forest is not None else []
        subtrees = sum(len(asked & node.totals.keys()) for node in nodes)
        memory += sum(
            getattr(node.totals[key], "nbytes", _TOTAL_BYTES)
            for node in nodes
            for key in asked & node.totals.keys()
        )
        return {
            "segments with stored totals": stored,
            "totals in the tree": subtrees,
            "bytes on disk": round(disk),
            "bytes in memory": memory,
        }
