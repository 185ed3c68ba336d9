"""DuckDB's SQL for casting values, texts above all, to other types.

DuckDB's own cast of a text to a TIMESTAMP reads the zone behind an instant and ignores it:
'10:00:00+02:00' would become ten o'clock UTC and every window would be two hours out. An element's
timestamp is an instant of UTC, so here a text that names a zone means the instant in that zone.
"""

from __future__ import annotations

from millpond.model.schema import leaf_types, parts_of, zoned_type


def try_cast_text(text: str, type_: str) -> str:
    """Write SQL that casts the SQL of a text to a type; NULL where the text cannot be cast.

    A zone stands behind the day and begins with a sign or ends with a letter. Only such texts are
    read as zoned instants, which takes three times as long.

    >>> try_cast_text("x", "DATE")
    'TRY_CAST(x AS DATE)'
    """
    plain = f"TRY_CAST({text} AS {type_})"
    if type_ != "TIMESTAMP":
        return plain
    zoned = f"TRY_CAST(TRY_CAST({text} AS TIMESTAMPTZ) AS TIMESTAMP)"
    return f"CASE WHEN {_may_name_zone(text)} THEN {zoned} ELSE {plain} END"


def cast_value(value: str, type_: str) -> str:
    """Write SQL that casts the SQL of any value, a text or not, to a type.

    >>> cast_value("'2026-01-01 10:00:00+02'", "TIMESTAMP")
    "CAST(CAST('2026-01-01 10:00:00+02' AS TIMESTAMPTZ) AS TIMESTAMP)"
    """
    if type_ == "TIMESTAMP":
        value = f"CAST({value} AS TIMESTAMPTZ)"
    elif type_ == "JSON":
        return f"CAST(CAST({value} AS JSON) AS VARCHAR)"
    elif parts_of(type_) is not None and "TIMESTAMP" in leaf_types(type_):
        value = f"CAST({value} AS {zoned_type(type_)})"
    return f"CAST({value} AS {type_})"


def _may_name_zone(text: str) -> str:
    behind = f"({text})[11:]"
    return f"(contains({behind}, '+') OR contains({behind}, '-') OR ({text})[-1] >= 'A')"
