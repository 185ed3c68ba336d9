"""Constants of boolean factors, put on the axis of the column they are compared with.

DuckDB brings a column and the constants it is compared with to one type first, and that type
depends on all of them: `d IN ('2020-01-01', TIMESTAMP '…')` compares timestamps, `f IN (0.1)` on
a FLOAT column compares floats. The rules below were read off DuckDB's plans. A combination that
they do not cover is left to DuckDB (`NotFoldable`), never guessed. A constant whose value is not
evident is computed by DuckDB itself, and remembered.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

import duckdb
from sqlglot import exp

from millpond.engine.values.value_sets import Cut, float_key


class NotFoldable(Exception):
    """A grouped filter must not decide by this constant, or by its comparison with the column."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant as written: its type in DuckDB and its value.

    `kind` is 'null', 'integer', 'decimal', 'double', 'string' (an untyped literal, cast to the
    type of the values it is compared with), 'boolean', 'timestamp' (value: µs) or 'date' (value:
    days). A decimal's value is a `Decimal` with the scale it was written with.
    """

    kind: str
    value: Any
    text: str = ""


_INTEGER = re.compile(r"\d+")
_DECIMAL = re.compile(r"(\d*)\.(\d*)")
_DOUBLE = re.compile(r"(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
_FOLDABLE = (
    exp.Literal,
    exp.Neg,
    exp.Paren,
    exp.Cast,
    exp.Interval,
    exp.Add,
    exp.Sub,
    exp.Var,
    exp.DataTypeParam,
)
_TIMESTAMPS = {exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPNTZ}
#: Types whose casts depend on the session's time zone.
_ZONED = {exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ, exp.DataType.Type.TIMETZ}
#: DuckDB holds integers below this in a HUGEINT; greater integers become other types.
_HUGE = 2**127
_EPOCH = datetime(1970, 1, 1)
_WIDE = Context(prec=100)


def read_constant(node: exp.Expression) -> Constant:
    """Read the constant a column-free expression stands for.

    Raises:
        Unfolded: it is not a constant of a kind that can be folded.
    """
    negative = False
    while True:
        if isinstance(node, exp.Paren):
            node = node.this
        elif isinstance(node, exp.Neg):
            negative = not negative
            node = node.this
        else:
            break
    if isinstance(node, exp.Null):
        return Constant("null", None)
    if isinstance(node, exp.Boolean) and not negative:
        return Constant("boolean", int(bool(node.this)))
    if isinstance(node, exp.Literal):
        return literal_constant(str(node.this), bool(node.is_string), negative)
    if negative or not isinstance(node, (exp.Cast, exp.Add, exp.Sub)):
        raise NotFoldable
    return _read_expression(node)


def literal_constant(text: str, is_string: bool, negative: bool = False) -> Constant:
    """Read the constant a literal of this text stands for, after a minus if `negative`.

    Raises:
        Unfolded: its kind cannot be folded.
    """
    if is_string:
        if negative:
            raise NotFoldable
        return Constant("string", text, text)
    sign = "-" if negative else ""
    if _INTEGER.fullmatch(text):
        value = int(sign + text)
        if abs(value) >= _HUGE:
            raise NotFoldable
        return Constant("integer", value, sign + text)
    if match := _DECIMAL.fullmatch(text):
        digits = len(match[1].lstrip("0")) + len(match[2])
        if not match[1] + match[2] or digits > 38:
            raise NotFoldable
        return Constant("decimal", Decimal(sign + text), sign + text)
    if _DOUBLE.fullmatch(text):
        return Constant("double", float(sign + text), sign + text)
    raise NotFoldable


def _read_expression(node: exp.Expression) -> Constant:
    """Read casts and sums of literals: the commonest here, all others by asking DuckDB."""
    if type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string:
        if {k for k, v in node.args.items() if v} - {"this", "to"}:
            raise NotFoldable
        kind = node.to.this if not node.to.expressions else None
        if kind in _TIMESTAMPS:
            return Constant("timestamp", _timestamp_of_text(str(node.this.this)))
        if kind is exp.DataType.Type.DATE:
            return Constant("date", _date_of_text(str(node.this.this)))
    for part in node.walk():
        if isinstance(part, exp.DataType):
            if part.this in _ZONED:
                raise NotFoldable
        elif not isinstance(part, _FOLDABLE):
            raise NotFoldable
    kind, value = _compute(node.sql(dialect="duckdb", comments=False))
    if kind == "TIMESTAMP":
        return Constant("timestamp", value)
    if kind == "DATE":
        return Constant("date", value)
    if kind in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"):
        return Constant("integer", value, str(value))
    if kind == "DOUBLE":
        return Constant("double", value)
    if kind == "BOOLEAN":
        return Constant("boolean", int(value))
    raise NotFoldable


_connections = threading.local()
#: SQL by which a constant of a type leaves DuckDB; temporal values as whole numbers.
_VALUE_OF = {"TIMESTAMP": "epoch_us({})", "DATE": "({} - DATE '1970-01-01')"}


@lru_cache(maxsize=65536)
def _compute(sql: str) -> tuple[str, Any]:
    """Ask DuckDB for the type and value of a constant expression.

    Raises:
        Unfolded: it fails, is NULL, or is infinite.
    """
    con = getattr(_connections, "con", None)
    if con is None:
        con = _connections.con = duckdb.connect(
            config={"enable_external_access": "false", "threads": "1"}
        )
        con.execute("SET TimeZone = 'UTC'")
        con.execute("SET lock_configuration = true")
    try:
        kind = con.execute(f"SELECT typeof({sql})").fetchall()[0][0]
        value = con.execute("SELECT " + _VALUE_OF.get(kind, "{}").format(sql)).fetchall()[0][0]
    except (duckdb.Error, OverflowError, ValueError) as error:
        raise NotFoldable from error
    if value is None:
        raise NotFoldable
    return kind, value


def keys_on(type_name: str, constants: Sequence[Constant]) -> list[Cut | tuple[Cut, Cut] | None]:
    """Find the places of constants on the axis of a column of this type, compared all together.

    A place is a cut (the constant equals that value), None (the constant is NULL), or a pair of
    neighbours (a, b), b = succ(a): the constant lies between two values and equals neither.

    Raises:
        Unfolded: DuckDB must do this comparison.
    """
    kinds = {c.kind for c in constants} - {"null"}
    if type_name in _INTEGER_BITS:
        place = _on_integers(type_name, kinds, constants)
    elif type_name.startswith("DECIMAL("):
        place = _on_decimals(type_name, kinds, constants)
    elif type_name == "DOUBLE":
        place = _on_doubles(kinds)
    elif type_name == "FLOAT":
        place = _on_floats(kinds)
    elif type_name in ("VARCHAR", "JSON") and kinds <= {"string"}:
        place = _text
    elif type_name == "BOOLEAN" and kinds <= {"boolean"}:
        place = _as_is
    elif type_name == "TIMESTAMP" and kinds <= {"string", "timestamp", "date"}:
        place = _timestamp
    elif type_name == "TIMESTAMPTZ" and kinds <= {"string"}:
        place = _zoned_timestamp
    elif type_name == "TIMESTAMPTZ" and kinds <= {"timestamp", "date"}:
        place = _timestamp
    elif type_name == "DATE" and kinds <= {"string", "date"}:
        place = _date
    else:
        raise NotFoldable
    return [None if c.kind == "null" else place(c) for c in constants]


_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
#: Digits of a DECIMAL that holds every value of an integer type.
_INTEGER_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 19}
#: Up to here every integer is exact as a double.
_EXACT = 2**53


def _as_is(constant: Constant) -> Cut:
    return int(constant.value)


def _text(constant: Constant) -> Cut:
    try:
        return str(constant.value).encode()
    except UnicodeEncodeError as error:
        raise NotFoldable from error


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _decimal_fits(integer_digits: int, constants: Sequence[Constant], scale: int) -> bool:
    """Whether DuckDB's common DECIMAL holds every value, so that the comparison is exact."""
    for constant in constants:
        if constant.kind == "decimal":
            exponent = -int(constant.value.as_tuple().exponent)
            scale = max(scale, exponent)
            integer_digits = max(integer_digits, len(constant.value.as_tuple().digits) - exponent)
        elif constant.kind == "integer":
            if abs(constant.value) >= 2**63:
                return False
            integer_digits = max(integer_digits, 19)
    return integer_digits + scale <= 38


