"""Follows the tables of one database: a thread that reads one replication slot.

A transaction of the database is one instant: max(its commit, the last instant), so that time never
goes back. Transactions become epochs, each with the position behind its last one; only then is that
position confirmed to the server, which may throw its log away up to there.

INV-REPLICA-1: what is confirmed is stored. So a server never lacks what a store lacks, wherever
    either of them dies; what it sends twice is at or below the stored position, and left out.
    psycopg2 confirms by itself what the server says in a keepalive, once the last message was
    confirmed, or before the first. So what is confirmed here ends a byte before the last message;
    and every session begins with a mark in the log whose position is stored, because only what is
    told before that mark can be confirmed without this module. A slot that is confirmed further
    than both was read by somebody else.
INV-REPLICA-2: the changes of one transaction, in whatever tables, are in one epoch, at one instant.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from millpond.catalog.objects import RelationDef
from millpond.errors import MillpondError
from millpond.runtime.postgres.connect import connect, describe_error, import_psycopg2
from millpond.runtime.postgres.pgoutput import (
    Begin,
    Commit,
    Mark,
    SentChange,
    TableShape,
    Truncate,
    read_message,
)
from millpond.runtime.postgres.source_options import TableSource
from millpond.runtime.postgres.tables import (
    find_slot,
    open_database,
    published_oids,
    read_form,
    source_error,
    write_mark,
)
from millpond.service.ingest.relations import Relations
from millpond.service.ingest.replicated_rows import ReplicatedRows
from millpond.state.epoch.epoch_change import StaleChange
from millpond.state.epoch_log import EpochLog

log = logging.getLogger("millpond.replication")

#: The most bytes of one transaction, and of several that become one epoch.
MOST_BYTES, _EPOCH_BYTES = 512_000_000, 16_000_000
#: The longest a transaction waits for others that come right behind it, in seconds.
_GATHER_SECONDS = 0.2
_POLL_SECONDS = 0.1
#: How often the server is told that this reader lives, and is asked how the slot is, in seconds.
_STATUS_SECONDS, _LOOK_SECONDS = 5.0, 10.0
#: How much of the server's log without a change of these tables becomes an epoch of its own.
_IDLE_BYTES = 16_000_000
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0
_END_SECONDS = 10.0


def position_key(relation_id: int) -> str:
    """Under what a relation's position in the other database's log is stored."""
    return f"postgres.{relation_id}"


def mark_key(slot: str) -> str:
    """Under what the position of a slot's last mark is stored."""
    return f"postgres.mark.{slot}"


