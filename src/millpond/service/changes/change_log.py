"""Reads change logs: the changes of derivations, from committed segments, a page at a time.

Changes are numbered from 1 on, in the order of delivery, and a cursor (`cursor.py`) names one of
them; reading after number 7 begins with number 8. Only the reader knows its cursor: the pond keeps
no position of any reader. Readers read committed changes only, one page at a time. So a slow or
absent reader blocks nobody, and a page that is read twice is the same twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.model.loss import Cause, Loss, merge_losses
from millpond.operators.source import LOG
from millpond.service.answers.invocation import narrow_integers
from millpond.service.answers.losses import Losses
from millpond.service.changes.advancer import Advancer
from millpond.service.changes.cursor import (
    OLDEST,
    cursor_prefix,
    not_kept_error,
    parse_cursor,
    trimmed_error,
)
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.giving_way.reducing import find_losses
from millpond.service.changes.shared_pages import PAGE_BYTES, SharedPages
from millpond.service.events import Events, noting_damage
from millpond.service.results import Changes
from millpond.state.epoch_log import EpochLog
from millpond.state.segment_file import SEQUENCE, get_column, open_rows, open_segment
from millpond.state.version import WAITING, SegmentRef, Version

#: Changes of a page, unless asked otherwise.
PAGE = 10_000


class LogPart(NamedTuple):
    """A log's rows of one segment: the number of the first, how many, and what opens them."""

    first: int
    rows: int
    open: Callable[[], pa.Table]


