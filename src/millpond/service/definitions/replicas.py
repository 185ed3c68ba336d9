"""Relations that follow tables of PostgreSQL: CREATE, DROP, and the readers of their slots.

A store has one slot in each database it follows, so a transaction over several tables is one
instant. A relation is created with the table's rows as of a snapshot, and the position of that
snapshot: the first relation of a database takes the snapshot in which its slot begins, a later one
that of a slot which lives as long as the copy. Changes behind that position are the reader's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import xxhash

from millpond.catalog.first_look import looking_first
from millpond.catalog.objects import RelationDef, SourceDef, StreamDef
from millpond.errors import MillpondError
from millpond.runtime.postgres.connect import DatabaseServer
from millpond.runtime.postgres.source_options import TableSource, is_replicated, read_source
from millpond.runtime.postgres.tables import (
    describe_table,
    drop_slot,
    match_columns,
    open_database,
    publish,
    read_rows,
    snapshot_of_slot,
    source_error,
    unpublish,
)
from millpond.service.definitions.allowed_hosts import allows_address
from millpond.service.ingest.relations import Relations
from millpond.service.ingest.replicated_rows import cast_texts, check_identity, text_column
from millpond.service.ingest.slot_reader import SlotReader, position_key
from millpond.state.epoch_log import EpochLog

log = logging.getLogger("millpond.replication")


class Replicas:
    """Creates and drops relations that follow tables, and has their slots read.

    Who calls `create` and `dropping` holds the lock of definitions.
    """

    def __init__(self, epochs: EpochLog, relations: Relations, present: Callable[[], int]) -> None:
        self._log = epochs
        self._relations = relations
        self._current_instant = present
        self._readers: dict[str, SlotReader] = {}
        self._lock = threading.RLock()

    # -- definitions ---------------------------------------------------------------------------

    def create(self, definition: RelationDef) -> int:
        """Create a relation with the rows its table has now; return how many.

        Raises:
            MillpondError: CQL-214, CQL-223 and CQL-301 for what is declared, DATA-502 for the
                database and its rows, POND-408 for a key that two rows have.
        """
        source = self._source_of(definition)
        slot = self._name_slot(source.server)
        with self._lock, looking_first():
            others = self._sources_of(slot)
            self._end(slot)
            try:
                return self._copy(definition, replace(source, slot=slot), is_first=not others)
            finally:
                self._begin(slot)

    @contextmanager
    def dropping(self, definitions: Sequence[StreamDef | RelationDef]) -> Iterator[None]:
        """Read nothing for definitions that are dropped inside; then clean up their databases.

        With the last relation of a database go its slot and publication.
        """
        followed = [
            (d, self._source_of(d))
            for d in definitions
            if isinstance(d, RelationDef) and is_replicated(d)
        ]
        with self._lock:
            for _, source in followed:
                self._end(source.slot)
            try:
                yield
            finally:
                for definition, source in followed:
                    if definition.id not in self._log.version.relations:
                        self._leave(definition, source)
                for _, source in followed:
                    self._begin(source.slot)

    def _leave(self, definition: RelationDef, source: TableSource) -> None:
        """Take a table out of the publication; drop the slot if it was the last."""
        try:
            with open_database(source, definition.name) as connection:
                if self._sources_of(source.slot):
                    unpublish(connection, source.slot, source.oid)
                else:
                    drop_slot(connection, source.slot)
        except MillpondError as error:
            # The relation is gone; what is left in the database its administrator has to drop.
            log.warning("slot %s of %s is left: %s", source.slot, source.server, error)

    def _copy(self, definition: RelationDef, source: TableSource, is_first: bool) -> int:
        """Read the table's rows as of a position, and commit the relation with both."""
        name, slot = definition.name, source.slot
        wanted = definition.schema.names
        with open_database(source, name) as connection:
            table = describe_table(connection, name, source.table)
            if self._follows(slot, table.oid):
                raise source_error(
                    name, f'Another relation follows "{source.table}".', "Read that relation."
                )
            try:
                columns = match_columns(table.columns, wanted)
            except ValueError as error:
                raise source_error(
                    name,
                    f'The table has no column "{error}".',
                    f"It has {', '.join(table.columns)}.",
                ) from None
            check_identity(definition, source.table, table.identity, table.keys, table.columns)
            if is_first:  # one of this name was left by a process that died before its commit
                drop_slot(connection, slot)
            publish(connection, slot, source.table)
            copied = slot if is_first else f"{slot}_copy"
            try:
                with snapshot_of_slot(source, name, copied, not is_first) as (position, snapshot):
                    rows = self._read(definition, source, snapshot, [columns[n] for n in wanted])
                    form = table.form.write(columns.values())
                    options = {"slot": slot, "oid": str(table.oid), "form": form}
                    given = definition.source
                    assert given is not None
                    kept = replace(given, options={**given.options, **options})
                    return self._relations.create_replicated(
                        replace(definition, source=kept),
                        rows,
                        self._current_instant(),
                        [(position_key(definition.id), position)],
                    )
            except BaseException:
                if is_first:
                    drop_slot(connection, slot)
                else:
                    unpublish(connection, slot, table.oid)
                raise

    def _read(
        self, definition: RelationDef, source: TableSource, snapshot: str, columns: list[str]
    ) -> pa.Table:
        """The rows of a snapshot, cast to the relation's columns."""
        schema = definition.schema
        parts = [schema.to_arrow().empty_table()]
        for rows in read_rows(source, definition.name, snapshot, columns):
            texts = zip(*rows, strict=True)
            given = {
                field.name: text_column(column, field.type)
                for field, column in zip(schema.fields, texts, strict=True)
            }
            cast = cast_texts(definition.name, pa.table(given), schema)
            parts.append(pa.table([cast[n] for n in schema.names], schema=schema.to_arrow()))
        return pa.concat_tables(parts)

    def _source_of(self, definition: RelationDef) -> TableSource:
        assert definition.source is not None
        return read_source(definition, _allowed(definition.source))

    def _name_slot(self, server: DatabaseServer) -> str:
        """The name of a database's slot: the same for all its tables, another for each store."""
        place = xxhash.xxh3_64_hexdigest(str(server).encode())
        return f"millpond_{self._log.incarnation}_{place[:10]}"

    def _sources_of(self, slot: str) -> list[tuple[RelationDef, TableSource]]:
        followed = [
            (relation, self._source_of(relation))
            for relation in self._log.version.relations.values()
            if is_replicated(relation)
        ]
        return [(relation, source) for relation, source in followed if source.slot == slot]

    def _follows(self, slot: str, oid: int) -> bool:
        return any(source.oid == oid for _, source in self._sources_of(slot))

    # -- reading -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read the slots of all databases."""
        with self._lock:
            relations = self._log.version.relations.values()
            for slot in {self._source_of(r).slot for r in relations if is_replicated(r)}:
                self._begin(slot)

    def stop(self) -> None:
        """End all readers."""
        with self._lock:
            for slot in list(self._readers):
                self._end(slot)

    def catch_up(self, timeout: float | None = None) -> None:
        """Wait until everything that is committed in the databases now is stored.

        Raises:
            MillpondError: POND-405, it took longer; DATA-502, a database cannot be read.
        """
        for reader in list(self._readers.values()):
            reader.catch_up(timeout)

    def _begin(self, slot: str) -> None:
        sources = self._sources_of(slot)
        if sources and slot not in self._readers:
            reader = self._readers[slot] = SlotReader(sources, self._log, self._relations)
            reader.start()

    def _end(self, slot: str) -> None:
        reader = self._readers.pop(slot, None)
        if reader is not None:
            reader.stop()

    # -- looking -------------------------------------------------------------------------------

    def trouble(self, relation: RelationDef) -> MillpondError | None:
        """Why a relation does not follow its table now; None while it does, or follows none."""
        if not is_replicated(relation) or relation.source is None:
            return None
        reader = self._readers.get(relation.source.options.get("slot", ""))
        return None if reader is None else reader.trouble

    def describe(self) -> list[dict[str, Any]]:
        """Each slot: its name, how much of its log the server keeps for it, and how it is."""
        return [
            {
                "slot": reader.slot,
                "retained": reader.retained,
                "trouble": None if reader.trouble is None else str(reader.trouble),
            }
            for reader in list(self._readers.values())
        ]


def _allowed(source: SourceDef) -> Callable[[str, int], bool] | None:
    """Which addresses a source may connect to, if a client defined it."""
    if source.within is None:
        return None
    entries = source.within.split()
    return lambda address, port: allows_address(address, port, entries)
