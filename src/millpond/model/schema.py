"""Columns and their types: SQL's names, Arrow's layout, DuckDB's meaning."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from millpond.model.duckdb_words import RESERVED, quote_name

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
    "TIMESTAMPTZ": pa.timestamp("us", tz="UTC"),
    "DATE": pa.date32(),
    "JSON": pa.string(),
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
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ",
    "TIMESTAMP_LTZ": "TIMESTAMPTZ",
    "NUMERIC": "DECIMAL",
    "DOUBLE PRECISION": "DOUBLE",
}

#: How many arrays and structs a type may have inside each other.
DEEPEST_TYPE = 8

_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\((\d+)(?:,\s*(\d+))?\)")
_PLAIN_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_QUOTED_NAME = re.compile(r'"(?:[^"]|"")*"')


@dataclass(frozen=True)
class ListOf:
    """The parts of an array's type: the type of its elements."""

    element: str


@dataclass(frozen=True)
class StructOf:
    """The parts of a struct's type: its fields' names and types, in order."""

    fields: tuple[tuple[str, str], ...]


def canonical_type(name: str) -> str | None:
    """Return DuckDB's name of a declared type; None if a column cannot have it.

    >>> canonical_type("string"), canonical_type("numeric(10, 2)"), canonical_type("UUID")
    ('VARCHAR', 'DECIMAL(10,2)', None)
    >>> canonical_type("decimal(10)"), canonical_type("double precision")
    ('DECIMAL(10,0)', 'DOUBLE')
    >>> canonical_type("struct(a int, b string[])[]"), canonical_type("INTEGER[3]")
    ('STRUCT(a INTEGER, b VARCHAR[])[]', None)
    """
    return _plain_type(name) or _nested_type(name)


def _plain_type(name: str) -> str | None:
    upper = " ".join(name.upper().split())
    upper = ALIASES.get(upper, upper)
    if upper in ARROW_TYPES:
        return upper
    if upper == "DECIMAL":
        return "DECIMAL(18,3)"
    if match := _DECIMAL.fullmatch(upper):
        precision, scale = int(match[1]), int(match[2] or 0)
        if 1 <= precision <= 38 and scale <= precision:
            return f"DECIMAL({precision},{scale})"
    if re.fullmatch(r"(VARCHAR|TEXT)\(\d+\)", upper):
        return "VARCHAR"
    return None


@lru_cache(maxsize=1024)
def _nested_type(name: str) -> str | None:
    """Return DuckDB's name of an array's or a struct's type; None if a column cannot have it."""
    shape = _QUOTED_NAME.sub("", name)
    if "[" not in shape and "(" not in shape:
        return None
    if max(shape.count("["), shape.count("(")) > 1_000:
        return None
    try:
        tree = exp.DataType.build(name, dialect="duckdb")
    except (SqlglotError, ValueError, RecursionError):
        return None
    return _canonical_tree(tree, 0)


def _canonical_tree(tree: exp.Expr, depth: int) -> str | None:
    if not isinstance(tree, exp.DataType) or depth > DEEPEST_TYPE:
        return None
    if not tree.args.get("nested"):
        return _plain_type(tree.sql(dialect="duckdb"))
    if tree.args.get("values"):
        return None  # an array of a fixed size
    if tree.this is exp.DType.ARRAY and len(tree.expressions) == 1:
        element = _canonical_tree(tree.expressions[0], depth + 1)
        return None if element is None else f"{element}[]"
    if tree.this is not exp.DType.STRUCT or not tree.expressions:
        return None
    fields: list[tuple[str, str]] = []
    seen: set[str] = set()
    for part in tree.expressions:
        if not isinstance(part, exp.ColumnDef) or not part.kind:
            return None
        type_ = _canonical_tree(part.kind, depth + 1)
        if type_ is None or part.name.lower() in seen or not part.name:
            return None
        seen.add(part.name.lower())
        fields.append((part.name, type_))
    return struct_type(fields)


def struct_type(fields: Iterable[tuple[str, str]]) -> str:
    """Return the name of a struct's type by its fields' names and types."""
    return f"STRUCT({', '.join(f'{_print_name(name)} {type_}' for name, type_ in fields)})"


def _print_name(name: str) -> str:
    plain = _PLAIN_NAME.fullmatch(name) and name.lower() not in RESERVED
    return name if plain else quote_name(name)


