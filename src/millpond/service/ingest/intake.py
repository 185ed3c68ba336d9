"""The intake: rows pushed by INSERT or over HTTP, durable before they are acknowledged.

The intake judges rows when it accepts them, against the heartbeat that all pushes accepted before
lead to. The rows lie in the inbox until the pipeline has made them an epoch. So what becomes of a
row does not depend on how the pipeline cuts pushes into batches, and the client is told at once.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.engine.admission import heartbeat
from millpond.engine.admission.admit import Admission, AdmittedRows, admit
from millpond.engine.admission.heartbeat import StreamProgress
from millpond.errors import MillpondError
from millpond.model.names import LONGEST_KEY, find_fault_of_line
from millpond.model.time import BEGINNING, END, format_instant
from millpond.model.unicode_text import check_unicode
from millpond.runtime.batch_tasks import pack
from millpond.service.ingest.door import Door, Passage
from millpond.service.ingest.floors import FloorsInFlight
from millpond.service.ingest.pressure import Pressure
from millpond.service.ingest.receipts import add_to_receipt, fingerprint_of
from millpond.service.queries.wanted import Wanted
from millpond.service.results import IngestReceipt
from millpond.state.epoch_log import EpochLog
from millpond.state.inbox.inbox import Inbox, InboxRow, PushProgress
from millpond.state.inbox.writer_batch import WriterBatch
from millpond.work import wait_for


class Intake:
    """Accepts pushed rows; safe to call from any thread."""

    def __init__(
        self,
        inbox: Inbox,
        log: EpochLog,
        floors: FloorsInFlight,
        door: Door,
        wanted: Wanted,
        pressure: Pressure,
        ahead: int = END,
    ) -> None:
        self.door = door
        self._pressure = pressure
        self._wanted = wanted
        #: By push, the bytes that count as waiting.
        self._bytes: dict[int, int] = {}
        #: By stream, how many pushes and elements came to the door.
        self._came: dict[int, tuple[int, int]] = {}
        self._inbox = inbox
        #: How far ahead of the clock elements of streams may be that do not say so themselves.
        self._ahead = ahead
        #: Of streams with pushes whose files were lost: the greatest timestamp they may have held.
        self.lost_upto: dict[int, int] = {}
        self._log = log
        self._floors = floors
        self._locks: dict[int, threading.RLock] = defaultdict(threading.RLock)
        self._lock = threading.Lock()
        self._accepted = threading.Condition()
        self._progress: dict[int, StreamProgress] = {}
        self._after: dict[int, tuple[int, StreamProgress]] = {}
        self._tokens: dict[int, int] = {}
        for row in inbox.list_pending():
            self._adopt(row)

    def _adopt(self, row: InboxRow) -> None:
        """Take over pushes that were acknowledged before a restart and are in no epoch yet.

        A push whose file is missing or torn is lost, and nobody waits for it; but the floor held
        for its rows stays, so that no reader takes them for present.
        """
        clock = self._log.version.clock(row.stream_id)
        committed = StreamProgress(clock.high, clock.heartbeat, clock.arrived_at, clock.ended)
        overtaken = committed.arrived_at is not None and committed.arrived_at >= row.arrived_at
        floor = BEGINNING if overtaken else committed.heartbeat
        token, _, _ = self._floors.hold(lambda now: {row.stream_id: floor})
        own = StreamProgress(row.high, row.heartbeat, row.arrived_at)
        before = self._progress.get(row.stream_id, committed)
        self._progress[row.stream_id] = heartbeat.merge_progress(before, own)
        if row.number in self._inbox.recovered.lost:
            self._note_lost(row)
        else:
            with self._lock:
                self._tokens[row.number], self._after[row.number] = token, (row.stream_id, own)
                self._bytes[row.number] = row.bytes
            self.door.add(row.bytes)

    def push(
        self, stream: StreamDef, rows: pa.Table, key: str | None = None
    ) -> tuple[IngestReceipt, int]:
        """Accept rows; returns when they are durable, with the receipt and the inbox number.

        Raises:
            MillpondError: DATA-501 for a key that is not Unicode, POND-407 for a stream with a
                source, DATA-503 for a reused key, STORE-603 when the disk is full.
        """
        if key is not None:
            check_unicode(key, "the idempotency key", "DATA-501")
            if fault := find_fault_of_line(key, LONGEST_KEY):
                raise MillpondError(
                    "DATA-501",
                    "the idempotency key cannot be taken",
                    detail=fault,
                    hint="Send a short key, a UUID for one.",
                )
        check_pushed(stream)
        with self.stream_lock(stream.id):
            stream = self._log.version.streams.get(stream.id, stream)  # it may have been altered
            fingerprint = fingerprint_of(rows) if key is not None else None
            if key is not None and (before := self._inbox.receipt(stream.id, key, fingerprint)):
                return IngestReceipt(**before.receipt, duplicate=True), before.number
            return self._accept(stream, [rows], key, fingerprint)

    def push_batch(
        self, stream: StreamDef, batch: WriterBatch, open_parts: Callable[[], Sequence[pa.Table]]
    ) -> tuple[IngestReceipt, int]:
        """Accept a batch of a writer, all of its parts or none; a batch that came before is passed.

        The rows of all parts are judged by the heartbeat before the batch.

        Raises:
            MillpondError: POND-407, DATA-504, POND-417, STORE-603.
        """
        check_pushed(stream)
        with self.stream_lock(stream.id):
            stream = self._log.version.streams.get(stream.id, stream)
            if before := self._inbox.find_batch(stream.id, batch):
                return IngestReceipt(**before.receipt, duplicate=True), before.number
            parts = open_parts() or [stream.schema.to_arrow().empty_table()]
            return self._accept(stream, parts, batch.key, None)

    def _accept(
        self, stream: StreamDef, parts: Sequence[pa.Table], key: str | None, fingerprint: str | None
    ) -> tuple[IngestReceipt, int]:
        """Judge and keep the parts of a push; called with the stream's lock held."""
        self._pressure.look()
        sizes = [max(rows.nbytes, 1) for rows in parts]
        count = sum(rows.num_rows for rows in parts)
        passage = self.door.enter(stream, sum(sizes), count)
        #: What of each part is counted as waiting.
        counted = [0] * len(parts) if passage.is_closed else list(sizes)
        before = self._current_progress(stream)
        # Until the history is read the heartbeat stands, but what it has is not pushed again.
        least = BEGINNING if stream.history is None else stream.history.until or BEGINNING
        token, now, floors = self._floors.hold(
            lambda now: {
                stream.id: max(
                    heartbeat.current_heartbeat(
                        before, stream, _arrival(before, now), self._floors.idle.of(stream)
                    ),
                    least,
                )
            }
        )
        tokens = [token, *(self._floors.hold(lambda _: floors)[0] for _ in parts[1:])]
        arrival, attended = _arrival(before, now), self._floors.idle.of(stream)
        judge = Admission(
            stream.schema,
            stream.timestamp_by,
            floors[stream.id],
            arrival,
            heartbeat.latest_allowed(stream, arrival, self._ahead),
        )
        receipt: dict[str, Any] = {"accepted": 0, "rejected": 0, "rejects": [], "shed": 0}
        high: int | None = None
        after: list[StreamProgress] = []

        def judge_each() -> Iterator[pa.Table]:
            nonlocal high
            for place, rows in enumerate(parts):
                admitted = admit(rows, judge)
                stamps = admitted.elements["__ts"].to_numpy()
                if len(stamps):
                    high = int(stamps.max()) if high is None else max(high, int(stamps.max()))
                if stream.sheds:
                    admitted = self._shed(stream, admitted, passage)
                    kept = _waiting_bytes(admitted, sizes[place])
                    self.door.keep(stream, passage, sizes[place], kept, count)
                    counted[place] = kept
                add_to_receipt(receipt, admitted, sum(part.num_rows for part in parts[:place]))
                yield pack(admitted)

        def settle() -> list[PushProgress]:
            # The heartbeat goes on with the last part: until then, rows before it may come.
            last = heartbeat.after_arrivals(before, stream, high, arrival, attended=attended)
            earlier = replace(last, heartbeat=before.heartbeat)
            after.extend([*([earlier] * (len(parts) - 1)), last])
            return [PushProgress(each.high, each.heartbeat) for each in after]

        try:
            # One push is judged before it stands in the line; of a batch, one part is in memory.
            tables = list(judge_each()) if len(parts) == 1 else judge_each()
            number = self._inbox.accept_parts(
                stream.id, len(parts), tables, settle, arrival, key, fingerprint, receipt
            ).number
            for place, each in enumerate(after):
                own = number - len(parts) + 1 + place
                self._note_accepted(stream.id, own, tokens[place], each, counted[place])
        except BaseException:
            for token in tokens:
                self._floors.release(token)
            self.door.leave(sum(counted))
            raise
        return IngestReceipt(**receipt), number

    def _shed(self, stream: StreamDef, admitted: AdmittedRows, passage: Passage) -> AdmittedRows:
        """Shed elements of a push as the stream's step says; called with the stream's lock held."""
        count = admitted.elements.num_rows
        clock = self._log.version.clock(stream.id)
        pushes, came = self._came.get(stream.id, (0, clock.next_seq))
        self._came[stream.id] = pushes + 1, came + count
        if not passage.step or not count:
            return admitted
        shedding = self._wanted.choose_shedding(self._log.version, stream, passage.share)
        places = np.arange(came, came + count, dtype=np.int64)
        return shedding.shed(admitted, stream.id, places, np.full(count, pushes))

    def heartbeat_to(self, stream: StreamDef, at: int) -> int:
        """`HEARTBEAT stream AT at` on a pushed stream, in order with its rows."""
        with self.stream_lock(stream.id):
            before = self._current_progress(stream)
            check_heartbeat(stream, before, at)
            empty = stream.schema.to_arrow().empty_table()
            nothing = admit(empty, Admission(stream.schema, None, at, at))
            attended = self._floors.idle.of(stream)  # pushed to: it does not change
            token, now, _ = self._floors.hold(
                lambda now: {
                    stream.id: heartbeat.current_heartbeat(
                        before, stream, _arrival(before, now), attended
                    )
                }
            )
            try:
                arrival = _arrival(before, now)
                after = heartbeat.after_heartbeat(before, stream, at, arrival, attended)
                number = self._inbox.accept(
                    stream.id, pack(nothing), after.high, after.heartbeat, arrival
                ).number
                self._note_accepted(stream.id, number, token, after)
            except BaseException:
                self._floors.release(token)
                raise
            return number

    def _note_accepted(
        self, stream_id: int, number: int, token: int, after: StreamProgress, size: int = 0
    ) -> None:
        with self._lock:
            self._progress[stream_id] = after
            self._bytes[number] = size
            self._tokens[number], self._after[number] = token, (stream_id, after)
        with self._accepted:
            self._accepted.notify_all()

    def stream_lock(self, stream_id: int) -> threading.RLock:
        """Held while a push of a stream is judged."""
        with self._lock:
            return self._locks[stream_id]

    def _current_progress(self, stream: StreamDef) -> StreamProgress:
        progress = self._progress.get(stream.id)
        if progress is None or stream.history is not None:
            clock = self._log.version.clock(stream.id)
            known = StreamProgress(clock.high, clock.heartbeat, clock.arrived_at, clock.ended)
            # The end of the history moves the heartbeat, too.
            progress = known if progress is None else heartbeat.merge_progress(progress, known)
        return progress

    # -- for the pipeline ----------------------------------------------------------------------

    def find_waiting(self) -> dict[int, InboxRow]:
        """The pushes that wait for their epoch, by number.

        Spark may list a push's file a moment before `push` has noted it here. Such a push is waited
        for, never skipped. If its thread was interrupted in that moment, the push is taken over.
        """
        rows = [
            row
            for row in self._inbox.list_pending()
            if row.number not in self._inbox.recovered.lost
        ]
        for row in rows:
            if not self._is_known(row.number):
                with self.stream_lock(row.stream_id):  # held until a push has returned
                    if not self._is_known(row.number):
                        self._adopt(row)
        return {row.number: row for row in rows}

    def check_waiting(self) -> list[MillpondError]:
        """Check the pushes that wait, of which a batch could not read one; give up what is lost.

        Nobody waits any more for the rows of a lost push; the floor that is held for them stays, as
        `_adopt` says.

        Returns:
            STORE-602 for each push that is lost now.

        Raises:
            MillpondError: STORE-603, the shared storage gives no answer.
        """
        rows = self.find_waiting()
        problems = self._inbox.check_again(rows.values())
        for number in rows.keys() & self._inbox.recovered.lost:
            self._note_lost(rows[number])
            with self._lock:
                self._after.pop(number, None)
                self._tokens.pop(number, None)
                self.door.leave(self._bytes.pop(number, 0))
        with self._accepted:
            self._accepted.notify_all()
        return problems

    def _note_lost(self, row: InboxRow) -> None:
        lost = self.lost_upto.get(row.stream_id, BEGINNING)
        self.lost_upto[row.stream_id] = max(lost, END if row.high is None else row.high)

    def _is_known(self, number: int) -> bool:
        with self._lock:
            return number in self._after

    def find_oldest_arrival(self) -> int | None:
        """When the oldest push came that waits for its epoch, about; None if none does."""
        with self._lock:
            for _, after in self._after.values():  # in the order in which they came
                return after.arrived_at
        return None

    def list_waiting_streams(self) -> set[int]:
        """The streams with rows that wait for their epoch."""
        with self._lock:
            return {stream_id for stream_id, _ in self._after.values()}

    def list_waiting(self) -> list[int]:
        """The numbers that still wait for their epoch, ascending."""
        with self._lock:
            return sorted(self._after)

    def are_waiting(self, numbers: Sequence[int]) -> bool:
        """Whether all of these still wait for their epoch, each named once."""
        with self._lock:
            return len(set(numbers)) == len(numbers) and all(n in self._after for n in numbers)

    def progress_after(self, numbers: Sequence[int]) -> dict[int, StreamProgress]:
        """How far each stream has come once these numbers are an epoch.

        If a later push became an epoch before an earlier one, the stream does not go back when the
        earlier one comes; until then, the floor of the earlier push limits what readers rely on.
        """
        after: dict[int, StreamProgress] = {}
        with self._lock:
            for number in numbers:
                if number in self._after:
                    stream_id, progress = self._after[number]
                    after[stream_id] = heartbeat.merge_progress(
                        after.get(stream_id, progress), progress
                    )
        return after

    def mark_committed(self, numbers: Sequence[int]) -> None:
        """Note that these numbers are part of an epoch, and wake those who wait for them."""
        with self._lock:
            for number in numbers:
                self._after.pop(number, None)
                token = self._tokens.pop(number, None)
                self.door.leave(self._bytes.pop(number, 0))
                if token is not None:
                    self._floors.release(token)
        with self._accepted:
            self._accepted.notify_all()

    @contextmanager
    def hold(self, stream: StreamDef, seconds: float) -> Iterator[None]:
        """Take no pushes of a stream, which begins when those it took are part of an epoch.

        Raises:
            MillpondError: POND-405, they are not within so many seconds.
        """
        with self.stream_lock(stream.id):
            with self._accepted:
                if not wait_for(
                    self._accepted, lambda: stream.id not in self.list_waiting_streams(), seconds
                ):
                    raise MillpondError(
                        "POND-405",
                        f'rows pushed to stream "{stream.name}" are not visible yet',
                        detail="They are durable, and the stream is altered behind them only.",
                        hint="Try again; SHOW STREAMS says if the pipeline has stopped.",
                    )
            yield

    def forget_progress(self, stream_id: int) -> None:
        """Judge the next push of a stream that is held by its clock as it is committed."""
        self._progress.pop(stream_id, None)

    def wait(self, upto: int, timeout: float | None = None) -> bool:
        """Wait until every number ≤ `upto` is an epoch; False when the time ran out."""
        with self._accepted:
            return wait_for(self._accepted, lambda: self._is_done_upto(upto), timeout)

    def _is_done_upto(self, upto: int) -> bool:
        with self._lock:
            return not self._after or min(self._after) > upto

    def last_number(self) -> int:
        """The greatest number given so far."""
        return self._inbox.last_number()


