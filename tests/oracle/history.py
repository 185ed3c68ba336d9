"""The history of a stream, epoch by epoch: elements, rejects, and the heartbeat.

It is the oracle's version of SEMANTICS section 1 for streams. An epoch is one call of `commit`:
the rows of one epoch are judged against the heartbeat as of the epoch before, whatever their order.
So the way a caller cuts its feed into epochs decides which rows are late.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
from tests.oracle.contents import Element
from tests.oracle.session import load, session

from millpond.catalog.objects import StreamDef
from millpond.cql import parse_query, to_duckdb
from millpond.model import time
from millpond.model.casts import cast_value
from millpond.model.schema import Field, ListOf, Schema, StructOf, parts_of
from millpond.model.time import BEGINNING, END, Instant

#: The Python type whose values a column of the type holds unchanged; DuckDB casts other values.
_AS_IS: dict[str, type] = {
    "BOOLEAN": bool,
    "DOUBLE": float,
    "VARCHAR": str,
}
_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}


class Unfit(ValueError):
    """A value is not of its column's type."""


def cast(value: Any, field: Field) -> Any:
    """Cast a value to its column's type, with DuckDB if the value needs a cast.

    Raises:
        Unfit: DuckDB cannot cast it.
    """
    if value is None or type(value) is _AS_IS.get(field.type):
        return value
    if parts_of(field.type) is not None:
        return _cast_parts(value, field)
    bits = _INTEGER_BITS.get(field.type)
    if bits is not None and type(value) is int and -(1 << bits - 1) <= value < 1 << bits - 1:
        return value
    if field.type == "TIMESTAMP" and type(value) is datetime and value.tzinfo is None:
        return value
    if field.type == "DATE" and type(value) is date:
        return value
    if isinstance(value, str) and field.type != "VARCHAR":
        value = value.strip()
    return _cast_by_duckdb(value, field)


def _cast_parts(value: Any, field: Field) -> Any:
    """Cast an array or a struct part by part; a text is the JSON of one."""
    if isinstance(value, str):
        try:
            value = json.loads(value, parse_float=Decimal)
        except ValueError as error:
            raise Unfit(f'column "{field.name}": {value!r} is not {field.type}') from error
    if value is None:
        return None
    parts = parts_of(field.type)
    if isinstance(parts, ListOf) and isinstance(value, list | tuple):
        inner = Field(f"{field.name}[]", parts.element)
        return [cast(_leaf(item), inner) for item in value]
    if isinstance(parts, StructOf) and isinstance(value, tuple):  # row(1, 2)
        value = dict(zip((name for name, _ in parts.fields), value, strict=True))
    if isinstance(parts, StructOf) and isinstance(value, dict):
        lower = {key.lower(): part for key, part in value.items()} | value
        return {
            name: cast(
                _leaf(lower.get(name, lower.get(name.lower()))), Field(f"{field.name}.{name}", kind)
            )
            for name, kind in parts.fields
        }
    raise Unfit(f'column "{field.name}": {value!r} is not {field.type}')


def _leaf(value: Any) -> Any:
    """A part as the text a client would send in its place; arrays and structs as they are."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float | Decimal) else value


def _json(value: Any) -> str:
    return json.dumps(value, default=float, separators=(",", ":"))


def _cast_by_duckdb(value: Any, field: Field) -> Any:
    with session() as connection:
        try:
            # A text with a time zone means the instant in that zone; without a zone it is UTC.
            zoned = isinstance(value, str) and field.type == "TIMESTAMP"
            read = "CAST(? AS TIMESTAMPTZ)" if zoned else "?"
            if field.type == "JSON":
                value = value if isinstance(value, str) else _json(value)
            row = connection.execute(f"SELECT CAST({read} AS {field.type})", [value]).fetchone()
        except duckdb.Error as error:
            raise Unfit(f'column "{field.name}": {value!r} is not a {field.type}') from error
    assert row is not None
    return row[0]


@dataclass(frozen=True)
class RejectedRow:
    """A row that did not become an element: its place in the epoch's rows, and the reason."""

    row: int
    reason: str