@lru_cache(maxsize=4096)
def parts_of(name: str) -> ListOf | StructOf | None:
    """Return the parts of a canonical type's values; None if they have no parts.

    >>> parts_of("STRUCT(a INTEGER, b VARCHAR[])"), parts_of("DATE[]"), parts_of("DATE")
    (StructOf(fields=(('a', 'INTEGER'), ('b', 'VARCHAR[]'))), ListOf(element='DATE'), None)
    """
    if name.endswith("[]"):
        return ListOf(name[:-2])
    if not name.startswith("STRUCT("):
        return None
    tree = exp.DataType.build(name, dialect="duckdb")
    return StructOf(tuple((p.name, _canonical_tree(p.kind, 0) or "") for p in tree.expressions))


@lru_cache(maxsize=4096)
def leaf_types(name: str) -> frozenset[str]:
    """Return the types without parts that a canonical type is made of.

    >>> sorted(leaf_types("STRUCT(a INTEGER, b JSON[])"))
    ['INTEGER', 'JSON']
    """
    match parts_of(name):
        case ListOf(element):
            return leaf_types(element)
        case StructOf(fields):
            return frozenset().union(*(leaf_types(type_) for _, type_ in fields))
    return frozenset([name])


@lru_cache(maxsize=4096)
def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a canonical type name."""
    match parts_of(name):
        case ListOf(element):
            return pa.list_(arrow_type(element))
        case StructOf(fields):
            return pa.struct([pa.field(n, arrow_type(type_)) for n, type_ in fields])
    if match := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(match[1]), int(match[2]))
    return ARROW_TYPES[name]


def query_type(name: str) -> str:
    """Return the type that values of a canonical type have in queries: JSON is its text there.

    >>> query_type("JSON"), query_type("STRUCT(a JSON[], b DATE)")
    ('VARCHAR', 'STRUCT(a VARCHAR[], b DATE)')
    """
    return _replace_leaf(name, "JSON", "VARCHAR")


def zoned_type(name: str) -> str:
    """Return a canonical type with TIMESTAMPTZ wherever it has TIMESTAMP.

    >>> zoned_type("STRUCT(a TIMESTAMP[], b DATE)")
    'STRUCT(a TIMESTAMPTZ[], b DATE)'
    """
    return _replace_leaf(name, "TIMESTAMP", "TIMESTAMPTZ")


@lru_cache(maxsize=4096)
def _replace_leaf(name: str, leaf: str, by: str) -> str:
    match parts_of(name):
        case ListOf(element):
            return f"{_replace_leaf(element, leaf, by)}[]"
        case StructOf(fields):
            return struct_type((n, _replace_leaf(type_, leaf, by)) for n, type_ in fields)
    return by if name == leaf else name


@dataclass(frozen=True)
class Field:
    """A column: its name as declared, its canonical type name, and whether it is NOT NULL.

    `computed` is the CQL of a column that is computed from the others when a row is admitted.
    `added` is the epoch whose ALTER STREAM added the column; 0: it was declared with the stream.
    """

    name: str
    type: str
    required: bool = False
    computed: str | None = None
    added: int = 0

    @property
    def query_type(self) -> str:
        """The type that the column's values have in queries."""
        return query_type(self.type)

    @property
    def declared(self) -> str:
        """The text of the declaration after the column's name."""
        computed = f" AS ({self.computed})" if self.computed is not None else ""
        return f"{self.type}{computed}{' NOT NULL' * self.required}"


@dataclass(frozen=True)
class Schema:
    """An ordered set of columns; names are compared without regard to case."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    @property
    def given(self) -> tuple[Field, ...]:
        """The columns that rows are given with: those that are not computed."""
        return tuple(f for f in self.fields if f.computed is None)

    @property
    def added(self) -> tuple[Field, ...]:
        """The columns that older elements do not have: they are NULL there."""
        return tuple(f for f in self.fields if f.added)

    def as_of(self, epoch: int) -> Schema:
        """The columns that there were at an epoch; the schema itself if these are all."""
        if all(f.added <= epoch for f in self.fields):
            return self
        return Schema(tuple(f for f in self.fields if f.added <= epoch))

    def find(self, name: str) -> Field | None:
        """Find the column of that name, in any case."""
        lower = name.lower()
        return next((f for f in self.fields if f.name.lower() == lower), None)

    def to_arrow(self) -> pa.Schema:
        return pa.schema([pa.field(f.name, arrow_type(f.type)) for f in self.fields])

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                "name": f.name,
                "type": f.type,
                **({"required": True} if f.required else {}),
                **({"computed": f.computed} if f.computed is not None else {}),
            }
            for f in self.fields
        ]

    @staticmethod
    def from_json(fields: list[dict[str, Any]]) -> Schema:
        return Schema(
            tuple(
                Field(
                    f["name"],
                    f["type"],
                    bool(f.get("required")),
                    f.get("computed"),
                    f.get("added", 0),
                )
                for f in fields
            )
        )
