"""Files of pairs: writes joined tuples, and folds many such files into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from millpond.engine.joins.keys import Numbers
from millpond.engine.joins.pairs import PairsReader, to_table
from millpond.state.arrow_file import FileMeta, open_arrow, write_arrow
from millpond.state.store import new_path


@dataclass(frozen=True)
class BuiltPairs:
    """A file of pairs that was written."""

    file: FileMeta
    min_oldest: int
    max_oldest: int


def write_pairs(store: str, arrivals: Sequence[Numbers], oldest: Numbers) -> BuiltPairs:
    """Write joined tuples as a file of pairs."""
    table = to_table(arrivals, oldest)
    file = write_arrow(new_path(store, "pairs"), table, sync=False, whole=False)
    return BuiltPairs(file, int(oldest.min()), int(oldest.max()))


@dataclass(frozen=True)
class FoldPairsJob:
    """Fold files of pairs `(path, checksum)` of one core into one file."""

    store: str
    files: tuple[tuple[str, str], ...]


def fold_pairs(job: FoldPairsJob) -> BuiltPairs:
    """Fold files of pairs into one and divide it into zones anew.

    A file tells only a tuple's zone, not its oldest timestamp. So the tuple is placed by the last
    instant of its zone: a reader from some instant on leaves it out only if its oldest constituent
    is certainly older.
    """
    readers = [
        PairsReader.of(open_arrow(Path(job.store) / path, checksum)) for path, checksum in job.files
    ]
    every = [reader.after(int(reader.edges[0])) for reader in readers]
    arrivals = [np.concatenate(columns) for columns in zip(*every, strict=True)]
    oldest = np.concatenate(
        [np.repeat(reader.edges[1:] - 1, np.diff(reader.starts)) for reader in readers]
    )
    written = write_pairs(job.store, arrivals, oldest)
    newest = max(int(reader.edges[-1]) for reader in readers)
    return BuiltPairs(written.file, written.min_oldest, newest)