@dataclass
class StreamHistory:
    """A stream: all rows that were ever committed on it, in order.

    Attributes:
        definition: The stream's declaration.
        elements: In arrival order; an element's sequence number is its place in this list.
        rejects: The elements of `name$rejects`, on system time.
        greatest: The greatest timestamp seen, or None.
        reached: The instant that the heartbeat has reached; it never goes back.
        arrived_at: The clock at the last epoch with rows, or at the last HEARTBEAT, or None.
        ended: Whether a bounded source was read to its end.
        derived_from: For a derived stream, the names of the streams it is derived from.
    """

    definition: StreamDef
    elements: list[Element] = field(default_factory=list)
    rejects: list[Element] = field(default_factory=list)
    greatest: Instant | None = None
    reached: Instant = BEGINNING
    arrived_at: Instant | None = None
    ended: bool = False
    derived_from: tuple[str, ...] = ()

    def heartbeat(self, clock: int) -> Instant:
        """H when the clock shows `clock`: no element with a smaller timestamp will come any more.

        On application time H is the instant it has reached so far. Once IDLE AFTER has gone by
        without arrivals, H follows the clock, at the distance it had at the last arrival or
        HEARTBEAT.
        """
        if self.ended:
            return END
        if self.definition.timestamp_by is None:
            return Instant(clock)
        idle = self.definition.idle_after
        if (
            idle is not None
            and self.arrived_at is not None
            and self.reached > BEGINNING
            and clock - self.arrived_at >= idle
        ):
            behind = self.arrived_at - self.reached
            return Instant(max(self.reached, clock - behind))
        return self.reached

    def reset_clock(self, to: int, clock: int) -> None:
        """RESET CLOCK: what is after `to` becomes rejects, as if it had never come."""
        left = [e for e in self.elements if e.at <= to]
        for element in self.elements:
            if element.at > to:
                self._reject(element.row, "the clock was set back", clock)
        self.elements = left
        self.greatest = max((e.at for e in left), default=None)
        delay = self.definition.delay
        self.reached = BEGINNING if self.greatest is None else Instant(self.greatest - delay)
        self.arrived_at = Instant(clock)

    def advance_heartbeat(self, at: int, clock: int) -> None:
        """HEARTBEAT: H is at least `at` from now on. The idle time starts anew."""
        self.reached = Instant(max(self.heartbeat(clock), at))
        self.arrived_at = Instant(clock)

    def end(self) -> None:
        """The stream's bounded source has ended: H is +∞."""
        self.ended = True

    def commit(self, rows: Sequence[dict[str, Any]], clock: int) -> list[RejectedRow]:
        """Commit one epoch of rows that arrived when the clock showed `clock`.

        Keys of a row are column names in any case; a missing column is NULL.
        """
        floor = self.heartbeat(clock)
        rejected: list[RejectedRow] = []
        for place, given in enumerate(rows):
            try:
                row = self._conform(given)
                at = self._timestamp(row, clock)
                if self.definition.timestamp_by is not None and at < floor:
                    raise Unfit("late: its timestamp is before the heartbeat")
                ahead = self.definition.ahead
                if self.definition.timestamp_by and ahead is not None and at > clock + ahead:
                    raise Unfit("ahead of the clock by more than the stream's AHEAD")
            except Unfit as reason:
                rejected.append(RejectedRow(place, str(reason)))
                self._reject(given, str(reason), clock)
                continue
            number = self.elements[-1].seq + 1 if self.elements else 0
            self.elements.append(Element(row, at, number))
            self.greatest = at if self.greatest is None else Instant(max(self.greatest, at))
        if rows:
            self.reached = floor if self.definition.timestamp_by is not None else self.reached
            self.arrived_at = Instant(clock)
        if self.definition.timestamp_by is not None and self.greatest is not None:
            self.reached = Instant(max(self.reached, self.greatest - self.definition.delay))
        return rejected

    def _conform(self, given: dict[str, Any]) -> dict[str, Any]:
        lower = {name.lower(): value for name, value in given.items()}
        fields = self.definition.schema.fields
        row = {}
        for f in self.definition.schema.given:
            row[f.name] = cast(lower.get(f.name.lower()), f)
        for f in fields:
            if f.computed is not None:
                if lower.get(f.name.lower()) is not None:
                    raise Unfit(f'column "{f.name}" is computed: no value can be given')
                row[f.name] = self._compute(f, row)
        row = {f.name: row[f.name] for f in fields}
        for declared in fields:
            if declared.required and row[declared.name] is None:
                raise Unfit(f'column "{declared.name}": NULL in NOT NULL')
        return row

    def _compute(self, computed: Field, row: dict[str, Any]) -> Any:
        """Compute a column from those before it."""
        known = Schema(tuple(f for f in self.definition.schema.fields if f.name in row))
        sql = to_duckdb(parse_query(f"SELECT {computed.computed} AS v").expressions[0].this)
        with session() as connection:
            load(connection, "one_row", known.to_arrow(), [row])
            try:
                found = connection.execute(
                    f"SELECT {cast_value(sql, computed.type)} FROM one_row"
                ).fetchall()
            except duckdb.Error as error:
                raise Unfit(f'column "{computed.name}": {error}') from error
        return found[0][0]

    def _timestamp(self, row: dict[str, Any], clock: int) -> Instant:
        if self.definition.timestamp_by is None:
            return Instant(clock)
        column = self.definition.schema.find(self.definition.timestamp_by)
        assert column is not None
        value = row[column.name]
        if value is None:
            raise Unfit("no timestamp")
        if not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        if value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        return time.from_datetime(value)

    def _reject(self, given: dict[str, Any], reason: str, clock: int) -> None:
        row = {
            "rejected_at": time.to_datetime(clock),
            "reason": reason,
            "raw": str(given),
        }
        self.rejects.append(Element(row, Instant(clock), len(self.rejects)))
