"""Reads change logs: the changes of derivations, from committed segments, a page at a time.

A cursor is the number of a change, from 1 on, in the order of delivery; "after cursor 7" begins
with number 8. Only the reader knows its cursor: the pond keeps no position of any reader. Readers
read committed changes only, one page at a time. So a slow or absent reader blocks nobody, and a
page that is read twice is the same twice.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.service.answers.invocation import narrow_integers
from millpond.service.changes.advancer import Advancer
from millpond.service.changes.derivations import Derivations
from millpond.service.events import Events
from millpond.service.results import Changes
from millpond.state.epoch_log import EpochLog
from millpond.state.segment_file import global_seq, open_segment
from millpond.state.version import SegmentRef, Version

#: Changes of a page, unless asked otherwise.
PAGE = 10_000

#: Segments with their tables, by the number of their first change.
Segments = list[tuple[int, SegmentRef, pa.Table]]


class ChangeReader:
    """Reads the changes of derivations; safe to use from any thread."""

    def __init__(
        self,
        store: Path,
        log: EpochLog,
        derivations: Derivations,
        advancer: Advancer,
        events: Events,
    ) -> None:
        self._store = store
        self._log = log
        self._derivations = derivations
        self._advancer = advancer
        self._events = events

    def read(
        self, stream: StreamDef, name: str, after: int | None = None, limit: int | None = None
    ) -> Changes:
        """The changes after a cursor, or from the oldest kept on; at most `limit`.

        Raises:
            MillpondError: POND-412 when the cursor is not one of this query's changes, or they
                are not kept any more; CQL-103 for a negative limit; STORE-602 for a corrupt
                segment.
        """
        if limit is not None and limit < 0:
            raise MillpondError("CQL-103", "LIMIT is negative", hint="Give 0 or more.")
        try:
            with self._log.pin() as version:
                return self._read(version, stream, name, after, limit)
        except MillpondError as error:
            if error.code == "STORE-602":
                self._events.file_damaged(error)
            raise

    def _read(
        self,
        version: Version,
        stream: StreamDef,
        name: str,
        after: int | None,
        limit: int | None,
    ) -> Changes:
        newest = version.clock(stream.id).next_seq
        segments = self._in_order(version.segments(stream.id))
        oldest = segments[0][0] if segments else newest
        if after is None:
            after = oldest
        if after < oldest or after > newest:
            raise _not_kept_error(name, after, oldest, newest)
        upto = newest if limit is None else min(newest, after + limit)
        parts = []
        for first, segment, table in segments:
            lo, hi = max(after - first, 0), min(upto - first, segment.rows)
            if lo < hi:
                parts.append(table.slice(lo, hi - lo))
        columns = [n for n in stream.schema.names if not n.startswith("__")]
        if parts:
            found = narrow_integers(pa.concat_tables(parts).combine_chunks())
        elif segments:
            found = narrow_integers(segments[0][2].slice(0, 0))
        else:
            stamp = pa.field("__ts", pa.int64())
            planned = self._derivations.of(version, stream).plan.schema
            found = narrow_integers(planned.append(stamp).empty_table())
        position = self._advancer.complete_upto(version, stream)
        if upto < newest:
            # There is more, perhaps of the same instant: complete is what lies before.
            last = found["__ts"][-1] if found.num_rows else self._stamp(segments, upto)
            position = int(last.as_py()) - 1
        return Changes.of(name, columns, found, after, upto, newest, position)

    def _stamp(self, segments: Segments, place: int) -> pa.Scalar:
        """The instant of the change at a place."""
        first, _, table = next(s for s in reversed(segments) if s[0] <= place)
        return table["__ts"][place - first]

    def _in_order(self, segments: tuple[SegmentRef, ...]) -> Segments:
        """The segments with their tables, by the number of their first change."""
        found = []
        for segment in segments:
            table = open_segment(self._store / segment.path, segment.checksum)
            first = global_seq(table["__seq"][:1].to_numpy(), segment.seq_runs)
            found.append((int(first[0]), segment, table))
        return sorted(found, key=lambda item: item[0])


def parse_cursor(text: str | int | None, name: str) -> int | None:
    """Parse a cursor as clients give it back. Raises POND-412 if the text is not a cursor."""
    if text is None or isinstance(text, int):
        return text
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise MillpondError(
        "POND-412",
        f'"{text}" is not a cursor of "{name}"',
        detail="A cursor is what stood first in a row of FETCH: a whole number.",
        hint="FETCH without AFTER begins with the oldest change that is kept.",
    )


def _not_kept_error(name: str, after: int, oldest: int, newest: int) -> MillpondError:
    if after > newest:
        return MillpondError(
            "POND-412",
            f'the cursor {after} of "{name}" is ahead of its changes',
            detail=f"The last change so far is number {newest}.",
            hint="A query registered anew counts its changes from 1: FETCH without AFTER.",
        )
    return MillpondError(
        "POND-412",
        f'the changes after cursor {after} of "{name}" are not kept any more',
        detail=f"The oldest cursor available is {oldest}; {newest} is the last change.",
        hint=f"Read AFTER {oldest}, and INVOKE to have the answer the lost changes led to.",
    )
