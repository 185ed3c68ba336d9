"""The changes of a followed query by definition: the oracle's version of FETCH.

The changes are those of `algebra.changes`, for instants that are final, each once. If a relation is
updated at an instant whose changes are already delivered, the update's changes come at the first
instant that is not: there the oracle compares R with the R that it has delivered.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from sqlglot import exp
from tests.oracle.changes import OracleChange, changes, final_upto, is_defined
from tests.oracle.contents import Element
from tests.oracle.denotation import denote, occurrences, present_of
from tests.oracle.history import StreamHistory
from tests.oracle.rows import Row, normalize, restore, sort_key
from tests.oracle.world import World

from millpond.catalog.objects import Derived, StreamDef
from millpond.cql.tree.nodes import RelationToStream
from millpond.model.schema import Field, Schema, canonical_type, struct_type
from millpond.model.time import BEGINNING, END, LAST, Instant


@dataclass
class OracleSubscription:
    """A query followed from an instant on: the changes delivered, and up to which instant."""

    world: World
    query: exp.Expression
    position: int
    delivered: list[OracleChange] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._known = self._bag(self.position)
        self._told: list[Any] = []

    def advance(self) -> list[OracleChange]:
        """Deliver the changes that are final by now; return all changes delivered so far."""
        told = self._list_told()
        if len(told) == len(self._told) and all(map(_is_same, told, self._told)):
            return self.delivered
        self._advance()
        self._told = told
        return self.delivered

    def take_back(self, final: int) -> None:
        """Take back what was delivered after an instant: a clock was set back."""
        if self.position > final:
            self.delivered = [change for change in self.delivered if change.at <= final]
            self.position, self._told = final, []
            self._known = self._bag(final)

    def reads(self, name: str) -> bool:
        """Whether the query reads a stream, itself or through derived streams."""
        waiting = [o.name.lower() for o in occurrences(self.world, self._relation)]
        while waiting:
            current = waiting.pop()
            if current == name.lower():
                return True
            history = self.world.streams.get(current)
            waiting += [n.lower() for n in history.derived_from] if history else []
        return False

    def _list_told(self) -> list[Any]:
        """List what changes with everything the world is told: all that changes depend on."""
        told: list[Any] = [self.world.clock]
        for history in self.world.streams.values():
            if isinstance(history, StreamHistory):
                told += [len(history.elements), len(history.rejects), history.reached]
                told += [history.arrived_at, history.ended]
        return told + [relation.versions for relation in self.world.relations.values()]

    def _advance(self) -> None:
        upto = final_instant(self.world, self.query)
        at_rest = upto == LAST or not self._reads_streams
        is_corrected = self._bag(self.position) != self._known
        if at_rest and upto <= self.position and is_corrected:
            upto = self.position + 1
        if upto <= self.position:
            return
        first = self.position + 1
        found = changes(self.world, self.query, self.position, upto)
        if is_corrected:
            found = [*self._correction(first), *(c for c in found if c.at > first)]
        self.delivered += found
        self.position, self._known = upto, self._bag(upto)

    @property
    def _reads_streams(self) -> bool:
        return any(o.window is not None for o in occurrences(self.world, self._relation))

    @property
    def _operator(self) -> str | None:
        query = self.query
        return str(query.args["kind"]).lower() if isinstance(query, RelationToStream) else None

    @property
    def _relation(self) -> exp.Expression:
        return self.query.this if isinstance(self.query, RelationToStream) else self.query

    def _correction(self, at: int) -> list[OracleChange]:
        now, known = self._bag(at), self._known
        if self._operator == "rstream":
            return _sign(at, 1, now)
        gone = _sign(at, -1 if self._operator is None else 1, known - now)
        come = _sign(at, 1, now - known)
        kept = {"istream": come, "dstream": gone}
        return kept.get(self._operator or "", gone + come)

    def _bag(self, at: int) -> Counter[Row]:
        """R at an instant; empty where it cannot be computed, which is before the first change."""
        if not is_defined(self.world, self._relation, at):
            return Counter()
        table = denote(self.world, self._relation, at).table
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        return Counter(tuple(map(normalize, row)) for row in rows)


def _is_same(one: Any, other: Any) -> bool:
    """Whether nothing was told between two looks; a relation's list is replaced at every change."""
    return one is other if isinstance(one, list) else bool(one == other)


