"""What the transactions of another database do to the rows of one relation.

The rows that a relation has now are found by their keys. Changes are noted in the order of their
transactions; when they are taken, their texts are cast at once, by the rules of admission, and each
becomes the end of a row, a new row, or both. A row that comes and goes at one instant never held.

The index of keys takes about 150 bytes a row. It is made of the relation when its reader connects,
and is thrown away with it: what is stored is the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.catalog.objects import RelationDef
from millpond.engine.admission.cast_rows import FirstReasons, cast_columns, conform
from millpond.errors import MillpondError
from millpond.model.schema import Schema
from millpond.model.time import END
from millpond.runtime.postgres.pgoutput import Sent, SentChange, TableShape, Unchanged
from millpond.runtime.postgres.tables import match_columns, source_error
from millpond.service.results import python_values
from millpond.state.relation_log import ends, folded_schema

#: The values of a key.
Key = tuple[Any, ...]


@dataclass(frozen=True)
class _Step:
    """A change: the place of the old row's key, and of the new row, among those that are cast.

    Both None: all rows go.
    """

    old: int | None
    new: int | None
    at: int


class ReplicatedRows:
    """The rows of one relation that follows a table; for use by one thread."""

    def __init__(
        self, relation: RelationDef, held: pa.Table, next_rid: int, read: Callable[[], pa.Table]
    ) -> None:
        """Index the rows.

        Args:
            relation: The relation.
            held: Its rows, with `__rid` and `__to`.
            next_rid: Above every number of a row.
            read: Reads its rows again, in the order of `__rid`.
        """
        self.relation = relation
        self._read = read
        self._next_rid = next_rid
        current = held.filter(pc.equal(held["__to"], END))
        keys = _keys(current, relation.primary_key)
        self._rids: dict[Key, int] = dict(zip(keys, current["__rid"].to_pylist(), strict=True))
        self._places: list[int] = []
        self._key_places: list[int] = []
        self._clear()

    def _clear(self) -> None:
        self._steps: list[_Step] = []
        self._new: list[tuple[str | Unchanged | None, ...]] = []
        self._old: list[tuple[str | Unchanged | None, ...]] = []

    @property
    def has_changes(self) -> bool:
        """Whether changes were noted that were not taken."""
        return bool(self._steps)

    def learn(self, shape: TableShape) -> None:
        """Note where the relation's columns stand in the table's rows from here on.

        Raises:
            MillpondError: DATA-502, the table lacks a column, or changes do not name the old row.
        """
        names = self.relation.schema.names
        try:
            found = match_columns(shape.columns, names)
        except ValueError as error:
            raise source_error(
                self.relation.name,
                f'The table has no column "{error}" any more.',
                f"ALTER TABLE {shape.name} so that it has it again, or DROP and CREATE the "
                "relation.",
            ) from None
        check_identity(self.relation, shape.name, shape.identity, shape.keys, shape.columns)
        self._places = [shape.columns.index(found[name]) for name in names]
        self._key_places = [shape.columns.index(found[k]) for k in self.relation.primary_key]

    def note(self, change: SentChange, at: int) -> None:
        """Note a change at an instant; the table's shape was learnt before."""
        old: int | None = None
        if change.kind != "I":
            named = change.old if change.old is not None else change.new
            assert named is not None
            old = len(self._old)
            self._old.append(self._pick(named, self._key_places))
        new: int | None = None
        if change.new is not None:
            new = len(self._new)
            self._new.append(self._pick(change.new, self._places))
        self._steps.append(_Step(old, new, at))

    def note_truncate(self, at: int) -> None:
        """Note that all rows went at an instant."""
        self._steps.append(_Step(None, None, at))

    @staticmethod
    def _pick(row: Sent, places: Sequence[int]) -> tuple[str | Unchanged | None, ...]:
        return tuple(row[place] for place in places)

    def take(self) -> tuple[pa.Table, pa.Table]:
        """Cast and fold what was noted: the rows that came (`folded_schema`), and the ends.

        Raises:
            MillpondError: DATA-502, a value does not fit, or the rows are not those of the table;
                the object is of no use then.
        """
        schema = self.relation.schema
        columns = self._cast(self._new, schema)
        key_schema = Schema(tuple(f for k in self.relation.primary_key if (f := schema.find(k))))
        old_keys = _keys(pa.table(self._cast(self._old, key_schema)), key_schema.names)
        new_keys = _keys(pa.table(columns), self.relation.primary_key)
        patches = self._list_unchanged()
        added: dict[int, list[int]] = {}  # by number: the row's place, from, to
        ended: list[tuple[int, int]] = []

        def end(rid: int, at: int) -> None:
            if rid in added:
                added[rid][2] = at
            else:
                ended.append((rid, at))

        for step in self._steps:
            if step.old is None and step.new is None:
                for rid in self._rids.values():
                    end(rid, step.at)
                self._rids.clear()
                continue
            before: int | None = None
            if step.old is not None:
                before = self._rids.pop(old_keys[step.old], None)
                if before is None:
                    raise self._broken(f"it has no row with the key {old_keys[step.old]!r}")
                end(before, step.at)
            if step.new is not None:
                key = new_keys[step.new]
                if key in self._rids:
                    raise self._broken(f"two rows of the table have the key {key!r}")
                if None in key:
                    raise self._broken("a row of the table has a NULL in its key")
                for name in patches.get(step.new, {}):
                    patches[step.new][name] = self._value_before(
                        before, name, columns, patches, added
                    )
                rid, self._next_rid = self._next_rid, self._next_rid + 1
                self._rids[key] = rid
                added[rid] = [step.new, step.at, END]
        table = _patch(pa.table(columns, schema.to_arrow()), patches)
        self._check_required(table)
        self._clear()
        return _added(table, added), ends([r for r, _ in ended], [at for _, at in ended])

    def _cast(self, rows: Sequence[Sent], schema: Schema) -> dict[str, pa.ChunkedArray]:
        """Cast rows of texts to the columns of a schema."""
        given = {}
        for place, field in enumerate(schema.fields):
            sent = (row[place] for row in rows)
            texts = [None if isinstance(value, Unchanged) else value for value in sent]
            given[field.name] = text_column(texts, field.type)
        return cast_texts(self.relation.name, pa.table(given), schema)

    def _list_unchanged(self) -> dict[int, dict[str, Any]]:
        """For each new row the columns that were not sent, still without values."""
        names = self.relation.schema.names
        found: dict[int, dict[str, Any]] = {}
        for place, row in enumerate(self._new):
            for name, value in zip(names, row, strict=True):
                if isinstance(value, Unchanged):
                    if name in self.relation.primary_key:
                        raise self._broken(f'the key column "{name}" is too long to be sent')
                    found.setdefault(place, {})[name] = None
        return found

    def _value_before(
        self,
        rid: int | None,
        name: str,
        columns: dict[str, pa.ChunkedArray],
        patches: dict[int, dict[str, Any]],
        added: dict[int, list[int]],
    ) -> pa.Scalar:
        """The value that a column had in the row of a number."""
        assert rid is not None
        if rid in added:
            place = added[rid][0]
            patched = patches.get(place, {})
            return patched[name] if name in patched else columns[name][place]
        stored = self._read()
        place = int(np.searchsorted(stored["__rid"].to_numpy(), rid))
        return stored[name][place]

    def _check_required(self, table: pa.Table) -> None:
        for field in self.relation.schema.fields:
            if field.required and table[field.name].null_count:
                raise self._broken(f'a row has a NULL in the column "{field.name}"')

    def _broken(self, why: str) -> MillpondError:
        return source_error(
            self.relation.name,
            f"The relation is not what the table is: {why}.",
            "DROP and CREATE the relation: it is read anew.",
        )