def _on_integers(type_name: str, kinds: set[str], constants: Sequence[Constant]) -> Any:
    if kinds <= {"integer"}:
        return _as_is
    if kinds == {"string"}:
        return lambda c: _integer_of_text(c.value, type_name)
    if kinds <= {"integer", "decimal"} and _decimal_fits(_INTEGER_DIGITS[type_name], constants, 0):
        return lambda c: _rational(Decimal(c.value))
    if kinds <= {"integer", "decimal", "double"} and "double" in kinds:
        return lambda c: _double_among_integers(c, type_name)
    raise NotFoldable


@lru_cache(maxsize=4096)
def _integer_of_text(text: str, type_name: str) -> int:
    if re.fullmatch(r"-?[0-9]{1,18}", text) and abs(int(text)) < 2 ** (
        _INTEGER_BITS[type_name] - 1
    ):
        return int(text)
    return int(_compute(f"CAST({_quote(text)} AS {type_name})")[1])


def _rational(value: Decimal) -> Cut | tuple[Cut, Cut]:
    floor = math.floor(value)
    return floor if floor == value else (floor, floor + 1)


def _double_among_integers(constant: Constant, type_name: str) -> Cut | tuple[Cut, Cut]:
    """Compare as doubles: exact while the doubles around the constant are exact integers."""
    value = _double(constant)
    limit = 2 ** (_INTEGER_BITS[type_name] + 1)
    if math.isnan(value) or value >= limit:
        return limit
    if value <= -limit:
        return -limit
    if type_name == "BIGINT" and abs(value) >= _EXACT:
        raise NotFoldable
    return _rational(Decimal(value))


