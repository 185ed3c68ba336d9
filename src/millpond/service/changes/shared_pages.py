"""Reads the changes of many queries from their shared log at once.

A feed of ten thousand queries, of which a few hundred have news, finds the news in the new segments
of a shared log. It is a binary search of all of them together in each segment, and one table of
what is found; each query's page is a slice of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.operators.source import LOG
from millpond.service.answers.invocation import narrow_integers
from millpond.service.changes.cursor import cursor_prefix
from millpond.service.results import Changes
from millpond.state.segment_file import SEQUENCE, TIMESTAMP, get_column, open_segment
from millpond.state.version import SegmentRef, Version

Ints = npt.NDArray[np.int64]
_NONE = np.zeros(0, np.int64)
#: The bytes of a page of changes, about: who reads has them as objects, or as JSON, as well.
PAGE_BYTES = 32 << 20
#: Segments of which a feed remembers that it is done with them, before it forgets the gone ones.
_MOST_REMEMBERED = 1_000


@dataclass(frozen=True)
class _Found:
    """Rows of a segment: the place of each one's log, its row in the table, and its number."""

    table: pa.Table
    owner: Ints
    row: Ints
    number: Ints

    @property
    def nbytes(self) -> float:
        """The bytes of the rows, if they are as large as the table's rows are on average."""
        return len(self.row) * self.table.nbytes / max(self.table.num_rows, 1)

    def select(self, places: Ints, most: int) -> _Found:
        """The first rows of each log behind its place, at most `most` of each."""
        first = self.number < places[self.owner] + most
        return _Found(self.table, self.owner[first], self.row[first], self.number[first])


