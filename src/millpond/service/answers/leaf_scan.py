"""A leaf's view of the kept segments: which rows match, from stored bits where there are any.

What a leaf matches is a function of element and predicate. Where a segment has stored matches for
the leaf's slot, the view reads them. Where it has none (its backfill is on its way, or the query is
not materialized: PSoup's NoMat), the view matches the segment now, with the same kernel.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.engine.aggregates.segment_totals import EveryRow, OpenMatches
from millpond.engine.invocation.window_slices import SegmentView
from millpond.engine.joins.arrangement import SortedRun
from millpond.engine.joins.pairs import PairsReader
from millpond.engine.matching.find_matches import find_matches
from millpond.engine.matching.results_structure import MatchReader
from millpond.engine.predicates.factors import Factors
from millpond.errors import MillpondError
from millpond.model.kept_property import kept_property
from millpond.model.schema import Field, Schema
from millpond.runtime.files.match_files import failed_slots
from millpond.service.events import Events
from millpond.state.arrow_file import open_arrow
from millpond.state.join_state import ArrangementRef, PairsRef
from millpond.state.segment_file import get_column, global_seq, open_segment
from millpond.state.version import DATA, MatchRef, SegmentRef, Version
from millpond.synopses.sampling import choose_sample
from millpond.synopses.totals import OpenColumn, open_column

_OPEN_SEGMENTS = 4_096
_OPEN_MATCHES = 16_384
_OPEN_CACHES = 4_096
#: Results of PARTITION BY windows a segment keeps; one is as long as it has keys.
_KEPT = 64
#: How many times as many arrival numbers as rows a segment may span to be looked up in a table.
_SPARSE = 8
_SEARCHED = np.zeros(0, np.int32)


class OpenSegment:
    """A memory-mapped segment and what was computed from it; shared by all readers."""

    def __init__(self, ref: SegmentRef, table: pa.Table) -> None:
        self.ref = ref
        self.table = table
        self.ts: np.ndarray = table["__ts"].to_numpy()
        self.local_seq: np.ndarray = table["__seq"].to_numpy()
        self._computed: OrderedDict[tuple[Any, ...], np.ndarray] = OrderedDict()
        self._runs: dict[str, SortedRun] = {}
        self._columns: dict[str, OpenColumn] = {}
        self._lock = threading.Lock()

    @kept_property
    def _batch(self) -> pa.RecordBatch | None:
        """The rows as one batch, of which few are taken faster; None: they are in several."""
        batches = self.table.to_batches()
        return batches[0] if len(batches) == 1 else None

    def take(self, rows: np.ndarray, columns: Sequence[str]) -> pa.Table:
        """Read columns of some rows."""
        chosen = pa.array(rows)
        if self._batch is None:
            return self.table.select(list(columns)).take(chosen)
        return pa.Table.from_batches([self._batch.select(list(columns)).take(chosen)])

    @kept_property
    def _arrival(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The arrival numbers in ascending order, and the row of each (None: the rows in order)."""
        numbers = global_seq(self.local_seq, self.ref.seq_runs)
        if bool((numbers[1:] > numbers[:-1]).all()):
            return numbers, None
        order = np.argsort(numbers, kind="stable")
        return numbers[order], order

    @kept_property
    def _row_of(self) -> tuple[int, np.ndarray | None]:
        """The first arrival number, and a table of the rows of this and all later numbers.

        The table has -1 for the numbers of elements that are in other segments. It is None if row
        n has the n-th number. It is empty if most of its entries would be -1: then `locate`
        searches for each number.
        """
        numbers, rows = self._arrival
        first, span = int(numbers[0]), int(numbers[-1]) - int(numbers[0]) + 1
        if span == len(numbers) and rows is None:
            return first, None
        if span > _SPARSE * len(numbers):
            return first, _SEARCHED
        table = np.full(span, -1, np.int32)
        table[numbers - first] = np.arange(len(numbers)) if rows is None else rows
        return first, table

    @property
    def arrived(self) -> tuple[int, int]:
        """The least and the greatest arrival number."""
        numbers, _ = self._arrival
        return int(numbers[0]), int(numbers[-1])

    def locate(self, arrivals: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
        """Which of these elements are here, by their places in `arrivals`, and their rows.

        No places: all of them.
        """
        numbers, rows = self._arrival
        first, table = self._row_of
        places = None
        if len(arrivals) and (arrivals.min() < first or arrivals.max() > numbers[-1]):
            places = np.flatnonzero((arrivals >= first) & (arrivals <= numbers[-1]))
            arrivals = arrivals[places]
        if table is None:
            return places, arrivals - first
        if table is _SEARCHED:
            at = np.searchsorted(numbers, arrivals)
            here = numbers[at] == arrivals
            found = at if rows is None else rows[at]
        else:
            found = table[arrivals - first]
            here = found >= 0
        if here.all():
            return places, found
        return np.flatnonzero(here) if places is None else places[here], found[here]

    def column(self, name: str) -> OpenColumn:
        """A column, opened for its totals."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = open_column(get_column(self.table, name))
        return found

    def get_run(self, key: str, arrange: Callable[[], SortedRun]) -> SortedRun:
        """A run that the store does not have; it is kept as long as the segment is open."""
        found = self._runs.get(key)
        if found is None:
            found = self._runs[key] = arrange()
        return found

    def get_or_compute(self, key: tuple[Any, ...], compute: Callable[[], np.ndarray]) -> np.ndarray:
        """The result kept under that key, or computed now; the last few results are kept."""
        with self._lock:
            found = self._computed.get(key)
            if found is not None:
                self._computed.move_to_end(key)
                return found
        computed = compute()
        with self._lock:
            self._computed[key] = computed
            while len(self._computed) > _KEPT:
                self._computed.popitem(last=False)
        return computed


class Files:
    """Open segments and matches, by path, the least recently used closed first."""

    def __init__(
        self,
        store: Path,
        events: Events,
        added: Callable[[int], Sequence[Field]] = lambda _: (),
    ) -> None:
        """`added` gives the columns that older segments of a stream lack, by the stream's id."""
        self._store = store
        self._events = events
        self._added = added
        self._segments: OrderedDict[str, OpenSegment] = OrderedDict()
        self._matches: OrderedDict[str, tuple[MatchReader, frozenset[int]]] = OrderedDict()
        self._caches: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def segment(self, ref: SegmentRef) -> OpenSegment:
        """Raises STORE-602 when the file is corrupt or missing."""
        added = self._added(ref.stream_id) if ref.kind == DATA else ()
        opened = self._get(self._segments, ref.path)
        if opened is None or (added and added[-1].name not in opened.table.column_names):
            opened = OpenSegment(ref, open_segment(self._store / ref.path, ref.checksum, added))
            self._remember(self._segments, ref.path, opened, _OPEN_SEGMENTS)
        return opened

    def matches(self, ref: MatchRef, slot: int) -> MatchReader | None:
        """None when the file is corrupt or missing, or the slot's predicate failed when it was
        made: matches can always be computed again."""
        found = self._get(self._matches, ref.path)
        if found is None:
            try:
                table = open_arrow(self._store / ref.path, ref.checksum)
            except MillpondError:
                self._events.matches_torn(ref)
                return None
            found = MatchReader(table), failed_slots(table)
            self._remember(self._matches, ref.path, found, _OPEN_MATCHES)
        reader, failed = found
        return None if slot in failed else reader

    def pairs(self, ref: PairsRef) -> PairsReader | None:
        """None when the file is corrupt or missing."""
        return self._open_cached(ref.path, ref.checksum, PairsReader.of)

    def run(self, ref: ArrangementRef) -> SortedRun | None:
        """None when the file is corrupt or missing."""
        return self._open_cached(ref.path, ref.checksum, SortedRun.of_table)

    def _open_cached(self, path: str, checksum: str, read: Callable[[pa.Table], Any]) -> Any:
        found = self._get(self._caches, path)
        if found is None:
            try:
                found = read(open_arrow(self._store / path, checksum))
            except MillpondError:
                return None
            self._remember(self._caches, path, found, _OPEN_CACHES)
        return found

    def forget(self, paths: Iterable[str]) -> None:
        """Close files that were removed, so that the disk gets their space back."""
        with self._lock:
            for path in paths:
                self._segments.pop(path, None)
                self._matches.pop(path, None)
                self._caches.pop(path, None)

    def _get(self, cache: OrderedDict[str, Any], key: str) -> Any:
        with self._lock:
            found = cache.get(key)
            if found is not None:
                cache.move_to_end(key)
            return found

    def _remember(self, cache: OrderedDict[str, Any], key: str, value: Any, limit: int) -> None:
        with self._lock:
            cache[key] = value
            while len(cache) > limit:
                cache.popitem(last=False)


class LeafView(SegmentView):
    """`engine.invocation.window_slices.SegmentView` of one stored segment for one leaf."""

    def __init__(
        self,
        files: Files,
        version: Version,
        ref: SegmentRef,
        schema: Schema,
        factors: Factors | None,
        slot: int | None,
        sample: tuple[int, float] | None,
    ) -> None:
        self._files = files
        self._version = version
        self._ref = ref
        self._schema = schema
        self._factors = factors
        self._slot = slot
        self._sample = sample
        self._opened: OpenSegment | None = None

    @property
    def _segment(self) -> OpenSegment:
        if self._opened is None:
            self._opened = self._files.segment(self._ref)
        return self._opened

    @property
    def segment_id(self) -> int:
        return self._ref.id

    @property
    def epoch(self) -> int:
        """The epoch of its youngest element."""
        return self._ref.epoch

    @property
    def table(self) -> pa.Table:
        return self._segment.table

    @property
    def arrived(self) -> tuple[int, int]:
        """As `OpenSegment.arrived`."""
        return self._segment.arrived

    def locate(self, arrivals: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
        """As `OpenSegment.locate`."""
        return self._segment.locate(arrivals)

    def get_run(self, key: str, arrange: Callable[[], SortedRun]) -> SortedRun:
        """As `OpenSegment.get_run`."""
        return self._segment.get_run(key, arrange)

    @property
    def ts(self) -> np.ndarray:
        return self._segment.ts

    @property
    def min_ts(self) -> int:
        return self._ref.min_ts

    @property
    def max_ts(self) -> int:
        return self._ref.max_ts

    def matching(self, lo: int, hi: int) -> np.ndarray | None:
        rows = self._matching(lo, hi)
        if self._sample is None:
            return rows
        candidates = np.arange(lo, hi, dtype=np.int64) if rows is None else rows
        seed, percent = self._sample
        return candidates[choose_sample(seed, self.sequence(candidates), percent)]

    @kept_property
    def _stored(self) -> MatchReader | None:
        """The stored matches of the leaf's slot, if there are any."""
        if self._slot is not None:
            for ref in self._version.matches(self._ref.id):
                if ref.low <= self._slot < ref.upto:
                    reader = self._files.matches(ref, self._slot)
                    if reader is not None:
                        return reader
        return None

    @property
    def is_matched(self) -> bool:
        """Whether it is known which rows match, so that no predicate has to be evaluated."""
        return self._factors is None or self._stored is not None

    def open_matches(self) -> OpenMatches:
        """Open the matches, which have to be known; of a leaf without a sample."""
        assert self.is_matched
        assert self._sample is None
        if self._factors is None or self._stored is None or self._slot is None:
            return EveryRow()
        return self._stored.open(self._slot)

    def column(self, name: str) -> OpenColumn:
        """Return a column of all the segment's rows, opened for its totals."""
        return self._segment.column(name)

    def values(self, name: str) -> pa.ChunkedArray:
        """Return a column of all the segment's rows."""
        return get_column(self._segment.table, name)

    def _matching(self, lo: int, hi: int) -> np.ndarray | None:
        if self._factors is None:
            return None
        if self._stored is not None:
            assert self._slot is not None
            return self._stored.rows(self._slot, lo, hi)
        part = self._segment.table.slice(lo, hi - lo)
        return find_matches(part, self._factors, self._schema) + lo

    def sequence(self, rows: np.ndarray) -> np.ndarray:
        return global_seq(self._segment.local_seq[rows], self._ref.seq_runs)

    def take(self, rows: np.ndarray, columns: Sequence[str]) -> pa.Table:
        if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
            return self.span(int(rows[0]), int(rows[-1]) + 1, columns)
        return self._segment.take(rows, columns)

    def span(self, lo: int, hi: int, columns: Sequence[str]) -> pa.Table:
        return self._segment.table.select(list(columns)).slice(lo, hi - lo)

    def row_bytes(self, columns: Sequence[str] | None) -> float:
        """The bytes of columns in a row, on average; without columns what the file has for one."""
        if columns is None:
            return self._ref.bytes / max(self._ref.rows, 1)
        table = self._segment.table
        return table.select(list(columns)).nbytes / max(table.num_rows, 1)

    def last_per_key(
        self, by: tuple[str, ...], count: int, every: bool, compute: Callable[[], np.ndarray]
    ) -> np.ndarray:
        matched = None if every or self._factors is None else self._factors.key
        key = (matched, None if every else self._sample, by, count)
        return self._segment.get_or_compute(key, compute)