def _on_decimals(type_name: str, kinds: set[str], constants: Sequence[Constant]) -> Any:
    precision, scale = (int(part) for part in type_name[8:-1].split(","))
    if not kinds <= {"integer", "decimal"} or not _decimal_fits(
        precision - scale, constants, scale
    ):
        raise NotFoldable
    return lambda c: _rational(Decimal(c.value).scaleb(scale, _WIDE))


def _on_doubles(kinds: set[str]) -> Any:
    if kinds <= {"integer", "decimal", "double"}:
        return lambda c: float_key(_double(c))
    if kinds == {"string"}:
        return lambda c: float_key(float(_compute(f"CAST({_quote(c.value)} AS DOUBLE)")[1]))
    raise NotFoldable


def _double(constant: Constant) -> float:
    """Cast a numeric constant to DOUBLE as DuckDB does."""
    if constant.kind == "double":
        return float(constant.value)
    if constant.kind == "integer" and abs(constant.value) < 2**63:
        return float(constant.value)
    if constant.kind == "decimal" and len(constant.text) <= 16:
        return float(constant.text)
    return float(_compute(f"CAST({constant.text} AS DOUBLE)")[1])


def _on_floats(kinds: set[str]) -> Any:
    """Compare a FLOAT column as floats, or as doubles when a constant is a double."""
    if kinds <= {"integer", "decimal"}:
        return lambda c: float_key(float(_compute(f"CAST({c.text} AS FLOAT)")[1]))
    if kinds <= {"integer", "decimal", "double"}:
        return lambda c: float_key(_double(c))
    raise NotFoldable


_ISO_DATE = re.compile(r"([12]\d{3})-(\d\d)-(\d\d)")
_ISO_TIMESTAMP = re.compile(r"[12]\d{3}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{3}|\.\d{6})?")


@lru_cache(maxsize=65536)
def _timestamp_of_text(text: str) -> int:
    if _ISO_TIMESTAMP.fullmatch(text):
        try:
            delta = datetime.fromisoformat(text) - _EPOCH
        except ValueError as error:
            raise NotFoldable from error
        return (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds
    return int(_compute(f"CAST({_quote(text)} AS TIMESTAMP)")[1])


def _timestamp(constant: Constant) -> Cut:
    if constant.kind == "string":
        return _timestamp_of_text(constant.value)
    if constant.kind == "date":
        micros = constant.value * 86_400_000_000
        # Beyond this DuckDB's cast of a date to a timestamp is an error or infinity.
        if abs(micros) >= 2**62:
            raise NotFoldable
        return int(micros)
    return int(constant.value)


def _zoned_timestamp(constant: Constant) -> Cut:
    """The instant a text names; UTC if it names no zone."""
    return _zoned_timestamp_of_text(constant.value)


@lru_cache(maxsize=65536)
def _zoned_timestamp_of_text(text: str) -> int:
    if _ISO_TIMESTAMP.fullmatch(text):
        return _timestamp_of_text(text)
    return int(_compute(f"CAST(CAST({_quote(text)} AS TIMESTAMPTZ) AS TIMESTAMP)")[1])


@lru_cache(maxsize=65536)
def _date_of_text(text: str) -> int:
    if match := _ISO_DATE.fullmatch(text):
        try:
            return date(int(match[1]), int(match[2]), int(match[3])).toordinal() - 719163
        except ValueError as error:
            raise NotFoldable from error
    return int(_compute(f"CAST({_quote(text)} AS DATE)")[1])


def _date(constant: Constant) -> Cut:
    return _date_of_text(constant.value) if constant.kind == "string" else int(constant.value)
