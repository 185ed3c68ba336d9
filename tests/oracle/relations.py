"""The history of a relation: its row versions, each with the interval in which it held.

It is the oracle's version of SEMANTICS section 1 for relations. An update at τ is visible at τ and
after, so every row is valid in a half-open interval [begin, end). INSERT begins intervals, DELETE
ends the intervals that contain τ, UPDATE ends them and begins others in their place. An update
reads the relation at τ as it is when the update is made; a later statement about an earlier
instant does not make the update run again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from tests.oracle.history import cast
from tests.oracle.session import load, session

from millpond.catalog.objects import RelationDef
from millpond.errors import MillpondError
from millpond.model.casts import cast_value
from millpond.model.schema import Field, Schema
from millpond.model.time import END, Instant

#: The column of a row version's place.
PLACE = "__place"


@dataclass(frozen=True)
class RowVersion:
    """A row and the interval in which it held: begin ≤ τ < end."""

    row: dict[str, Any]
    begin: Instant
    end: Instant = END


@dataclass
class RelationHistory:
    """A relation: every row it ever held, in the order they were written."""

    definition: RelationDef
    versions: list[RowVersion] = field(default_factory=list)

    def at(self, instant: int) -> list[dict[str, Any]]:
        """R(τ)."""
        return [v.row for v in self.versions if v.begin <= instant < v.end]

    def insert(self, rows: Sequence[dict[str, Any]], at: int) -> None:
        """INSERT at an instant; a missing column is NULL.

        Raises:
            MillpondError: POND-408, a row's key is NULL, or the relation has it at `at` or after.
        """
        whole = [
            {f.name: cast(row.get(f.name), f) for f in self.definition.schema.fields}
            for row in rows
        ]
        self._replace([], [RowVersion(row, Instant(at)) for row in whole])

    def number_rows(self) -> RelationHistory:
        """Copy the relation, with each row version's place in one more column."""
        schema = Schema((*self.definition.schema.fields, Field(PLACE, "BIGINT")))
        numbered = [
            replace(v, row={**v.row, PLACE: place}) for place, v in enumerate(self.versions)
        ]
        return RelationHistory(replace(self.definition, schema=schema), numbered)

    def delete(self, where: str | Collection[int] | None, at: int) -> int:
        """DELETE at an instant; return the number of rows that ended.

        `where` is a predicate in DuckDB's SQL, or the places of the row versions to delete.
        """
        found = self._find(at, where)
        self._replace(found, [self._end_version(place, at) for place in found])
        return len(found)

    def update(
        self,
        assignments: Mapping[str, str | Mapping[int, Any]],
        where: str | Collection[int] | None,
        at: int,
    ) -> int:
        """UPDATE at an instant; values are DuckDB expressions over the row before the update.

        A value may also be given by the places of the row versions.
        """
        found = self._find(at, where)
        values = self._evaluate(assignments, found)
        changed = [
            RowVersion({**self.versions[place].row, **new}, Instant(at), self.versions[place].end)
            for place, new in zip(found, values, strict=True)
        ]
        self._replace(found, [self._end_version(place, at) for place in found] + changed)
        return len(found)

    def _end_version(self, place: int, at: int) -> RowVersion:
        version = self.versions[place]
        return RowVersion(version.row, version.begin, Instant(at))

    def _replace(self, gone: list[int], new: list[RowVersion]) -> None:
        """Replace versions by others; no two versions of one key may be valid together."""
        removed = set(gone)
        kept = [v for place, v in enumerate(self.versions) if place not in removed]
        kept += [v for v in new if v.begin < v.end]
        for declared in self.definition.schema.fields:
            if declared.required and any(version.row[declared.name] is None for version in new):
                raise MillpondError("CQL-205", f'a NULL in column "{declared.name}"')
        by_key: dict[tuple[Any, ...], list[RowVersion]] = {}
        for version in kept if self.definition.primary_key else ():
            key = tuple(version.row[column] for column in self.definition.primary_key)
            if any(value is None for value in key):
                raise MillpondError("POND-408", "a row has no primary key")
            others = by_key.setdefault(key, [])
            if any(v.begin < version.end and version.begin < v.end for v in others):
                raise MillpondError(
                    "POND-408", f'relation "{self.definition.name}" already has the key {key!r}'
                )
            others.append(version)
        self.versions = kept

    def _find(self, at: int, where: str | Collection[int] | None) -> list[int]:
        """Find the places of the versions that are valid at an instant and satisfy a predicate."""
        valid = [p for p, v in enumerate(self.versions) if v.begin <= at < v.end]
        if where is None or not valid:
            return valid
        if not isinstance(where, str):
            return [place for place in valid if place in where]
        picked = self._over(valid, f"SELECT __place FROM rows WHERE {where} ORDER BY __place")
        return [row[0] for row in picked]

    def _evaluate(
        self, assignments: Mapping[str, str | Mapping[int, Any]], places: list[int]
    ) -> list[dict[str, Any]]:
        if not places:
            return []
        typed = []
        by_place: list[dict[str, Any]] = [{} for _ in places]
        for name, sql in assignments.items():
            column = self.definition.schema.find(name)
            assert column is not None
            if isinstance(sql, str):
                typed.append((column.name, cast_value(sql, column.type)))
                continue
            for place, new in zip(places, by_place, strict=True):
                new[column.name] = cast(sql[place], column)
        if not typed:
            return by_place
        items = ", ".join(sql for _, sql in typed)
        rows = self._over(places, f"SELECT {items} FROM rows ORDER BY __place")
        return [
            {**new, **{name: value for (name, _), value in zip(typed, row, strict=True)}}
            for new, row in zip(by_place, rows, strict=True)
        ]

    def _over(self, places: list[int], sql: str) -> list[tuple[Any, ...]]:
        """Answer SQL over a table `rows` of the given versions' rows with their places."""
        schema = self.definition.schema.to_arrow().append(pa.field("__place", pa.int64()))
        with session() as connection:
            load(
                connection, "rows", schema, [{**self.versions[p].row, "__place": p} for p in places]
            )
            return connection.execute(sql).fetchall()