class ChangeReader:
    """Reads the changes of derivations; safe to use from any thread."""

    def __init__(
        self,
        store: Path,
        log: EpochLog,
        derivations: Derivations,
        advancer: Advancer,
        events: Events,
        losses: Losses,
    ) -> None:
        self._losses = losses
        self._store = store
        self._log = log
        self._derivations = derivations
        self._advancer = advancer
        self._events = events

    def read(
        self,
        stream: StreamDef,
        name: str,
        after: str | int | None = None,
        limit: int | None = None,
        most_bytes: int = PAGE_BYTES,
    ) -> Changes:
        """The changes after a cursor, or from the first on; with a `limit` at most so many.

        With a limit they also have at most about `most_bytes`, but there is at least one.

        Raises:
            MillpondError: POND-412 when the cursor is not one of these changes, or they are not
                kept any more; CQL-103 for a negative limit; STORE-602 for a corrupt segment.
        """
        if limit is not None and limit < 0:
            raise MillpondError("CQL-103", "LIMIT is negative", hint="Give 0 or more.")
        with noting_damage(self._events), self._log.pin() as version:
            # The log as it is there: its query may have got another definition since it was found.
            stream = version.streams.get(stream.id, stream)
            return self._read(version, stream, name, after, limit, most_bytes)

    def open_shared_pages(self) -> SharedPages:
        """What a feed reads the changes of many queries by."""
        return SharedPages(self._store, self._log.incarnation)

    def list_news(
        self, version: Version, pages: SharedPages, shared_id: int
    ) -> list[tuple[int, list[int]]]:
        """The segments of a shared log that a feed is not done with; see `SharedPages.list_news`.

        Raises:
            MillpondError: STORE-602 for a corrupt segment.
        """
        with noting_damage(self._events):
            return pages.list_news(version, shared_id)

    def count_given(
        self, version: Version, pages: SharedPages, shared_id: int, given: Mapping[int, int]
    ) -> dict[int, int]:
        """Count the changes of logs up to an instant of each, by the logs' ids.

        The version is pinned. A log of which something is missing is not among those found; see
        `SharedPages.count_given`.
        """
        logs = np.array(sorted(given), np.int64)
        upto = np.array([given[id] for id in logs.tolist()], np.int64)
        with noting_damage(self._events):
            counts = pages.count_given(version, shared_id, logs, upto)
        found = zip(logs.tolist(), counts.tolist(), strict=True)
        return {id: count for id, count in found if count >= 0}

    def read_shared(
        self,
        version: Version,
        pages: SharedPages,
        shared_id: int,
        wanted: Sequence[tuple[StreamDef, str, int, int]],
        since: int,
        most: int,
    ) -> list[Changes | None]:
        """Read the next changes of many queries, after an instant; see `SharedPages.read`.

        The version is pinned, and the one in which the queries have these changes.
        None also where something was lost, of which the page that `read` gives tells.
        """
        with noting_damage(self._events):
            shared = version.streams.get(shared_id)
            upto = max(complete for _, _, _, complete in wanted)
            if shared is None or list(self._losses.find(version, shared, since, upto)):
                return [None] * len(wanted)
            return pages.read(version, shared, wanted, most)

    def _read(
        self,
        version: Version,
        stream: StreamDef,
        name: str,
        cursor: str | int | None,
        limit: int | None,
        most_bytes: int,
    ) -> Changes:
        prefix = self.prefix(stream)
        newest = version.clock(stream.id).next_seq
        segments = self._in_order(version, stream)
        oldest = segments[0].first if segments else newest
        if cursor is None and oldest:
            raise trimmed_error(name, oldest, newest)
        after = oldest
        if cursor is not None and cursor != OLDEST:
            after = self.parse(stream, name, cursor)
        if after < oldest or after > newest:
            raise not_kept_error(name, after, oldest, newest)
        upto = newest if limit is None else min(newest, after + limit)
        marks = stream.derived.marks if stream.derived is not None else ()
        upto = min([upto, *(mark.number for mark in marks if mark.number > after)])
        redefined = next((mark.text for mark in reversed(marks) if mark.number == after), None)
        parts = []
        for first, rows, open_part in segments:
            lo, hi = max(after - first, 0), min(upto - first, rows)
            if lo < hi:
                parts.append(open_part().slice(lo, hi - lo))
        if limit is not None:
            parts = _within(parts, most_bytes)
            upto = min(upto, after + sum(part.num_rows for part in parts)) if parts else upto
        if parts:
            found = narrow_integers(pa.concat_tables(parts).combine_chunks())
        elif segments and redefined is None:
            found = narrow_integers(_of_number(segments, after).open().slice(0, 0))
        else:
            stamp = pa.field("__ts", pa.int64())
            derivation = None
            if stream.shared_log is None:
                derivation = self._derivations.find_of(version, stream)
            planned = stream.schema.to_arrow() if derivation is None else derivation.schema
            found = narrow_integers(planned.append(stamp).empty_table())
        columns = [name for name in found.column_names if not name.startswith("__")]
        position = self._advancer.complete_upto(version, stream)
        if upto < newest:
            # There is more, perhaps of the same instant: complete is what lies before.
            last = found["__ts"][-1] if found.num_rows else self._stamp(segments, upto)
            position = int(last.as_py()) - 1
        loss = self._find_loss(version, stream, segments, after, position, found)
        return Changes.of(
            name, columns, found, prefix, after, upto, newest, position, loss, redefined
        )

    def _find_loss(
        self,
        version: Version,
        stream: StreamDef,
        segments: Sequence[LogPart],
        after: int,
        upto: int,
        page: pa.Table,
    ) -> tuple[Loss, ...]:
        """What the changes from the one at the cursor up to an instant lack.

        The change at the cursor may have come in the middle of its instant, so its instant counts.
        """
        since = version.clock(stream.id).kept_from
        if after and segments and segments[0].first < after:
            since = int(self._stamp(segments, after - 1).as_py())
        found = list(self._losses.find(version, stream, since, upto))
        if stream.shared_log is not None:  # none of them is reduced, or looks at a part only
            return merge_losses(found)
        derivation = self._derivations.find_of(version, stream)
        if derivation is None:
            return merge_losses(found)
        reduced = derivation.reduced
        if reduced is not None or (stream.derived and stream.derived.periods):
            whole = derivation.bound if reduced is None else reduced.whole
            found += find_losses(version, stream, whole, since, upto)
        look = derivation.look
        if look is None:
            return merge_losses(found)
        if look.kind == "aggregate":  # each estimate says which share of the elements it is of
            is_part = bool(pc.any(pc.less(page[look.columns[-1]], 1.0)).as_py())
        else:
            is_part = bool(version.segments(stream.id, WAITING))
        if is_part:
            skipped = look.streams[look.zoned].stream
            found.append(Loss(skipped, Cause.BUDGET, None, upto))
        return merge_losses(found)

    def prefix(self, stream: StreamDef) -> str:
        """What the cursors of a stream's changes begin with."""
        return cursor_prefix(self._log.incarnation, stream.id, stream.resets)

    def parse(self, stream: StreamDef, name: str, cursor: str | int) -> int:
        """The number of the change of a stream's log that a cursor stands for.

        Raises:
            MillpondError: POND-412, as `parse_cursor` says.
        """
        return parse_cursor(cursor, self.prefix(stream), name, self._log.ancestors)

    def _stamp(self, segments: Sequence[LogPart], place: int) -> pa.Scalar:
        """The instant of the change at a place."""
        part = _of_number(segments, place)
        return part.open()["__ts"][place - part.first]

    def _in_order(self, version: Version, stream: StreamDef) -> Sequence[LogPart]:
        """A log's segments, by the number of their first change; a page opens those it needs.

        Of segments of a shared log, the rows are this log's. What is behind a gap was dropped.
        """
        found = [
            LogPart(s.seq_runs[0][1], s.rows, partial(self._open, s))
            for s in version.segments(stream.id)
        ]
        if stream.derived is None or stream.derived.shared_log is None:
            return sorted(found, key=itemgetter(0))
        for segment in version.segments(stream.derived.shared_log):
            own = find_own(open_segment(self._store / segment.path, segment.checksum), stream)
            if own.num_rows:
                first = own["__seq"][0].as_py()
                found.append(LogPart(first, own.num_rows, partial(own.slice, 0)))
        return without_gaps(sorted(found, key=itemgetter(0)))

    def _open(self, segment: SegmentRef) -> pa.Table:
        path = self._store / segment.path
        return open_rows(path, segment.checksum, segment.seq_runs, segment.rows)


