"""Columns and their types: SQL's names, Arrow's layout, DuckDB's meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

#: DuckDB type name -> Arrow type, for every type a column may be declared with.
ARROW_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "BLOB": pa.binary(),
    "TIMESTAMP": pa.timestamp("us"),
    "DATE": pa.date32(),
}

#: Other spellings of the same types.
ALIASES: dict[str, str] = {
    "BOOL": "BOOLEAN",
    "INT": "INTEGER",
    "INT1": "TINYINT",
    "INT2": "SMALLINT",
    "INT4": "INTEGER",
    "INT8": "BIGINT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "FLOAT4": "FLOAT",
    "FLOAT8": "DOUBLE",
    "STRING": "VARCHAR",
    "TEXT": "VARCHAR",
    "CHAR": "VARCHAR",
    "BINARY": "BLOB",
    "VARBINARY": "BLOB",
    "BYTEA": "BLOB",
    "DATETIME": "TIMESTAMP",
    "NUMERIC": "DECIMAL",
    "DOUBLE PRECISION": "DOUBLE",
}

_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\((\d+)(?:,\s*(\d+))?\)")


def canonical_type(name: str) -> str | None:
    """Return DuckDB's name of a declared type; None if a column cannot have it.

    >>> canonical_type("string"), canonical_type("numeric(10, 2)"), canonical_type("JSON")
    ('VARCHAR', 'DECIMAL(10,2)', None)
    >>> canonical_type("decimal(10)"), canonical_type("double precision")
    ('DECIMAL(10,0)', 'DOUBLE')
    """
    upper = name.strip().upper()
    upper = ALIASES.get(upper, upper)
    if upper in ARROW_TYPES:
        return upper
    if upper == "DECIMAL":
        return "DECIMAL(18,3)"
    if match := _DECIMAL.fullmatch(upper):
        precision, scale = int(match[1]), int(match[2] or 0)
        if 1 <= precision <= 38 and scale <= precision:
            return f"DECIMAL({precision},{scale})"
    if re.fullmatch(r"VARCHAR\(\d+\)", upper):
        return "VARCHAR"
    return None


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a canonical type name."""
    if match := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(match[1]), int(match[2]))
    return ARROW_TYPES[name]


@dataclass(frozen=True)
class Field:
    """A column: its name as declared, its canonical type name, and whether it is NOT NULL."""

    name: str
    type: str
    required: bool = False

    @property
    def declared(self) -> str:
        """The text of the declaration after the column's name."""
        return f"{self.type} NOT NULL" if self.required else self.type


@dataclass(frozen=True)
class Schema:
    """An ordered set of columns; names are compared without regard to case."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def find(self, name: str) -> Field | None:
        """Find the column of that name, in any case."""
        lower = name.lower()
        return next((f for f in self.fields if f.name.lower() == lower), None)

    def to_arrow(self) -> pa.Schema:
        return pa.schema([pa.field(f.name, arrow_type(f.type)) for f in self.fields])

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {"name": f.name, "type": f.type, **({"required": True} if f.required else {})}
            for f in self.fields
        ]

    @staticmethod
    def from_json(fields: list[dict[str, Any]]) -> Schema:
        return Schema(tuple(Field(f["name"], f["type"], bool(f.get("required"))) for f in fields))


def goes_by_text(type_: pa.DataType) -> bool:
    """Whether values are told apart and ordered by their text in Python.

    Values with parts have no order of their own in Arrow, and an interval's months, days and
    nanoseconds have no fixed ratio.
    """
    return bool(pa.types.is_nested(type_) or pa.types.is_interval(type_))
