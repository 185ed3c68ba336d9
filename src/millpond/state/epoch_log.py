"""The epoch log: one transaction, one epoch, one new version.

Every change of the store is part of an epoch: a batch of elements, a registration, a merge.
`commit` resolves the change against the current version, writes it to SQLite in one transaction
(durable when `commit` returns: the journal has the record) and publishes the next version by
assigning one attribute. Readers take no lock; each sees exactly the epochs up to the version it
took (SEMANTICS, section 5).

Invariants:
    INV-LOG-1: `version` is what reopening the directory now would give.
    INV-LOG-2: a file is removed only when no version that is pinned or can still be pinned refers
        to it.

A commit costs one synchronous write of the journal, and work in proportion to the change.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from millpond.catalog.objects import QueryDef
from millpond.model.owner_only import make_directory
from millpond.model.time import now
from millpond.state import arrow_file
from millpond.state.database.database import Database, NotedStatements
from millpond.state.database.join_rows import write_joins
from millpond.state.database.read_version import read_version
from millpond.state.database_tables import definition_of, definition_row, settings_row
from millpond.state.epoch.epoch_change import EpochChange, StaleChange
from millpond.state.epoch.next_version import next_version
from millpond.state.epoch.resolve_change import ResolvedChange, resolve_change
from millpond.state.fail_points import reach
from millpond.state.file_share import put_back, withdraw
from millpond.state.version import MatchRef, SegmentRef, StreamClock, Version

#: For how many epochs the log keeps the kind and the time.
_REMEMBERED_EPOCHS = 10_000
#: How many changes of queries are remembered, so that feeds tell of them who was away.
_REMEMBERED_QUERIES = 100_000


class EpochLog:
    """The total order of everything that happened to a store. Safe to use from many threads."""

    def __init__(
        self, database: Database, directory: Path, clock: Callable[[], int] | None = None
    ) -> None:
        self._database = database
        self._directory = directory
        self._clock = clock or now
        self._version = read_version(database)
        self._batches: dict[str, int] = dict(database.read("SELECT source, batch_id FROM batch"))
        #: The beginnings of cursors of the stores this one was restored from, each with the number
        #: of the last change that both have.
        self.ancestors: dict[str, int] = dict(database.read("SELECT prefix, last FROM ancestor"))
        counters = dict(database.read("SELECT name, next FROM counter"))
        self._next_segment: int = counters.get("segment", 1)
        self._next_match: int = counters.get("match", 1)
        self._next_join: int = counters.get("join", 1)
        self._saved_next_id: int = counters.get("definition", 1)
        self._ids = count(self._saved_next_id)
        #: Held while an epoch is made. Pushes need the database alone, whose lock comes second and
        #: is held only for as long as the rows are written.
        self._committing = threading.RLock()
        self._readers = threading.Lock()
        self._pins: Counter[int] = Counter()
        self._unreferenced: list[tuple[int, str]] = []
        self._listeners: list[Callable[[], None]] = []

    @staticmethod
    def open(store_dir: str | Path, clock: Callable[[], int] | None = None) -> EpochLog:
        """Open the epoch log of a directory; create one if there is none.

        This takes no lock on the directory; a process uses `Store.open`, which does.
        """
        directory = Path(store_dir)
        make_directory(directory)
        return EpochLog(Database(directory / "pond.db"), directory, clock)

    @property
    def incarnation(self) -> str:
        """The name of the store until a repair loses something of it."""
        return self._database.incarnation

    @property
    def directory(self) -> Path:
        """The store's directory."""
        return self._directory

    @property
    def version(self) -> Version:
        """The current version."""
        return self._version

    @property
    def is_decided(self) -> bool:
        """As `Database.is_decided`."""
        return self._database.is_decided

    def call_after_commits(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every commit, from the thread that made it."""
        self._listeners.append(listener)

    def next_id(self) -> int:
        """Return a new definition id: no definition ever had it or will get it."""
        return next(self._ids)

    def is_committed(self, source_key: str, batch_id: int) -> bool:
        """Whether the effect of that batch is already in the log.

        A source's batch ids rise, so every id up to the source's last committed id is in the log.
        """
        return batch_id <= self.last_batch(source_key)

    def last_batch(self, source_key: str) -> int:
        """The number of the source's last batch in the log; -1 for none."""
        return self._batches.get(source_key, -1)

    def commit(self, change: EpochChange | Callable[[Version], EpochChange]) -> Version:
        """Make a change durable and visible; return the version it made.

        Args:
            change: The change, or a function that makes the change from the current version. The
                function runs with the log locked: it should only look and decide.

        Raises:
            StaleChange: the change does not fit the version any more; nothing was done.
            MillpondError: CQL-208, a name is taken; STORE-603, the database cannot be written.
                Nothing was done.
        """
        with self._committing:
            before = self._version
            if callable(change):
                change = change(before)
            for source, batch_id in change.batches:
                if self.is_committed(source, batch_id):
                    raise StaleChange(f"batch {batch_id} of {source} is committed already")
            resolved = resolve_change(
                change, before, self._next_segment, self._next_match, self._next_join
            )
            after = next_version(before, resolved)
            added = (
                *resolved.add,
                *resolved.add_functions,
                *resolved.add_summaries,
                *resolved.put_sinks,
            )
            next_id = max([self._saved_next_id, *(d.id + 1 for d in added)])
            rows = self._note_rows(resolved, next_id).encode()
            reach("epoch.before_write")
            # Held until the version is published: who reads the database then reads the version.
            with self._database.lock:
                try:
                    with self._database.transaction() as transaction:
                        transaction.execute_whole(rows)
                        reach("epoch.before_commit")
                except BaseException:
                    # An interrupt may come when the transaction is already durable: look whether
                    # it is.
                    last = self._database.read("SELECT max(epoch) FROM epoch")[0][0]
                    if last == after.epoch:
                        self._publish(after, resolved, next_id)
                    raise
                reach("epoch.after_commit")
                self._publish(after, resolved, next_id)
        reach("epoch.after_publish")
        for listener in self._listeners:
            listener()
        return after

    def _publish(self, after: Version, resolved: ResolvedChange, next_id: int) -> None:
        self._saved_next_id = next_id
        self._next_segment = max([self._next_segment, *(s.id + 1 for s in resolved.segments)])
        self._next_match = max([self._next_match, *(m.id + 1 for m in resolved.matches)])
        self._next_join = max(self._next_join, resolved.joins.next_id)
        self._batches.update(sorted(resolved.batches))
        with self._readers:
            self._version = after
            self._unreferenced += [(after.epoch, path) for path in resolved.unreferenced]

    @contextmanager
    def pin(self) -> Iterator[Version]:
        """Give the current version, whose files stay until the block ends."""
        with self._readers:
            version = self._version
            self._pins[version.epoch] += 1
        try:
            yield version
        finally:
            with self._readers:
                self._pins[version.epoch] -= 1
                if not self._pins[version.epoch]:
                    del self._pins[version.epoch]

    def remove_later(self, paths: Iterable[str]) -> None:
        """Let `collect` remove files that no version refers to, nor ever did or will."""
        with self._readers:
            self._unreferenced += [(0, path) for path in paths]

    def put_back(self, named: str) -> bool:
        """Give a file to shared storage again if it is damaged there, and whole here.

        Args:
            named: A text that names the file.

        Returns:
            Whether it was given again.

        Raises:
            MillpondError: STORE-603, the shared storage gives no answer.
        """
        found = next((ref for ref in self._version.files() if ref.path in named), None)
        return found is not None and put_back(self._directory / found.path, found.checksum)

    def collect(self) -> list[str]:
        """Remove the files no pinned version refers to any more; return their paths.

        If removing a file fails, or the process dies first, the next opening of the store sets the
        file aside.
        """
        with self._readers:
            oldest = min(self._pins, default=self._version.epoch)
            ready = [path for epoch, path in self._unreferenced if epoch <= oldest]
            self._unreferenced = [(e, p) for e, p in self._unreferenced if e > oldest]
        reach("epoch.before_collect")
        for path in ready:
            file = self._directory / path
            arrow_file.forget(file)
            with suppress(OSError):
                file.unlink(missing_ok=True)
            withdraw(file)
        reach("epoch.after_collect")
        return ready

    def snapshot_if_due(self) -> bool:
        """Replace most of the journal by a snapshot, if one is due; call it from one thread only.

        Returns:
            Whether a snapshot was due.

        Raises:
            MillpondError: STORE-603, the snapshot cannot be written.
        """
        return self._database.snapshot_if_due()

    def epochs(self, limit: int = 100) -> list[tuple[int, str, int]]:
        """Return the last epochs, youngest first, as (epoch, kind, committed at)."""
        return self._database.read(
            "SELECT epoch, kind, committed_at FROM epoch ORDER BY epoch DESC LIMIT ?", (limit,)
        )

    def past_queries(self, since: int) -> tuple[dict[int, QueryDef], bool]:
        """Return what the queries that were altered or dropped after an epoch were at its end.

        Returns:
            The queries by their ids, and those registered after the epoch as they were first; and
            whether these are all: only the last 100,000 changes are remembered.
        """
        with self._database.lock:
            rows = self._database.read(
                "SELECT query_id, body, min(number) FROM past_query WHERE epoch > ?"
                " GROUP BY query_id",
                (since,),
            )
            first, oldest = self._database.read("SELECT min(number), min(epoch) FROM past_query")[0]
        found = {id: definition_of(id, "query", body) for id, body, _ in rows}
        is_whole = first in (None, 1) or oldest <= since
        return {id: d for id, d in found.items() if isinstance(d, QueryDef)}, is_whole

    def close(self) -> None:
        """Close the database. Versions that were taken stay readable."""
        self._database.close()

    def _note_rows(self, change: ResolvedChange, next_id: int) -> NotedStatements:
        """Note how all rows of an epoch are written, deletions first."""
        connection = NotedStatements()
        many = connection.executemany
        connection.execute(
            "INSERT INTO epoch VALUES (?, ?, ?)", (change.epoch, change.kind, self._clock())
        )
        connection.execute(
            "DELETE FROM epoch WHERE epoch <= ?", (change.epoch - _REMEMBERED_EPOCHS,)
        )
        added = {d.id for d in change.add}
        past = [d.id for d in (*change.drop, *change.replace) if isinstance(d, QueryDef)]
        if past:
            many(
                "INSERT INTO past_query (epoch, query_id, body)"
                " SELECT ?, id, body FROM definition WHERE id = ?",
                [(change.epoch, id) for id in past],
            )
            connection.execute(
                "DELETE FROM past_query WHERE number <= (SELECT max(number) FROM past_query) - ?",
                (_REMEMBERED_QUERIES,),
            )
        for table, key, ids in (
            (
                "definition",
                "id",
                [
                    d.id
                    for d in (
                        *change.drop,
                        *change.drop_functions,
                        *change.drop_summaries,
                        *change.drop_sinks,
                    )
                ],
            ),
            ("clock", "stream_id", [d.id for d in change.drop]),
            ("partition", "stream_id", [d.id for d in change.drop]),
            ("slot_floor", "stream_id", [d.id for d in change.drop]),
            ("segment", "id", [s.id for s in change.drop_segments]),
            ("matches", "id", [m.id for m in change.drop_matches]),
            ("leaf", "query_id", list(change.drop_leaves | (change.leaves.keys() - added))),
            ("relation_delta", "path", [d.path for d in change.drop_deltas]),
        ):
            if ids:
                many(f"DELETE FROM {table} WHERE {key} = ?", [(id,) for id in ids])
        many(
            "DELETE FROM slot WHERE stream_id = ? AND slot = ?",
            [(s.stream_id, s.slot) for s in change.drop_slots],
        )
        many(
            "INSERT OR REPLACE INTO definition VALUES (?, ?, ?)",
            [
                definition_row(d)
                for d in (
                    *change.add,
                    *change.replace,
                    *change.add_functions,
                    *change.add_summaries,
                    *change.put_sinks,
                )
            ],
        )
        if change.settings is not None:
            settings = settings_row(change.settings)
            many("INSERT OR REPLACE INTO definition VALUES (?, ?, ?)", [settings])
        many("INSERT OR REPLACE INTO batch VALUES (?, ?)", sorted(change.batches))
        many(
            "INSERT OR REPLACE INTO clock VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [_clock_row(id, clock) for id, clock in change.clocks.items()],
        )
        many(
            "INSERT OR REPLACE INTO partition VALUES (?, ?, ?, ?)",
            [
                (id, name, high, arrived_at)
                for id, clock in change.clocks.items()
                for name, (high, arrived_at) in clock.partitions.items()
                if arrived_at == clock.arrived_at  # the others are what they were
            ],
        )
        many(
            "INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [_segment_row(segment) for segment in change.segments],
        )
        many("INSERT INTO matches VALUES (?, ?, ?, ?, ?, ?, ?)", map(_match_row, change.matches))
        many(
            "INSERT INTO slot VALUES (?, ?, ?, ?)",
            [(s.stream_id, s.slot, s.key, s.factors) for s in change.add_slots],
        )
        many(
            "INSERT OR REPLACE INTO slot_floor VALUES (?, ?)",
            {s.stream_id: s.slot + 1 for s in change.add_slots}.items(),
        )
        many(
            "INSERT INTO leaf VALUES (?, ?, ?, ?)",
            [
                (leaf.query_id, leaf.leaf, leaf.stream_id, leaf.slot)
                for leaves in change.leaves.values()
                for leaf in leaves
            ],
        )
        many(
            "INSERT INTO relation_delta VALUES (?, ?, ?, ?, ?, ?)",
            [
                (d.path, d.relation_id, d.epoch, d.checksum, d.rows, d.bytes)
                for d in change.add_deltas
            ],
        )
        write_joins(connection, change.joins)
        many(
            "UPDATE inbox SET done = 1 WHERE number = ?",
            [(number,) for number in change.inbox_done],
        )
        counters = []
        if change.segments:
            counters.append(("segment", change.segments[-1].id + 1))
        if change.matches:
            counters.append(("match", change.matches[-1].id + 1))
        if change.joins.next_id > self._next_join:
            counters.append(("join", change.joins.next_id))
        if next_id > self._saved_next_id:
            counters.append(("definition", next_id))
        many("INSERT OR REPLACE INTO counter VALUES (?, ?)", counters)
        return connection


def _clock_row(stream_id: int, clock: StreamClock) -> tuple[Any, ...]:
    return (
        stream_id,
        clock.high,
        clock.heartbeat,
        clock.arrived_at,
        clock.next_seq,
        clock.rejected,
        clock.ended,
        clock.kept_from,
        clock.relations_epoch,
    )


def _segment_row(segment: SegmentRef) -> tuple[Any, ...]:
    return (
        segment.id,
        segment.stream_id,
        segment.kind,
        segment.epoch,
        segment.level,
        segment.path,
        segment.rows,
        segment.min_ts,
        segment.max_ts,
        json.dumps(segment.seq_runs, separators=(",", ":")),
        segment.checksum,
        segment.bytes,
    )


def _match_row(match: MatchRef) -> tuple[Any, ...]:
    return (
        match.id,
        match.segment_id,
        match.low,
        match.upto,
        match.path,
        match.checksum,
        match.bytes,
    )