def _within(parts: Sequence[pa.Table], most: int) -> list[pa.Table]:
    """The first rows that have at most so many bytes together, or the first row.

    >>> numbers = pa.table({"n": range(10)})  # of eight bytes each
    >>> [part.num_rows for part in _within([numbers, numbers, numbers], 100)]
    [10, 2]
    """
    kept: list[pa.Table] = []
    for part in parts:
        count = part.num_rows
        if part.nbytes > most:
            # How many rows fit is between these two, of which the first has been seen to fit.
            count, beyond = 0, part.num_rows
            while beyond - count > 1:
                middle = (count + beyond) // 2
                fits = part.slice(0, middle).nbytes <= most
                count, beyond = (middle, beyond) if fits else (count, middle)
            count = count or int(not kept)
        if count:
            kept.append(part.slice(0, count))
        if count < part.num_rows:
            break
        most -= part.nbytes
    return kept


def _of_number(segments: Sequence[LogPart], place: int) -> LogPart:
    """The segment that has the change at a place, or the last before it."""
    return next(part for part in reversed(segments) if part.first <= place)


def find_own(table: pa.Table, log: StreamDef) -> pa.Table:
    """The rows of one log in a segment of its shared log."""
    assert log.derived is not None
    logs = get_column(table, LOG).to_numpy()
    low, high = np.searchsorted(logs, log.id, "left"), np.searchsorted(logs, log.id, "right")
    if log.derived.apart_from is not None and low < high:
        numbers = get_column(table, SEQUENCE).to_numpy()[low:high]
        high = low + np.searchsorted(numbers, log.derived.apart_from)
    return table.slice(low, high - low).drop_columns([LOG])


def without_gaps(segments: Sequence[LogPart]) -> Sequence[LogPart]:
    """The last segments that follow one another without a gap: what was trimmed lies before."""
    start = len(segments) - 1
    while start > 0:
        before = segments[start - 1]
        if before.first + before.rows != segments[start].first:
            break
        start -= 1
    return segments[max(start, 0) :]
