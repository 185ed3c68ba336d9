"""Kept segments, as regions are looked for in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from millpond.engine.joins.arrangement import ELEMENT_BYTES as RUN_BYTES
from millpond.engine.joins.arrangement import SortedRun
from millpond.engine.joins.keys import Numbers
from millpond.model.kept_property import kept_property
from millpond.model.schema import Schema
from millpond.model.time import BEGINNING
from millpond.runtime.advance_job import SegmentFile
from millpond.state.segment_file import global_seq, open_segment

#: Bytes of an element's arrival number.
ARRIVAL_BYTES = 8


class RegionSegment:
    """A kept segment, as regions are looked for in it."""

    def __init__(self, store: str, file: SegmentFile) -> None:
        self.file = file
        self.table = open_segment(Path(store) / file.path, file.checksum, file.added)
        self.ts: np.ndarray = self.table["__ts"].to_numpy()
        self._runs: dict[str, SortedRun] = {}

    @kept_property
    def _arrivals(self) -> Numbers:
        return global_seq(self.table["__seq"].to_numpy(), self.file.seq_runs)

    @property
    def arrived(self) -> tuple[int, int]:
        return int(self._arrivals.min()), int(self._arrivals.max())

    def sequence(self, rows: np.ndarray) -> np.ndarray:
        return self._arrivals[rows]

    @property
    def held(self) -> int:
        """What it takes besides its file, in bytes: arrival numbers, and a run for each column."""
        rows = len(self.ts)
        arrivals = rows if "_arrivals" in self.__dict__ else 0
        return arrivals * ARRIVAL_BYTES + rows * RUN_BYTES * len(self._runs)

    def get_run(self, key: str, arrange: Callable[[], SortedRun]) -> SortedRun:
        found = self._runs.get(key)
        if found is None:
            found = self._runs[key] = arrange()
        return found


class EmptySegment(RegionSegment):
    """No elements of a stream, with its columns: what a join looks through before there are any."""

    def __init__(self, schema: Schema) -> None:
        self.table = schema.to_arrow().empty_table()
        self.ts = np.empty(0, np.int64)
        self._runs = {}

    @property
    def arrived(self) -> tuple[int, int]:
        return int(BEGINNING), int(BEGINNING)

    def sequence(self, rows: np.ndarray) -> np.ndarray:
        return rows