def _waiting_bytes(admitted: AdmittedRows, size: int) -> int:
    """How many bytes of a push of that size wait once some of its elements are shed."""
    parts = (admitted.elements, admitted.rejects, admitted.shed)
    return min(size, max(sum(part.nbytes for part in parts if part is not None), 1))


def check_pushed(stream: StreamDef) -> None:
    """Raise POND-407 for a stream that does not take rows from clients."""
    if stream.derived is not None:
        raise MillpondError(
            "POND-407",
            f'stream "{stream.name}" does not take rows from clients',
            detail="It is derived: its elements are the changes of its query.",
            hint="Push to the streams its query reads.",
        )
    if stream.source is not None:
        raise MillpondError(
            "POND-407",
            f'stream "{stream.name}" does not take rows from clients',
            detail=f"It reads from its {stream.source.format} source.",
            hint="Push to a stream created without USING.",
        )


def _arrival(progress: StreamProgress, now: int) -> int:
    return max(now, progress.arrived_at or now)


def check_heartbeat(stream: StreamDef, progress: StreamProgress, at: int) -> None:
    """Raise POND-409 unless a HEARTBEAT statement may set H to `at`."""
    if stream.derived is not None:
        raise MillpondError(
            "POND-409",
            f'stream "{stream.name}" is derived',
            detail="Its heartbeat is that of the streams its query reads.",
            hint="Give them a HEARTBEAT.",
        )
    if stream.reads_history:
        raise MillpondError(
            "POND-409",
            f'the history of stream "{stream.name}" is still read',
            detail="Its heartbeat sets out when the history is read: the files are in no order.",
            hint="Give the HEARTBEAT later; SHOW STREAMS says when it is read.",
        )
    if stream.timestamp_by is None:
        raise MillpondError(
            "POND-409",
            f'stream "{stream.name}" is on system time',
            detail="Its heartbeat is the clock.",
            hint="Declare TIMESTAMP BY to give the stream application time.",
        )
    if at < progress.heartbeat:
        raise MillpondError(
            "POND-409",
            f'the heartbeat of stream "{stream.name}" cannot go back',
            detail=f"It is at {format_instant(progress.heartbeat)} already.",
            hint="Give a later timestamp.",
        )
