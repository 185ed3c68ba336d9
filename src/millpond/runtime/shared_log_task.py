"""What workers do for shared logs: who selects an element, and how the changes are laid out.

A segment of a shared log has its rows in the order of (`__log`, `__seq`), where `__log` is the id
of a query's change log and `__seq` the number of the change in it. So the changes of one query lie
side by side in every segment, and are found by binary search.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.engine.matching.match import match
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.operators.source import LOG, LOGS
from millpond.runtime.batch_tasks import BuiltSegment, SplitRun
from millpond.runtime.files.stem_files import load_stem
from millpond.state.arrow_file import write_together
from millpond.state.segment_file import (
    SEQUENCE,
    TIMESTAMP,
    encode_elements,
    get_column,
    open_segment,
)
from millpond.state.store import new_path
from millpond.state.version import DATA

Ints = npt.NDArray[np.int64]
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class LogMembers:
    """The change logs whose changes go to a shared log.

    Attributes:
        stream: The name of the stream that their queries read.
        slots: int64, ascending: the slots of their predicates.
        logs: int64: the ids of their change logs, in the order of `slots`.
        starts: int64: the instants after which their changes begin, in the order of `slots`.
        numbers: int64: the number of each log's next change, in the order of `slots`.
        stem: The file of a snapshot of the stream's Query SteM; None if they have no predicates.
        counts_all: Whether elements that nobody selects count, too.
    """

    stream: str
    slots: Ints = field(default_factory=lambda: _NONE)
    logs: Ints = field(default_factory=lambda: _NONE)
    starts: Ints = field(default_factory=lambda: _NONE)
    numbers: Ints = field(default_factory=lambda: _NONE)
    stem: str | None = None
    counts_all: bool = False

    @property
    def column(self) -> str:
        """The column of elements in which it is said who selects them."""
        return LOGS if self.counts_all else LOG


@dataclass(frozen=True, eq=False)
class LoggedChanges:
    """How many changes of each log a job wrote.

    Attributes:
        logs: int64, ascending: the logs.
        first: int64: the number of each log's first change.
        counts: int64: how many there are.
        last: int64: the instant of each log's last one.
    """

    logs: Ints
    first: Ints
    counts: Ints
    last: Ints


def select_for_members(elements: pa.Table, members: LogMembers) -> pa.Table:
    """Give each element once for every member that selects it, with the member's log in `__log`.

    Where all elements count, give each of them once, with the members' logs in `__logs`.

    Args:
        elements: Elements with all columns of their stream, in the order of timestamp and arrival.
        members: The members.
    """
    places, owners = [_NONE], [_NONE]
    if elements.num_rows and members.stem is not None:
        found = match(elements, _load_stem(members), ScalarEvaluator.of_this_thread()).reader()
        matched = np.intersect1d(found.slots.astype(np.int64), members.slots)
        first = np.searchsorted(members.slots, matched, side="left")
        last = np.searchsorted(members.slots, matched, side="right")
        for slot, low, high in zip(
            matched.tolist(), first.tolist(), last.tolist(), strict=True
        ):  # slots that were selected: as many turns as there are news
            rows = found.rows(slot, 0, elements.num_rows)
            places.append(np.tile(rows, high - low))
            owners.append(np.repeat(members.logs[low:high], len(rows)))
    place, owner = np.concatenate(places), np.concatenate(owners)
    order = np.lexsort((owner, place))
    if members.counts_all:
        ends = np.searchsorted(place[order], np.arange(elements.num_rows + 1)).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(owner[order]))
        return elements.append_column(LOGS, lists)
    chosen = elements.take(pa.array(place[order]))
    return chosen.append_column(LOG, pa.array(owner[order]))


def _load_stem(members: LogMembers) -> StemSnapshot:
    """The Query SteM without what is evaluated query by query: members have none of that."""
    assert members.stem is not None
    stem = load_stem(members.stem)
    loose = tuple(slot for slot in stem.loose if _has(members.slots, slot))
    return replace(stem, others={}, loose=loose)


def _has(ascending: Ints, value: int) -> bool:
    at = int(np.searchsorted(ascending, value))
    return at < len(ascending) and int(ascending[at]) == value


def lay_out(elements: pa.Table, members: LogMembers) -> tuple[pa.Table, LoggedChanges]:
    """Sort changes by log, number them, and leave out those that are nobody's.

    Args:
        elements: Changes in canonical order, with `__log` and `__ts`.
        members: The members.
    """
    by_log = np.argsort(members.logs)
    known = members.logs[by_log]
    owner = get_column(elements, LOG).to_numpy()
    stamps = get_column(elements, TIMESTAMP).to_numpy()
    at = np.searchsorted(known, owner)
    at[at == len(known)] = 0
    wanted = np.zeros(len(owner), bool)
    if len(known):
        wanted = (known[at] == owner) & (stamps > members.starts[by_log][at])
    places = np.flatnonzero(wanted)
    places = places[np.argsort(owner[places], kind="stable")]
    owner, stamps, at = owner[places], stamps[places], at[places]
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    counts = np.diff(begins, append=len(owner))
    rank = np.arange(len(owner)) - np.repeat(begins, counts)
    numbers = members.numbers[by_log][at] + rank
    laid = elements.take(pa.array(places)).append_column(SEQUENCE, pa.array(numbers))
    last = stamps[begins + counts - 1] if len(begins) else _NONE
    return laid.combine_chunks(), LoggedChanges(owner[begins], numbers[begins], counts, last)


@dataclass(frozen=True, eq=False)
class MergeLogsJob:
    """Merge segments `(path, checksum)` of a shared log into one.

    Attributes:
        logs: int64, ascending: the logs whose changes are kept.
        floors: int64: the number of each log's first change that is kept.
    """

    store: str
    stream_id: int
    segments: tuple[tuple[str, str], ...]
    logs: Ints
    floors: Ints


@dataclass(frozen=True, eq=False)
class MergeLogsResult:
    """The merged segment, if anything is left.

    Attributes:
        built: The segment.
        logs: int64: the logs that lost changes.
        dropped_upto: int64: the instant of the last change that each of them lost.
    """

    built: BuiltSegment | None
    logs: Ints
    dropped_upto: Ints


def merge_logs(job: MergeLogsJob) -> MergeLogsResult:
    """Merge by (log, number), without what need not be kept."""
    tables = [open_segment(Path(job.store) / path, checksum) for path, checksum in job.segments]
    merged = pa.concat_tables(tables)
    owner, number = merged[LOG].to_numpy(), merged[SEQUENCE].to_numpy()
    at = np.minimum(np.searchsorted(job.logs, owner), len(job.logs) - 1)
    known = job.logs[at] == owner
    kept = known & (number >= job.floors[at])
    lost = np.flatnonzero(known & ~kept)
    logs, place = np.unique(owner[lost], return_inverse=True)
    upto = np.full(len(logs), np.iinfo(np.int64).min)
    np.maximum.at(upto, place, merged[TIMESTAMP].to_numpy()[lost])
    places = np.flatnonzero(kept)
    if not len(places):
        return MergeLogsResult(None, logs, upto)
    order = places[np.lexsort((number[places], owner[places]))]
    rows = merged.take(pa.array(order)).combine_chunks()
    return MergeLogsResult(_write(job.store, job.stream_id, rows), logs, upto)


@dataclass(frozen=True, eq=False)
class CutLogsResult:
    """What is left of a segment of a shared log, and how many changes each log has lost."""

    built: BuiltSegment | None
    logs: Ints
    removed: Ints


@dataclass(frozen=True)
class CutLogsJob:
    """Take the changes after an instant out of a segment `(path, checksum)` of a shared log."""

    store: str
    stream_id: int
    segment: tuple[str, str]
    after: int


def cut_logs(job: CutLogsJob) -> CutLogsResult:
    """Write what is left."""
    path, checksum = job.segment
    rows = open_segment(Path(job.store) / path, checksum)
    stays = rows[TIMESTAMP].to_numpy() <= job.after
    logs, removed = np.unique(rows[LOG].to_numpy()[~stays], return_counts=True)
    kept = rows.filter(pa.array(stays)).combine_chunks()
    built = _write(job.store, job.stream_id, kept) if kept.num_rows else None
    return CutLogsResult(built, logs, removed)


def _write(store: str, stream_id: int, rows: pa.Table) -> BuiltSegment:
    (file,) = write_together([(new_path(store, "segments"), encode_elements(rows))])
    stamps = get_column(rows, TIMESTAMP).to_numpy()
    least, most = int(stamps.min()), int(stamps.max())
    return BuiltSegment(stream_id, DATA, file, least, most, (SplitRun(0, (), 0),))
