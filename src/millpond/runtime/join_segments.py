"""Segments as joins read them: arrival numbers, runs, and the query sets of their rows.

Runs and query sets are caches: a missing or unreadable one is made again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.engine.joins.arrangement import SortedRun
from millpond.engine.joins.join_stem import QuerySets, StemPart
from millpond.engine.joins.keys import Numbers
from millpond.engine.joins.plan import ArrangementKey
from millpond.engine.matching.results_structure import MatchReader
from millpond.errors import MillpondError
from millpond.model.schema import Field
from millpond.runtime.files.match_files import failed_slots
from millpond.state.arrow_file import FileMeta, open_arrow, write_arrow
from millpond.state.segment_file import global_seq
from millpond.state.store import new_path

#: With more uses than this, joining does not filter tuples by their query sets.
MOST_SETS = 256


@dataclass(frozen=True)
class SegmentPart:
    """A segment a join reads: its file, its arrival numbers, and its stored runs and matches.

    `runs` are (key, shard, shards, path, checksum), `matches` (low, upto, path, checksum).
    `is_old` says that all its elements arrived before the core's position; `added` are the columns
    that its file may lack.
    """

    segment_id: int
    path: str
    checksum: str
    seq_runs: tuple[tuple[int, int], ...]
    min_ts: int
    max_ts: int
    is_old: bool = False
    runs: tuple[tuple[str, int, int, str, str], ...] = ()
    matches: tuple[tuple[int, int, str, str], ...] = ()
    added: tuple[Field, ...] = ()


@dataclass(frozen=True)
class BuiltRun:
    """A run that was written."""

    segment_id: int
    key: str
    shard: int
    shards: int
    file: FileMeta


class ArrivalNumbers:
    """Gives the arrival numbers of a segment's rows."""

    def __init__(self, table: pa.Table, segment: SegmentPart) -> None:
        self._table = table
        self._runs = segment.seq_runs

    def __call__(self, rows: Any) -> Numbers:
        local: Numbers = self._table["__seq"].to_numpy()
        return global_seq(local[rows], self._runs)


class StoredRuns:
    """Gives a part's runs: reads them from the store, or makes them and writes them for later jobs.

    Args:
        store: The store's directory.
        segment: The part's segment.
        shard: Which shard the job is for, of `shards`.
        shards: How many shards there are.
        is_sharded: Whether the job probes only its own shard of the SteMs.
        built: The runs that were written are added here.
    """

    def __init__(
        self,
        store: str,
        segment: SegmentPart,
        shard: int,
        shards: int,
        is_sharded: bool,
        built: list[BuiltRun],
    ) -> None:
        self._store = store
        self._segment = segment
        self._shard = shard
        self._shards = shards
        self._is_sharded = is_sharded
        self._built = built

    def __call__(self, part: StemPart, key: ArrangementKey) -> list[SortedRun]:
        shards = self._shards if key.values else 1
        chosen = [self._shard] if self._is_sharded and key.values else range(shards)
        return [self._run(part, key, shard, shards) for shard in chosen]

    def _run(self, part: StemPart, key: ArrangementKey, shard: int, shards: int) -> SortedRun:
        for name, number, of, path, checksum in self._segment.runs:
            if (name, number, of) == (key.text, shard, shards):
                try:
                    return SortedRun.of_table(open_arrow(Path(self._store) / path, checksum))
                except MillpondError:
                    break  # the file is unreadable; runs are a cache and are made again
        run = part.build_run(key, (shard, shards))
        # If several jobs make the same run, only one of them writes it.
        if shards > 1 and not self._is_sharded and shard != self._shard:
            return run
        if shards == 1 and self._shard != 0:
            return run
        file = write_run(self._store, run)
        self._built.append(BuiltRun(self._segment.segment_id, key.text, shard, shards, file))
        return run


def write_run(store: str, run: SortedRun) -> FileMeta:
    """Write a run. Runs are a cache and need not survive a loss of power."""
    return write_arrow(new_path(store, "runs"), run.to_table(), sync=False, whole=False)


def query_sets(
    store: str, part: SegmentPart, rows: int, slots: Sequence[int | None]
) -> QuerySets | None:
    """Make a bit for each use and element: whether the element matches the use's predicate.

    Where no match is stored the bit is set. Query sets only save work here: reading a tuple checks
    its predicates again.
    """
    if len(slots) > MOST_SETS or None in slots:
        return None
    key = (part.path, tuple(slots), part.matches)
    found = _kept_sets.get(key)
    if found is None:
        found = _kept_sets[key] = _query_sets(store, part, rows, slots)
        while sum(kept.nbytes for kept in _kept_sets.values()) > _KEPT_BYTES:
            _kept_sets.popitem(last=False)
    else:
        _kept_sets.move_to_end(key)
    return found


#: The query sets this process made; the least recently used is dropped first. A process runs one
#: job at a time.
_kept_sets: OrderedDict[tuple[Any, ...], QuerySets] = OrderedDict()
_KEPT_BYTES = 256 << 20


def _query_sets(store: str, part: SegmentPart, rows: int, slots: Sequence[int | None]) -> QuerySets:
    sets = np.zeros((rows, -(-len(slots) // 64)), np.uint64)
    readers: dict[str, tuple[MatchReader, frozenset[int]] | None] = {}
    for number, slot in enumerate(slots):
        assert slot is not None
        word, bit = number // 64, np.uint64(1) << np.uint64(number % 64)
        found = _read_matching(store, part, rows, slot, readers)
        if found is None:
            sets[:, word] |= bit
        else:
            sets[found, word] |= bit
    return sets


def _read_matching(
    store: str,
    part: SegmentPart,
    rows: int,
    slot: int,
    readers: dict[str, tuple[MatchReader, frozenset[int]] | None],
) -> Numbers | None:
    for low, upto, path, checksum in part.matches:
        if not low <= slot < upto:
            continue
        if path not in readers:
            try:
                table = open_arrow(Path(store) / path, checksum)
                readers[path] = MatchReader(table), failed_slots(table)
            except MillpondError:
                readers[path] = None
        reader = readers[path]
        if reader is not None and slot not in reader[1]:
            return reader[0].rows(slot, 0, rows)
    return None