def _sign(at: int, sign: int, rows: Counter[Row]) -> list[OracleChange]:
    return [OracleChange(at, sign, row) for row in sorted(rows.elements(), key=sort_key)]


def final_instant(world: World, query: exp.Expression) -> int:
    """Find the last instant whose changes can be delivered.

    For a query that reads no stream, it is the present.
    """
    if isinstance(query, RelationToStream):
        query = query.this
    leaves = list(occurrences(world, query))
    if any(leaf.window is not None for leaf in leaves):
        least = final_upto(world, query)
        return LAST if least >= END - 1 else least
    return present_of(world, [leaf.name for leaf in leaves])


@dataclass
class DerivedHistory:
    """A derived stream, with the interface of `algebra.history.StreamHistory`."""

    following: OracleSubscription
    definition: StreamDef
    rejects: list[Element] = field(default_factory=list)
    derived_from: tuple[str, ...] = ()

    @staticmethod
    def of(world: World, name: str, query: exp.Expression) -> DerivedHistory:
        """Make the stream of a query's changes, from the beginning of time on."""
        if not isinstance(query, RelationToStream):
            query = RelationToStream(this=query, kind="istream")
        table = denote(world, query.this, BEGINNING).table
        fields = tuple(Field(f.name, column_type(f.type)) for f in table.schema)
        streams = [o.name for o in occurrences(world, query.this) if o.window is not None]
        on_clock = all(world.streams[s].definition.on_system_time for s in streams)
        derived = Derived("", None, on_clock)
        definition = StreamDef(len(world.streams), name, Schema(fields), derived=derived)
        following = OracleSubscription(world, query, BEGINNING - 1)
        return DerivedHistory(following, definition, derived_from=tuple(streams))

    @property
    def elements(self) -> list[Element]:
        names = self.definition.schema.names
        return [
            Element(
                dict(zip(names, map(restore, change.row), strict=True)), Instant(change.at), seq
            )
            for seq, change in enumerate(self.following.advance())
        ]

    @property
    def greatest(self) -> Instant | None:
        found = self.elements
        return found[-1].at if found else None

    def heartbeat(self, clock: int) -> Instant:
        self.following.advance()
        return Instant(self.following.position + 1)


def column_type(arrow: pa.DataType) -> str:
    """Find the type of a column from its Arrow type."""
    if pa.types.is_list(arrow):
        return f"{column_type(arrow.value_type)}[]"
    if pa.types.is_struct(arrow):
        return struct_type((part.name, column_type(part.type)) for part in arrow)
    name = str(arrow)
    if name.startswith("decimal128"):
        return f"DECIMAL{name.removeprefix('decimal128').replace(' ', '')}"
    known = {"int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT"}
    known |= {"float": "FLOAT", "double": "DOUBLE", "string": "VARCHAR", "bool": "BOOLEAN"}
    known |= {"timestamp[us]": "TIMESTAMP", "date32[day]": "DATE"}
    known |= {"timestamp[us, tz=UTC]": "TIMESTAMPTZ"}
    return canonical_type(known.get(name, name)) or "VARCHAR"


@dataclass(frozen=True)
class OracleChanges:
    """The result of FETCH: the part of `service.results.Changes` that goldens read."""

    columns: list[str]
    found: list[tuple[Any, ...]]
    as_of: int

    def rows(self) -> list[tuple[Any, ...]]:
        return self.found


def fetch(
    following: OracleSubscription, columns: list[str], after: str | None, limit: int | None
) -> OracleChanges:
    """Fetch the changes after a cursor, numbered from 1."""
    delivered = following.advance()
    start = 0 if after in (None, "oldest") else int(after)
    upto = len(delivered) if limit is None else min(len(delivered), start + limit)
    rows = [
        (start + n, change.at, "+" if change.sign > 0 else "-", *map(restore, change.row))
        for n, change in enumerate(delivered[start:upto], 1)
    ]
    as_of = following.position
    if upto < len(delivered):
        as_of = (rows[-1][1] if rows else delivered[upto].at) - 1
    return OracleChanges(columns, rows, as_of)