class SlotReader:
    """Reads one slot and keeps the relations that follow its tables.

    Attributes:
        trouble: Why nothing is read now; None while it is.
        retained: How many bytes of its log the server keeps for this reader, as of the last look.
    """

    def __init__(
        self,
        sources: Sequence[tuple[RelationDef, TableSource]],
        epochs: EpochLog,
        relations: Relations,
    ) -> None:
        """Prepare; `start` begins.

        Args:
            sources: The relations that follow tables of one database, by one slot.
            epochs: Where positions are.
            relations: What they become part of.
        """
        self._sources = list(sources)
        self._source = sources[0][1]
        self._name = sources[0][0].name
        self._epochs = epochs
        self._relations = relations
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._reached = 0
        self._failures = 0
        self.trouble: MillpondError | None = None
        self.retained = 0
        self._forget()

    def _forget(self) -> None:
        """Forget what is known beside what is stored."""
        self._rows: dict[int, ReplicatedRows] = {}
        self._ids: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        self._shapes: dict[int, TableShape] = {}
        self._learnt: dict[int, TableShape] = {}
        self._begun: Begin | None = None
        self._changes: list[SentChange | Truncate | TableShape] = []
        self._bytes = self._noted_bytes = 0
        self._end = self._marked = self._opened_at = 0
        self._noted_at = 0.0
        self._last_instant = -(2**62)

    @property
    def slot(self) -> str:
        """The slot's name."""
        return self._source.slot

    def start(self) -> None:
        """Begin to read."""
        self._thread = threading.Thread(target=self._run, name=f"slot {self.slot}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what it has not stored is read again."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)
            self._thread = None

    def catch_up(self, timeout: float | None) -> None:
        """Wait until everything that is committed in the database now is stored.

        Raises:
            MillpondError: POND-405 when it took longer than `timeout` seconds; DATA-502, the
                database cannot be read.
        """
        with open_database(self._source, self._name) as connection:
            target = write_mark(connection)
        end = None if timeout is None else time.monotonic() + timeout
        while self._reached < target:
            if self.trouble is not None:
                raise self.trouble
            if self._stopped.is_set():
                raise MillpondError("POND-410", "the pond is closed")
            if end is not None and time.monotonic() > end:
                raise MillpondError("POND-405", f'"{self._name}" does not catch up with its table')
            time.sleep(0.01)

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._read()
            except MillpondError as error:
                self._fail(error)
            except StaleChange:
                return  # a relation is gone: another reader takes this one's place
            except Exception as error:
                if not isinstance(error, import_psycopg2().Error):
                    log.exception("the reader of slot %s fails", self.slot)
                self._fail(source_error(self._name, describe_error(error)))

    def _fail(self, error: MillpondError) -> None:
        if self._stopped.is_set():
            return
        self._failures += 1
        if self.trouble is None or str(self.trouble) != str(error):
            log.warning("slot %s: %s", self.slot, error)
        self.trouble = error
        self._stopped.wait(min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(self._failures - 1, 30)))

    def _read(self) -> None:
        """Read until this is stopped, or something is wrong."""
        self._forget()
        self._load()
        self._check()
        self._write_mark()
        psycopg2 = import_psycopg2()
        factory = psycopg2.extras.LogicalReplicationConnection
        with (
            closing(connect(self._source.server, self._source.allows, factory)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.start_replication(
                slot_name=self.slot,
                decode=False,
                start_lsn=self._stored,
                status_interval=_STATUS_SECONDS,
                options={
                    "proto_version": "1",
                    "publication_names": f'"{self.slot}"',
                    "messages": "true",
                },
            )
            self._follow(connection, cursor)

    def _load(self) -> None:
        """Index the relations as they are stored."""
        version = self._epochs.version
        for relation, source in self._sources:
            held = self._relations.read_rows(version, relation)

            def read(relation: RelationDef = relation) -> Any:
                return self._relations.read_rows(self._epochs.version, relation).table

            self._rows[source.oid] = ReplicatedRows(relation, held.table, held.next_rid, read)
            self._ids[source.oid] = relation.id
            self._positions[source.oid] = self._epochs.last_batch(position_key(relation.id))
            self._last_instant = max(self._last_instant, held.latest)

    @property
    def _stored(self) -> int:
        """The position up to which every relation has everything."""
        return max(min(self._positions.values()), 0)

    def _check(self) -> None:
        """Look at the slot and the publication.

        Raises:
            MillpondError: DATA-502, something of the server is gone that cannot be made good.
        """
        anew = "DROP and CREATE the relations of this database: they are read anew."
        with open_database(self._source, self._name) as connection:
            slot = find_slot(connection, self.slot)
            published = published_oids(connection, self.slot)
            forms = {s.oid: read_form(connection, s.oid) for _, s in self._sources if s.form}
            if slot.is_there and self._marked and slot.retained > _IDLE_BYTES:
                write_mark(connection)  # once it is told, the position is stored and confirmed
        self.retained = slot.retained
        if not slot.is_there:
            raise source_error(self._name, f'The replication slot "{self.slot}" is gone.', anew)
        if slot.is_lost:
            raise source_error(
                self._name,
                f'The server has thrown away what the slot "{self.slot}" had to be sent '
                "(max_slot_wal_keep_size).",
                anew,
            )
        if slot.confirmed > max(self._stored, self._epochs.last_batch(mark_key(self.slot))):
            raise source_error(
                self._name,
                f'The slot "{self.slot}" is further than this store: another copy of the store '
                "has read it, or this one is an older copy.",
                anew,
            )
        for relation, source in self._sources:
            if source.oid not in published:
                raise source_error(
                    relation.name,
                    f'The table "{source.table}" is not in the publication "{self.slot}": it was '
                    "dropped, or taken out, or the publication leaves out some of its changes.",
                    "DROP and CREATE the relation: it is read anew.",
                )
            if source.oid in forms and (said := forms[source.oid].find_difference(source.form)):
                raise source_error(
                    relation.name,
                    f"{said} The log does not tell which values the rows have since then.",
                    "DROP and CREATE the relation: it is read anew.",
                )

    def _write_mark(self) -> None:
        """Store the position of a mark, before anything can be confirmed that is before it."""
        with open_database(self._source, self._name) as connection:
            self._opened_at = at = write_mark(connection)
        self._relations.replicate([], [(mark_key(self.slot), at)])

    def _follow(self, connection: Any, cursor: Any) -> None:
        looked_at = told_at = time.monotonic()
        while not self._stopped.is_set():
            message = cursor.read_message()
            now = time.monotonic()
            if message is not None:
                self._take(message.payload)
                is_due = now - self._noted_at > _GATHER_SECONDS or self._noted_bytes > _EPOCH_BYTES
                if self._begun is None and self._end and is_due:
                    self._store(cursor)
                continue
            if self._begun is None:
                if self._end:
                    self._store(cursor)
                elif self._marked - self._stored > _IDLE_BYTES:
                    self._commit([], self._marked, cursor)
                self._reached = max(self._reached, self._marked, self._stored)
                if self._marked >= self._opened_at:
                    # It has read past all that may have stopped the attempt before this one.
                    self.trouble, self._failures = None, 0
            if now - looked_at > _LOOK_SECONDS:
                self._check()
                looked_at = now
            if now - told_at > _STATUS_SECONDS:
                self._confirm(cursor)
                told_at = now
            select.select([connection], [], [], _POLL_SECONDS)

    def _take(self, data: bytes) -> None:
        """Take a message; what a transaction does is noted when it is committed."""
        message = read_message(data)
        match message:
            case Begin():
                self._begun, self._changes, self._bytes = message, [], 0
            case TableShape() | SentChange() | Truncate():
                self._bytes += len(data)
                if self._bytes > MOST_BYTES:
                    raise source_error(
                        self._name,
                        f"A transaction has more than {MOST_BYTES:,} bytes of changes.",
                        "DROP and CREATE the relation: it is read anew.",
                    )
                self._changes.append(message)
            case Commit():
                self._note(message.end)
            case Mark(is_in_transaction=False):
                self._marked = message.at

    def _note(self, end: int) -> None:
        """Note the changes of a transaction that is committed."""
        assert self._begun is not None
        at = max(self._begun.at, self._last_instant)
        for change in self._changes:
            if isinstance(change, TableShape):  # as it is from here on: a transaction may alter it
                self._shapes[change.oid] = change
                continue
            oids = change.oids if isinstance(change, Truncate) else (change.oid,)
            for oid in oids:
                rows = self._rows.get(oid)
                if rows is None or end <= self._positions[oid]:
                    continue  # it is stored, or was in the rows that the relation began with
                self._last_instant = at
                if isinstance(change, Truncate):
                    rows.note_truncate(at)
                    continue
                shape = self._shapes[oid]
                if self._learnt.get(oid) is not shape:
                    rows.learn(shape)
                    self._learnt[oid] = shape
                rows.note(change, at)
        if not self._end:
            self._noted_at = time.monotonic()
        self._noted_bytes += self._bytes
        self._begun, self._changes, self._end = None, [], end

    def _store(self, cursor: Any) -> None:
        """Commit what was noted as one epoch, and then confirm its position."""
        changes = []
        for rows in self._rows.values():
            if rows.has_changes:
                added, ended = rows.take()
                if added.num_rows or ended.num_rows:
                    changes.append((rows.relation, added, ended))
        end, self._end, self._noted_bytes = self._end, 0, 0
        self._commit(changes, end, cursor)

    def _commit(self, changes: list[Any], end: int, cursor: Any) -> None:
        behind = [oid for oid, position in self._positions.items() if position < end]
        if behind:
            batches = [(position_key(self._ids[oid]), end) for oid in behind]
            self._relations.replicate(changes, batches)
            self._positions.update(dict.fromkeys(behind, end))
        self._confirm(cursor)

    def _confirm(self, cursor: Any) -> None:
        """Tell the server that this reader lives, and what it has stored."""
        cursor.send_feedback(flush_lsn=max(self._stored - 1, 0), force=True)
