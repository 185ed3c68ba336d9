"""The inbox: keeps pushed rows, durable before their push is acknowledged, until their epoch.

A push is a file with the rows and a row in SQLite; committing that row is the acknowledgement. Then
the file gets the name under which the inbox's streaming query sees it. A later epoch holds the
push's rows and marks its number as done. Pushes are numbered as they come. A file becomes visible
only after all files with smaller numbers, so "everything up to n" means the same to every reader.

    INSERT, HTTP ─ .<number>.tmp, synced ─ row in SQLite = acknowledged ─ <number>.arrow ─ epoch

Many clients share one commit. Each thread writes and syncs its own file. If no other thread is
committing, a thread commits all pushes whose files are ready, up to the first push whose file is
not. So a push waits for larger pushes that came just before it.

Invariants:
    INV-INBOX-1: rows whose push was acknowledged are in exactly one epoch, or pending.
    INV-INBOX-2: numbers of visible files only ever get greater, across restarts too.
    INV-INBOX-3: a push with the idempotency key of an acknowledged one changes nothing.
    INV-INBOX-4: of the parts of a batch, all are acknowledged or none.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from millpond.errors import MillpondError
from millpond.model.owner_only import make_directory
from millpond.model.time import now
from millpond.state import arrow_file
from millpond.state.database.database import Database
from millpond.state.fail_points import reach
from millpond.state.file_share import publish, put_back, withdraw
from millpond.state.inbox.push_file import (
    PushedRows,
    hidden_path,
    shared_name,
    visible_path,
    write_hidden,
)
from millpond.state.inbox.recover_inbox import check_file, recover_inbox
from millpond.state.inbox.writer_batch import IS_LAST_BATCH, WriterBatch, last_batch

#: How long an idempotency key is remembered, in microseconds.
KEY_LIFETIME = 24 * 3_600 * 1_000_000


@dataclass(frozen=True)
class AcceptedPush:
    """The acknowledgement: the push's number, or the number of the same push sent earlier.

    `receipt` is the receipt that was stored with the (first) push.
    """

    number: int
    duplicate: bool
    receipt: dict[str, Any]


@dataclass(frozen=True)
class InboxRow:
    """An acknowledged push that no epoch holds yet.

    Attributes:
        number: The push's number: its place among all pushes.
        stream_id: The stream the rows are for.
        rows: How many rows the push has.
        high: The greatest timestamp of the rows, or None.
        heartbeat: The stream's heartbeat once the rows are committed.
        arrived_at: The clock when the rows came.
        bytes: The length of the push's file.
        checksum: The file's.
    """

    number: int
    stream_id: int
    rows: int
    high: int | None
    heartbeat: int
    arrived_at: int
    bytes: int = 0
    checksum: str = field(default="", compare=False)


class PushProgress(NamedTuple):
    """How far a stream has come with a push: the greatest timestamp, and the heartbeat then."""

    high: int | None
    heartbeat: int


@dataclass(eq=False)
class _Push:
    """A push on its way; `is_over` once it is acknowledged or has failed."""

    number: int
    stream_id: int
    arrived_at: int
    key: str | None = None
    fingerprint: str | None = None
    receipt: dict[str, Any] = field(default_factory=dict)
    progress: PushProgress | None = None
    file: arrow_file.FileMeta | None = None
    acknowledged: bool = False
    is_over: bool = False
    failure: BaseException | None = None


class Inbox:
    """The pushes of one store. Safe to use from many threads."""

    def __init__(
        self, database: Database, directory: Path, clock: Callable[[], int] | None = None
    ) -> None:
        """Open the inbox in `directory`, and repair what a crash left there."""
        self._database = database
        self._directory = directory
        self._clock = clock or now
        make_directory(self._directory)
        saved = database.read("SELECT next FROM counter WHERE name = 'inbox'")
        greatest = database.read("SELECT coalesce(max(number), 0) FROM inbox")[0][0]
        self._next = max(saved[0][0] if saved else 1, greatest + 1)
        self._last = self._next - 1
        self._turn = threading.Condition()
        self._line: deque[_Push] = deque()
        self._keys: set[tuple[int, str]] = set()
        self._committing = False
        self._unnamed: deque[int] = deque()
        #: What was lost, and which files to set aside, when the inbox was opened.
        self.recovered = recover_inbox(database, self._directory)

    def path(self, number: int) -> Path:
        """Return the path at which the streaming query finds a push."""
        return visible_path(self._directory, number)

    def accept(
        self,
        stream_id: int,
        table: pa.Table,
        high: int | None,
        heartbeat: int,
        arrived_at: int,
        idempotency_key: str | None = None,
        fingerprint: str | None = None,
        receipt: dict[str, Any] | None = None,
    ) -> AcceptedPush:
        """Make a push durable; when this returns, the push is acknowledged.

        Args:
            stream_id: The stream the rows are for.
            table: The rows.
            high: The greatest timestamp of the rows.
            heartbeat: The stream's heartbeat once the rows are committed.
            arrived_at: The clock.
            idempotency_key: The client's name for this push, per stream.
            fingerprint: A hash of what the client sent, to tell a repeated push from another push
                with the same key.
            receipt: What a repeated push gets as its receipt; JSON.

        Raises:
            MillpondError: DATA-503, the key was used for other rows; STORE-603, the push cannot be
                written and was not accepted.
        """
        return self.accept_parts(
            stream_id,
            1,
            [table],
            lambda: [PushProgress(high, heartbeat)],
            arrived_at,
            idempotency_key,
            fingerprint,
            {} if receipt is None else receipt,
        )

    def accept_parts(
        self,
        stream_id: int,
        count: int,
        tables: Iterable[pa.Table],
        settle: Callable[[], Sequence[PushProgress]],
        arrived_at: int,
        idempotency_key: str | None,
        fingerprint: str | None,
        receipt: dict[str, Any],
    ) -> AcceptedPush:
        """Make several pushes durable, all or none; when this returns, all are acknowledged.

        Args:
            stream_id: The stream the rows are for.
            count: How many tables there are.
            tables: The rows of each push. Each is written before the next is asked for.
            settle: Gives how far the stream has come with each push, once all are written.
            arrived_at: The clock.
            idempotency_key, fingerprint: As for `accept`.
            receipt: The receipt of all of them; read once all are written.

        Returns:
            The acknowledgement; its number is that of the last push.
        """
        with self._serialize(stream_id, idempotency_key):
            if idempotency_key is not None:
                before = self.receipt(stream_id, idempotency_key, fingerprint)
                if before is not None:
                    return before
            with self._turn:
                numbers = range(self._next, self._next + count)
                group = [_Push(number, stream_id, arrived_at) for number in numbers]
                self._next += count
                self._line += group
            try:
                files = [
                    self._write(push, table) for push, table in zip(group, tables, strict=True)
                ]
                progress = settle()
            except BaseException:
                with self._turn:
                    for push in group:
                        hidden_path(self._directory, push.number).unlink(missing_ok=True)
                        self._line.remove(push)
                        self._leave(push)
                raise
            last = group[-1]
            with self._turn:  # together, so that one commit has them all
                last.key, last.fingerprint, last.receipt = idempotency_key, fingerprint, receipt
                for push, own, file in zip(group, progress, files, strict=True):
                    push.progress, push.file = own, file
            self._commit_or_wait(last)
        if last.failure is not None:
            raise last.failure
        return AcceptedPush(last.number, False, last.receipt)

    def find_batch(self, stream_id: int, batch: WriterBatch) -> AcceptedPush | None:
        """Return the acknowledgement of a writer's batch; None if it is the writer's next.

        Raises:
            MillpondError: DATA-504, batches of the writer before this one are missing.
        """
        own = self.receipt(stream_id, batch.key, None)
        if own is not None or batch.number is None:
            return own
        last = last_batch(self._database, stream_id, batch)
        if last is None or last + 1 == batch.number:
            return None
        if last >= batch.number:  # its receipt was forgotten after a day
            return AcceptedPush(0, True, {"accepted": 0, "rejected": 0, "rejects": []})
        raise batch.gap_error(last)

    def receipt(self, stream_id: int, key: str, fingerprint: str | None) -> AcceptedPush | None:
        """Return the acknowledgement of the push with that key; None if there was no such push.

        Raises:
            MillpondError: DATA-503, the push had another fingerprint.
        """
        found = self._database.read(
            "SELECT number, fingerprint, receipt FROM inbox"
            " WHERE stream_id = ? AND idempotency_key = ?",
            (stream_id, key),
        )
        if not found:
            return None
        number, earlier, receipt = found[0]
        if earlier != fingerprint:
            raise MillpondError(
                "DATA-503",
                f'the idempotency key "{key}" was used for other rows',
                detail="Rows sent again under the key of an earlier push must be the same rows.",
                hint="Send other rows under a key of their own.",
            )
        return AcceptedPush(number, True, json.loads(receipt))

    def list_pending(self, stream_id: int | None = None) -> list[InboxRow]:
        """List the acknowledged pushes no epoch holds yet, in order; of one stream, or of all."""
        chosen = "" if stream_id is None else " AND stream_id = ?"
        return [
            InboxRow(*row)
            for row in self._database.read(
                "SELECT number, stream_id, rows, high, heartbeat, arrived_at, bytes, checksum"
                f" FROM inbox WHERE done = 0{chosen} ORDER BY number",
                () if stream_id is None else (stream_id,),
            )
        ]

    def check_again(self, rows: Iterable[InboxRow]) -> list[MillpondError]:
        """Check the files of pushes that wait, of which a batch could not read one.

        Of a push that is damaged in one place, here or in shared storage, the other one's copy
        takes its place. One that is damaged in both is lost, as it would be at an opening.

        Returns:
            STORE-602 for each push that is lost now.

        Raises:
            MillpondError: STORE-603, the shared storage gives no answer.
        """
        known = len(self.recovered.problems)
        for row in rows:
            # Acknowledged just now, it may not have its name yet.
            if hidden_path(self._directory, row.number).exists():
                continue
            file = self.path(row.number)
            check_file(self._directory, row.number, file.exists(), row.checksum, self.recovered)
            if row.number not in self.recovered.lost:
                put_back(file, row.checksum, shared_name(row.number, row.checksum))
        return self.recovered.problems[known:]

    def list_shared_names(self) -> dict[int, str]:
        """Name the files of pushes in shared storage that are not removed yet, by number."""
        kept = self._database.read("SELECT number, checksum FROM inbox WHERE collected = 0")
        return {number: shared_name(number, checksum) for number, checksum in kept}

    def last_number(self) -> int:
        """Return the greatest number ever acknowledged or given up; 0 before the first push."""
        return self._last

    def collect(self, upto: int) -> list[int]:
        """Remove the files of done pushes with numbers up to `upto`; return the numbers.

        The caller knows that no streaming query will read these files again. This also forgets
        idempotency keys that are old enough.
        """
        done: list[tuple[int, str]] = self._database.read(
            "SELECT number, checksum FROM inbox WHERE done = 1 AND collected = 0 AND number <= ?"
            " ORDER BY number",
            (upto,),
        )
        numbers = [number for number, _ in done]
        reach("inbox.before_collect")
        for number, checksum in done:
            with arrow_file.translate_write_errors(self.path(number)):
                self.path(number).unlink(missing_ok=True)
            withdraw(self.path(number), shared_name(number, checksum))
        reach("inbox.after_collect")
        if not numbers:
            return []
        with self._database.transaction() as connection:
            connection.executemany(
                "UPDATE inbox SET collected = 1 WHERE number = ?", [(n,) for n in numbers]
            )
            connection.execute("DELETE FROM inbox WHERE collected = 1 AND idempotency_key IS NULL")
            connection.execute(
                "DELETE FROM inbox AS old WHERE collected = 1 AND accepted_at < ?"
                f" AND NOT {IS_LAST_BATCH}",
                (self._clock() - KEY_LIFETIME,),
            )
        return numbers

    @contextmanager
    def _serialize(self, stream_id: int, key: str | None) -> Iterator[None]:
        """Run pushes of one key one after the other, so that the second sees the first."""
        if key is None:
            yield
            return
        name = (stream_id, key)
        with self._turn:
            while name in self._keys:
                self._turn.wait()
            self._keys.add(name)
        try:
            yield
        finally:
            with self._turn:
                self._keys.discard(name)
                self._turn.notify_all()

    def _write(self, push: _Push, table: pa.Table) -> arrow_file.FileMeta:
        reach("inbox.before_file")
        pushed = PushedRows(push.number, push.stream_id, push.arrived_at, table)
        file = write_hidden(self._directory, pushed)
        publish(file.path, shared_name(push.number, file.checksum))
        reach("inbox.after_file")
        return file

    def _commit_or_wait(self, push: _Push) -> None:
        """Wait until `push` is over; commit all ready pushes if no other thread does."""
        while True:
            with self._turn:
                while not push.is_over and (self._committing or self._line[0].file is None):
                    self._turn.wait()
                if push.is_over:
                    return
                group = []
                while self._line and self._line[0].file is not None:
                    group.append(self._line.popleft())
                self._committing = True
            failure: BaseException | None = None
            try:
                self._commit(group)
            except BaseException as error:
                failure = error
            with self._turn:
                for member in group:
                    member.failure = None if member.acknowledged else failure
                    self._leave(member)
                self._committing = False
            if failure is not None and not isinstance(failure, Exception):
                raise failure  # an interrupt is for this thread, even if the push was acknowledged

    def _leave(self, push: _Push) -> None:
        push.is_over = True
        self._last = max(self._last, push.number)
        self._turn.notify_all()

    def _commit(self, group: list[_Push]) -> None:
        """Acknowledge a group, then make its files visible in order."""
        try:
            with arrow_file.translate_write_errors(self._directory):
                arrow_file.sync_directory(self._directory)
            accepted_at = self._clock()
            with self._database.transaction() as connection:
                connection.executemany(
                    "INSERT INTO inbox VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0)",
                    [_inbox_row(push, accepted_at) for push in group],
                )
                connection.execute(
                    "INSERT OR REPLACE INTO counter VALUES ('inbox', ?)", (group[-1].number + 1,)
                )
                reach("inbox.before_commit")
        except BaseException:
            # An interrupt may come when the transaction is already durable: look whether it is.
            if self._database.read("SELECT 1 FROM inbox WHERE number = ?", (group[0].number,)):
                self._acknowledge(group)
            elif self._database.is_decided:
                for push in group:
                    hidden_path(self._directory, push.number).unlink(missing_ok=True)
            raise
        reach("inbox.after_commit")
        self._acknowledge(group)
        reach("inbox.after_rename")

    def _acknowledge(self, group: list[_Push]) -> None:
        for push in group:
            push.acknowledged = True
            self._unnamed.append(push.number)
        self._make_visible()

    def _make_visible(self) -> None:
        """Give the files of acknowledged pushes their visible names, oldest first.

        A failure does not take an acknowledgement back: the rows are durable, and the next push, or
        the next opening, tries again from the file that failed.
        """
        while self._unnamed:
            number = self._unnamed[0]
            try:
                hidden_path(self._directory, number).rename(self.path(number))
            except OSError:
                return
            self._unnamed.popleft()


def _inbox_row(push: _Push, accepted_at: int) -> tuple[Any, ...]:
    assert push.file is not None
    assert push.progress is not None
    return (
        push.number,
        push.stream_id,
        push.file.rows,
        push.progress.high,
        push.progress.heartbeat,
        push.arrived_at,
        push.key,
        push.fingerprint,
        json.dumps(push.receipt),
        accepted_at,
        push.file.bytes,
        push.file.checksum,
    )