class SharedPages:
    """Reads pages of the members of shared logs for one feed.

    What a segment has before the members' places is not looked at again: a segment is done once no
    member has anything behind its place in it. Places only go on.
    """

    def __init__(self, store: Path, incarnation: str) -> None:
        self._store = store
        self._incarnation = incarnation
        self._done: set[int] = set()
        #: Of the segments that are not done: the ids of the logs in each.
        self._logs: dict[int, list[int]] = {}

    def forget(self) -> None:
        """Look at all segments again: other members came, or their places are others."""
        self._done.clear()

    def finish(self, segment_id: int) -> None:
        """Do not look at a segment again: the members have read what is theirs in it."""
        self._done.add(segment_id)
        self._logs.pop(segment_id, None)

    def list_news(self, version: Version, shared_id: int) -> list[tuple[int, list[int]]]:
        """The segments that are not done, each with the ids of the logs in it.

        Raises:
            MillpondError: STORE-602 for a corrupt segment.
        """
        found = []
        if len(self._done) > _MOST_REMEMBERED:  # those that were merged away are forgotten
            self._done = {id for id in self._done if version.segment(id) is not None}
            self._logs = {id: own for id, own in self._logs.items() if version.segment(id)}
        for segment in version.segments(shared_id):
            if segment.id in self._done:
                continue
            logs = self._logs.get(segment.id)
            if logs is None:
                table = open_segment(self._store / segment.path, segment.checksum)
                logs = np.unique(get_column(table, LOG).to_numpy()).tolist()
                self._logs[segment.id] = logs
            found.append((segment.id, logs))
        return found

    def count_given(self, version: Version, shared_id: int, logs: Ints, upto: Ints) -> Ints:
        """Count the changes of each log up to an instant, of all logs at once.

        Args:
            version: The version, which is pinned.
            shared_id: The id of their shared log.
            logs: int64, ascending: ids of members that have no change anywhere else.
            upto: int64: the instant of each.

        Returns:
            int64: of each log how many changes come up to its instant, kept or not; -1 where
            something is missing, which reading the log by itself tells.

        Raises:
            MillpondError: STORE-602 for a corrupt segment.
        """
        counts, behind = np.zeros(len(logs), np.int64), np.zeros(len(logs), np.int64)
        for segment in version.segments(shared_id):
            table = open_segment(self._store / segment.path, segment.checksum)
            held = get_column(table, LOG).to_numpy()
            low, high = np.searchsorted(held, logs, "left"), np.searchsorted(held, logs, "right")
            ends = _search_each(get_column(table, TIMESTAMP).to_numpy(), low, high, upto)
            behind += high - ends
            own = np.flatnonzero(ends > low)
            numbers = get_column(table, SEQUENCE).to_numpy()[ends[own] - 1]
            counts[own] = np.maximum(counts[own], numbers + 1)
        newest = [version.own_clock(id).next_seq for id in logs.tolist()]
        return np.where(counts + behind == newest, counts, -1)

    def read(
        self,
        version: Version,
        shared: StreamDef,
        wanted: Sequence[tuple[StreamDef, str, int, int]],
        most: int,
    ) -> list[Changes | None]:
        """Read the next changes of members, at most `most` of each, and of about `PAGE_BYTES`.

        Args:
            version: The version, which is pinned.
            shared: Their shared log.
            wanted: For each member its log, its query's name, the number of the last change that
                was read, and the instant up to which its changes are complete.
            most: How many changes of each; where they are large, fewer, but at least one.

        Returns:
            A page for each; None where something is missing, which reading the log by itself tells.

        Raises:
            MillpondError: STORE-602 for a corrupt segment.
        """
        logs = np.array([log.id for log, _, _, _ in wanted], np.int64)
        order = np.argsort(logs)
        places = np.array([number for _, _, number, _ in wanted], np.int64)[order]
        owner, number, rows = self._find(version, shared, logs[order], places, most)
        starts = np.searchsorted(owner, np.arange(len(wanted)), "left")
        counts = np.searchsorted(owner, np.arange(len(wanted)), "right") - starts
        # The changes of a log are numbered one after the other: a gap is seen by the last number.
        last = number[np.maximum(starts + counts - 1, 0)] if len(number) else places
        is_whole = (counts > 0) & (last == places + counts - 1)
        if rows is None:
            return [None] * len(wanted)
        columns = [n for n in shared.schema.names if not n.startswith("__")]
        table = Changes.of("", columns, narrow_integers(rows), "", 0, 0, 0, 0).table
        table = table.set_column(0, "cursor", pa.array(number + 1)).combine_chunks()
        found: list[Changes | None] = [None] * len(wanted)
        for at, start, count, whole in zip(
            order.tolist(), starts.tolist(), counts.tolist(), is_whole.tolist(), strict=True
        ):
            if whole:
                log, name, before, complete = wanted[at]
                prefix = cursor_prefix(self._incarnation, log.id, log.resets)
                newest = version.own_clock(log.id).next_seq
                page = table.slice(start, count)
                cursor = f"{prefix}.{before + count}"
                found[at] = Changes(page, name, cursor, newest, complete)
        return found

    def _find(
        self, version: Version, shared: StreamDef, logs: Ints, places: Ints, most: int
    ) -> tuple[Ints, Ints, pa.Table | None]:
        """The first rows behind the places, in the order of log and number.

        Args:
            logs: int64, ascending.
            places: int64: the number of each log's first change that is wanted.
            most: How many of each log are wanted.

        Returns:
            For each row the log's place in `logs` and the change's number; and the rows.
        """
        found: list[_Found] = []
        for segment in version.segments(shared.id):
            if segment.id in self._done:
                continue
            one = self._search(segment, logs, places)
            if len(one.owner):
                found.append(one)
            else:
                # What the members that have news have read, the others have too, or have not got.
                self.finish(segment.id)
        found = [one.select(places, most) for one in found]
        size = sum(one.nbytes for one in found)
        if size > PAGE_BYTES:
            rows = sum(len(one.row) for one in found)
            news = len(np.unique(np.concatenate([one.owner for one in found])))
            most = max(1, int(PAGE_BYTES * rows / size / news))
            found = [one.select(places, most) for one in found]
        owner = np.concatenate([_NONE, *(one.owner for one in found)])
        number = np.concatenate([_NONE, *(one.number for one in found)])
        if not len(owner):
            return owner, number, None
        order = np.lexsort((number, owner))
        taken = pa.concat_tables([one.table.take(pa.array(one.row)) for one in found])
        return owner[order], number[order], taken.take(pa.array(order)).combine_chunks()

    def _search(self, segment: SegmentRef, logs: Ints, places: Ints) -> _Found:
        table = open_segment(self._store / segment.path, segment.checksum)
        held = get_column(table, LOG).to_numpy()
        low, high = np.searchsorted(held, logs, "left"), np.searchsorted(held, logs, "right")
        owner = np.repeat(np.arange(len(logs)), high - low)
        ends = np.cumsum(high - low)
        rows = np.arange(len(owner)) + np.repeat(low - (ends - (high - low)), high - low)
        number = get_column(table, SEQUENCE).to_numpy()[rows]
        wanted = number >= places[owner]
        return _Found(table, owner[wanted], rows[wanted], number[wanted])


def _search_each(values: Ints, low: Ints, high: Ints, upto: Ints) -> Ints:
    """Where, of each range of ascending values, those up to its own bound end."""
    low, high = low.copy(), high.copy()
    while len(open_ := np.flatnonzero(low < high)):
        middle = (low[open_] + high[open_]) // 2
        is_given = values[middle] <= upto[open_]
        low[open_[is_given]] = middle[is_given] + 1
        high[open_[~is_given]] = middle[~is_given]
    return low
