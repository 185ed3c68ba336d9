"""Casts that no value survives: DuckDB binds `day = 5`, and fails at the first element.

DuckDB brings the two sides of `=` to one type, and also the branches of a UNION and the keys of a
join, whether it can cast the one to the other or not. Its plan of a query has all these casts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import duckdb

#: A value of each type, as a text that DuckDB casts to it.
_SAMPLES = {
    "BOOLEAN": "true",
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "BIGNUM"), "1"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), "1"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), "1"),
    **dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"), "2000-01-01"),
    **dict.fromkeys(("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "2000-01-01"),
    **dict.fromkeys(("TIME", "TIME_NS"), "00:00:00"),
    "TIME WITH TIME ZONE": "00:00:00+00",
    "INTERVAL": "1 second",
    "UUID": "00000000-0000-0000-0000-000000000000",
    "BLOB": "a",
    "BIT": "1",
}
_LISTS, _STRUCTS = ("LIST", "ARRAY"), ("STRUCT", "TUPLE")

#: A text, a quoted name, or a whole number with more digits than a HUGEINT has.
_BIGNUM = re.compile(r"""'[^']*'|"[^"]*"|(?P<digits>(?<![\w.])\d{39,}(?![\w.]))""")

#: Whether DuckDB casts values of the one type to the other, as far as it was asked.
_castable: dict[tuple[str, str], bool] = {}

#: A type as DuckDB's plans have it.
Type = dict[str, Any]


def check_casts(session: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Refuse a query that casts a type to another one to which DuckDB casts no value.

    Raises:
        duckdb.Error: as DuckDB raises it when it evaluates the query.
    """
    plan = _find_plan(session, sql)
    if plan is None:  # because of a BIGNUM constant, to which columns are cast
        session.execute(f"EXPLAIN {sql}")  # casts such constants to the columns' types
        plan = _find_plan(session, _hide_constants(sql))
    for source, target in _find_casts(plan):
        if not _has_values(session, source, target):
            cast = f"({_name(source)} -> {_name(target)})"
            raise duckdb.ConversionException(
                f"Conversion Error: Unimplemented type for cast {cast}"
            )


def _find_plan(session: duckdb.DuckDBPyConnection, sql: str) -> Any | None:
    """DuckDB's plan of a query; None if it has a constant for which DuckDB's JSON has no form."""
    row = session.execute(
        "SELECT json_serialize_plan(?, skip_null := true, skip_empty := true)", [sql]
    ).fetchone()
    assert row is not None
    try:
        return json.loads(row[0])
    except ValueError:
        return None


def _hide_constants(sql: str) -> str:
    """A query whose BIGNUM constants are expressions of that type which DuckDB does not fold."""
    return _BIGNUM.sub(lambda m: "(random()::VARCHAR::BIGNUM)" if m["digits"] else m[0], sql)


def _find_casts(plan: Any) -> Iterator[tuple[Type, Type]]:
    """Find what the casts of a plan cast to what; TRY_CAST gives NULL for what it cannot cast."""
    stack = [plan]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(reversed(node))
        elif isinstance(node, dict):
            if node.get("type") == "OPERATOR_CAST" and not node["function_data"].get("try_cast"):
                yield node["arguments"][0], node["return_type"]
            stack.extend(reversed(node.values()))


def _has_values(session: duckdb.DuckDBPyConnection, source: Type, target: Type) -> bool:
    """Whether some value that is not NULL can be cast; True where that is not known."""
    one, other = source["id"], target["id"]
    if one in _SAMPLES and other in _SAMPLES:
        if (one, other) not in _castable:
            _castable[one, other] = _is_castable(session, one, other)
        return _castable[one, other]
    if (one in _LISTS and other in _LISTS) or (one in _STRUCTS and other in _STRUCTS):
        parts, wanted = _parts(source), _parts(target)
        pairs = zip(parts, wanted, strict=False)
        return len(parts) != len(wanted) or all(_has_values(session, *pair) for pair in pairs)
    kinds = {_kind(one), _kind(other)}
    return "" in kinds or len(kinds) == 1


def _kind(id: str) -> str:
    """What a type is made of; empty where DuckDB's casts are not known here."""
    if id in _SAMPLES:
        return "scalar"
    return "list" if id in _LISTS else "struct" if id in _STRUCTS else ""


def _parts(type_: Type) -> list[Type]:
    """The type of a list's items, or of a struct's members, in the order of their names."""
    info = type_.get("type_info") or {}
    if "child_type" in info:
        return [info["child_type"]]
    members = sorted(info.get("child_types", ()), key=lambda m: str(m.get("first", "")).lower())
    return [member["second"] for member in members]


def _is_castable(session: duckdb.DuckDBPyConnection, source: str, target: str) -> bool:
    sample = f"CAST('{_SAMPLES[source]}' AS {source})"
    try:
        session.execute(f"SELECT CAST(x AS {target}) FROM (SELECT {sample} AS x)").fetchall()
    except duckdb.Error as error:
        return "Unimplemented type for cast" not in str(error)
    return True


def _name(type_: Type) -> str:
    info = type_.get("type_info") or {}
    if type_["id"] in _LISTS:
        return f"{_name(info['child_type'])}[{info.get('size', '')}]"
    if type_["id"] in _STRUCTS:
        members = info.get("child_types", ())
        named = (f"{m.get('first', '')} {_name(m['second'])}".strip() for m in members)
        return f"STRUCT({', '.join(named)})"
    if "width" in info:
        return f"{type_['id']}({info['width']},{info.get('scale', 0)})"
    return str(type_["id"])