def check_identity(
    relation: RelationDef,
    table: str,
    identity: str,
    keys: frozenset[str],
    columns: Sequence[str],
) -> None:
    """Check that a table's change records name the old row by at least the relation's key.

    Raises:
        MillpondError: DATA-502.
    """
    found = match_columns(columns, relation.primary_key)
    missing = [name for name in found.values() if name not in keys]
    if identity == "n" or missing:
        raise source_error(
            relation.name,
            f'Changes of the table "{table}" do not name the old row by '
            f"{', '.join(relation.primary_key)}.",
            f"ALTER TABLE {table} ADD PRIMARY KEY (…) with these columns, or ALTER TABLE {table} "
            "REPLICA IDENTITY FULL.",
        )


def cast_texts(relation: str, given: pa.Table, schema: Schema) -> dict[str, pa.ChunkedArray]:
    """Cast texts of another database to a relation's columns.

    Raises:
        MillpondError: DATA-502, naming the first value that does not fit.
    """
    reasons = FirstReasons(given.num_rows)
    cast = cast_columns(conform(given, schema, reasons), schema, reasons)
    if reasons.texts:
        raise source_error(
            relation,
            f"A row of the table does not fit: {reasons.texts[min(reasons.texts)]}.",
            "Change the value, or DROP the relation and declare the column otherwise.",
        )
    return cast


def text_column(texts: Sequence[str | None], type: str) -> pa.Array:
    """Texts of a column of PostgreSQL as admission reads them; bytes are written in hex there."""
    if type == "BLOB":
        return pa.array(
            [None if t is None else bytes.fromhex(t.removeprefix("\\x")) for t in texts],
            pa.binary(),
        )
    return pa.array(texts, pa.string())


def _keys(table: pa.Table, names: Sequence[str]) -> list[Key]:
    columns = [python_values(table[name]) for name in names]
    return list(zip(*columns, strict=True))


def _patch(table: pa.Table, patches: dict[int, dict[str, Any]]) -> pa.Table:
    """Put in the values that were not sent."""
    for name in {name for patched in patches.values() for name in patched}:
        places = sorted(place for place, patched in patches.items() if name in patched)
        mask = np.zeros(table.num_rows, np.bool_)
        mask[places] = True
        column = table[name].combine_chunks()
        values = [patches[place][name] for place in places]
        given = pa.array([None if v is None else v.as_py() for v in values], column.type)
        patched = pc.replace_with_mask(column, pa.array(mask), given)
        table = table.set_column(table.column_names.index(name), name, patched)
    return table


def _added(table: pa.Table, added: dict[int, list[int]]) -> pa.Table:
    """The rows that held at some instant, with their numbers and intervals."""
    kept = [(place, rid, at, to) for rid, (place, at, to) in added.items() if to > at]
    rows = table.take(pa.array([place for place, _, _, _ in kept], pa.int64()))
    for position, name in enumerate(("__rid", "__from", "__to"), 1):
        rows = rows.append_column(name, pa.array([line[position] for line in kept], pa.int64()))
    return rows.cast(folded_schema(table.schema))
