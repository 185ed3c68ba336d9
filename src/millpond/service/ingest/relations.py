"""Relations: bags that vary with time, as rows with the interval in which they hold.

R(τ) is the rows with from ≤ τ < to. A statement at τ inserts rows holding from τ on, or ends rows
that hold at τ; an update does both, and the new row ends when the old one would have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from millpond.catalog.objects import RelationDef
from millpond.engine.scalars.residual_query import Residual
from millpond.errors import MillpondError
from millpond.model.casts import cast_value
from millpond.model.duckdb_words import quote_name
from millpond.service.events import FollowerNeeds
from millpond.service.ingest.relation_keys import check_keys
from millpond.service.ingest.segment_refs import relative_path
from millpond.service.ingest.versioned_rows import VersionedRows
from millpond.state.arrow_file import FileMeta, open_arrow
from millpond.state.epoch.epoch_change import EpochChange, StaleChange
from millpond.state.epoch_log import EpochLog
from millpond.state.relation_log import ends, fold, number_added, select_at, write_delta
from millpond.state.version import RelationDelta, Version

_DELTAS = 64
#: The tables a predicate reads besides the relation it is about: none.
NOTHING: Mapping[str, pa.Table] = MappingProxyType({})


class Uncomputable(Exception):
    """An expression over a relation's rows failed.

    Attributes:
        column: The column it was to give a value; None for the predicate.
        error: Why it failed.
    """

    def __init__(self, column: str | None, error: MillpondError) -> None:
        super().__init__(str(error))
        self.column = column
        self.error = error


class Relations:
    """Reads and changes relations; safe to use from any thread."""

    def __init__(
        self, store: Path, log: EpochLog, residual: Residual, followers: FollowerNeeds
    ) -> None:
        self._store = store
        self._log = log
        self._residual = residual
        self._cache: dict[int, tuple[tuple[RelationDelta, ...], VersionedRows]] = {}
        self._lock = threading.RLock()
        self._followers = followers

    def read_rows(self, version: Version, relation: RelationDef) -> VersionedRows:
        """All rows, past and present, as of a version."""
        deltas = version.relation_deltas(relation.id)
        with self._lock:
            cached = self._cache.get(relation.id)
        if cached is not None and cached[0] is deltas:
            return cached[1]
        opened = [open_arrow(self._store / d.path, d.checksum) for d in deltas]
        table = fold(opened, relation.schema.to_arrow()).combine_chunks()
        greatest = [pc.max(lines["__rid"]).as_py() for lines in opened if lines.num_rows]
        next_rid = max(greatest, default=-1) + 1
        held = VersionedRows(table, table["__from"].to_numpy(), table["__to"].to_numpy(), next_rid)
        with self._lock:
            self._cache[relation.id] = (deltas, held)
        return held

    def was_told(self, version: Version, relation_id: int, epoch: int, upto: int) -> bool:
        """Whether a relation was told after an epoch of an instant up to `upto`."""
        for delta in reversed(version.relation_deltas(relation_id)):
            if delta.epoch <= epoch:
                return False
            lines = open_arrow(self._store / delta.path, delta.checksum)
            for column in ("__from", "__to"):
                first = pc.min(lines[column]).as_py()
                if first is not None and first <= upto:
                    return True
        return False

    def at(
        self, version: Version, relation: RelationDef, instant: int, columns: tuple[str, ...]
    ) -> pa.Table:
        """R(τ) as of a version."""
        return self.read_rows(version, relation).at(instant, columns)

    def versions(
        self,
        version: Version,
        relation: RelationDef,
        columns: tuple[str, ...],
        interval: tuple[str, ...],
    ) -> pa.Table:
        """All rows a relation ever held, as of a version (`VersionedRows.versions`)."""
        return self.read_rows(version, relation).versions(columns, interval)

    def insert(self, relation: RelationDef, rows: pa.Table, at: int) -> int:
        """Add rows holding from `at` on; return how many.

        Raises:
            MillpondError: POND-408 when a primary key is NULL or taken; POND-413, as `delete`.
        """

        def change(held: VersionedRows) -> tuple[pa.Table, pa.Table]:
            added = _rows(relation, rows, held.next_rid, at)
            return added, ends((), at)

        return self._change("insert", relation, at, change)

    def delete(
        self,
        relation: RelationDef,
        where: str | None,
        at: int,
        given: Mapping[str, pa.Table] = NOTHING,
    ) -> int:
        """End the rows that hold at `at` and satisfy the DuckDB predicate; return how many.

        `given` are other tables that the predicate reads, by their names.

        Raises:
            Uncomputable: the predicate failed on a row.
            MillpondError: POND-413 when the relation is non-retroactive and elements from `at` on
                have been delivered with what it held.
        """

        def change(held: VersionedRows) -> tuple[pa.Table, pa.Table]:
            chosen = self._select(relation, held, where, at, given)
            return held.table.slice(0, 0), ends(chosen["__rid"].to_pylist(), at)

        return self._change("delete", relation, at, change)

    def update(
        self,
        relation: RelationDef,
        assignments: Mapping[str, str],
        where: str | None,
        at: int,
        given: Mapping[str, pa.Table] = NOTHING,
    ) -> int:
        """Replace the rows that hold at `at` and satisfy the predicate; return how many.

        `assignments` maps columns to DuckDB expressions over the old row. `given` are other tables
        that the predicate and the expressions read, by their names.

        Raises:
            Uncomputable: an expression failed on a row.
            MillpondError: POND-408 when a primary key is NULL or taken; POND-413, as `delete`.
        """

        def change(held: VersionedRows) -> tuple[pa.Table, pa.Table]:
            chosen = self._select(relation, held, where, at, given)
            lower = {name.lower(): sql for name, sql in assignments.items()}
            items = [
                f"{cast_value(lower[f.name.lower()], f.type)} AS {quote_name(f.name)}"
                if f.name.lower() in lower
                else quote_name(f.name)
                for f in relation.schema.fields
            ]
            fresh = self._compute(relation, items, {**given, relation.name: chosen})
            added = _rows(relation, fresh, held.next_rid, at)
            # A row that was going to end later still does, under its new values.
            column = added.schema.get_field_index("__to")
            added = added.set_column(column, "__to", chosen["__to"])
            return added, ends(chosen["__rid"].to_pylist(), at)

        return self._change("update", relation, at, change)

    def create(self, relation: RelationDef, file: FileMeta, at: int) -> int:
        """Commit a relation with the rows a runtime read from its source; return how many.

        Relation and rows are one epoch: no reader sees the relation without its rows, nor after a
        crash.

        Raises:
            MillpondError: CQL-208 when the name is taken, POND-408 for its keys.
        """
        return self._create(relation, open_arrow(file.path, file.checksum), at, ())

    def create_replicated(
        self, relation: RelationDef, rows: pa.Table, at: int, batches: Sequence[tuple[str, int]]
    ) -> int:
        """Commit a relation with the rows of the table it follows, and their position.

        Raises:
            MillpondError: CQL-208 when the name is taken, POND-408 for its keys.
        """
        return self._create(relation, rows, at, batches)

    def _create(
        self, relation: RelationDef, rows: pa.Table, at: int, batches: Sequence[tuple[str, int]]
    ) -> int:
        empty = _rows(relation, relation.schema.to_arrow().empty_table(), 0, at)
        added = _rows(relation, rows, 0, at)
        check_keys(self._residual, relation, empty, added, ends((), at))
        delta = self._delta(relation, write_delta(self._store, added))
        change = EpochChange(kind="create", add=[relation], add_deltas=[delta], batches=batches)
        self._log.commit(change)
        return added.num_rows

    def replicate(
        self,
        changes: Sequence[tuple[RelationDef, pa.Table, pa.Table]],
        batches: Sequence[tuple[str, int]],
    ) -> None:
        """Commit what transactions of another database did to relations, as one epoch.

        Args:
            changes: For each relation that changed, the rows that came (`folded_schema`), and those
                that ended (`ends`).
            batches: Up to which position each relation has the other database's log.

        Raises:
            StaleChange: a position is committed already, or a relation is gone.
        """
        with self._lock:
            version = self._log.version
            added_deltas: list[RelationDelta] = []
            dropped: list[RelationDelta] = []
            for relation, added, ended in changes:
                file = write_delta(self._store, added, ended)
                folded, old = self._fold(relation, version.relation_deltas(relation.id))
                added_deltas += [*folded, self._delta(relation, file)]
                dropped += old
            self._log.commit(
                EpochChange(
                    kind="replicate",
                    add_deltas=added_deltas,
                    drop_deltas=dropped,
                    batches=batches,
                )
            )

    def _compute(
        self, relation: RelationDef, items: list[str], slices: Mapping[str, pa.Table]
    ) -> pa.Table:
        """Compute one expression for each column; if any fails, find out which, one by one."""
        behind = f" FROM {quote_name(relation.name)}"
        try:
            return self._residual.evaluate(f"SELECT {', '.join(items)}{behind}", slices)
        except MillpondError:
            for field, item in zip(relation.schema.fields, items, strict=True):
                try:
                    self._residual.evaluate(f"SELECT {item}{behind}", slices)
                except MillpondError as error:
                    raise Uncomputable(field.name, error) from error
            raise

    def _select(
        self,
        relation: RelationDef,
        held: VersionedRows,
        where: str | None,
        at: int,
        given: Mapping[str, pa.Table],
    ) -> pa.Table:
        alive = select_at(held.table, at)
        if where is None:
            return alive
        sql = f"SELECT * FROM {quote_name(relation.name)} WHERE {where}"
        try:
            return self._residual.evaluate(sql, {**given, relation.name: alive})
        except MillpondError as error:
            raise Uncomputable(None, error) from error

    def _change(
        self,
        kind: str,
        relation: RelationDef,
        at: int,
        change: Callable[[VersionedRows], tuple[pa.Table, pa.Table]],
    ) -> int:
        with self._lock:
            while True:
                version = self._log.version
                if relation.non_retroactive:
                    self._followers.check_instant(version, relation, at)
                deltas = version.relation_deltas(relation.id)
                held = self.read_rows(version, relation)
                added, ended = change(held)
                if not added.num_rows and not ended.num_rows:
                    return 0
                check_keys(self._residual, relation, held.table, added, ended)
                file = write_delta(self._store, added, ended)
                folded, dropped = self._fold(relation, deltas)
                epoch = EpochChange(
                    kind=kind,
                    add_deltas=[*folded, self._delta(relation, file)],
                    drop_deltas=dropped,
                )
                try:
                    self._log.commit(partial(self._confirm, version, relation, epoch))
                except StaleChange:
                    for orphan in (file.path, *(self._store / d.path for d in folded)):
                        Path(orphan).unlink(missing_ok=True)
                    continue
                return max(added.num_rows, ended.num_rows)

    @staticmethod
    def _confirm(
        checked: Version, relation: RelationDef, change: EpochChange, now: Version
    ) -> EpochChange:
        """Confirm, with the log locked, that a checked update may still be dated as it is.

        Raises:
            StaleChange: the relation is non-retroactive, and changes were delivered since the check
                (INV-BACKDATED-1): it must be checked again.
        """
        if relation.non_retroactive and now is not checked and _have_moved(now, checked):
            raise StaleChange("changes were delivered while a relation was updated")
        return change

    def _fold(
        self, relation: RelationDef, deltas: tuple[RelationDelta, ...]
    ) -> tuple[list[RelationDelta], tuple[RelationDelta, ...]]:
        """Fold the older deltas once there are many: the one that replaces them, and they."""
        if len(deltas) < _DELTAS:
            return [], ()
        # Deltas up to the oldest epoch somebody still reads may become one; with later ones
        # nobody could be told any more what each of them said.
        needed = self._followers.oldest_epoch_needed_of(relation.id)
        old = tuple(d for d in deltas if d.epoch <= needed)
        if len(old) < _DELTAS // 2:
            return [], ()
        opened = [open_arrow(self._store / d.path, d.checksum) for d in old]
        file = write_delta(self._store, fold(opened, relation.schema.to_arrow()))
        return [replace(self._delta(relation, file), epoch=old[-1].epoch)], old

    @staticmethod
    def _delta(relation: RelationDef, file: FileMeta) -> RelationDelta:
        path = relative_path(file.path)
        return RelationDelta(relation.id, 0, path, file.checksum, file.rows, file.bytes)


def _rows(relation: RelationDef, rows: pa.Table, rid: int, start: int) -> pa.Table:
    """New rows in the relation's columns, numbered from `rid` on, which hold from `start` on."""
    target = relation.schema.to_arrow()
    columns = [rows.column(i).cast(f.type) for i, f in enumerate(target)]
    return number_added(pa.Table.from_arrays(columns, schema=target), rid, start)


def _have_moved(now: Version, before: Version) -> bool:
    """Whether the changes of some derivation reach further, or begin, since an earlier version."""
    return any(
        before.streams.get(id) is None or before.clock(id).position != now.clock(id).position
        for id, stream in now.streams.items()
        if stream.derived is not None
    )
