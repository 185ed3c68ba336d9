"""INSERT's VALUES: from the text of a row to its columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.cql import statements, to_duckdb
from millpond.engine.residual import Residual
from millpond.errors import MillpondError
from millpond.service.relations import quoted


def values_of(
    statement: statements.Insert,
    columns: Sequence[str],
    target: StreamDef | RelationDef,
    residual: Residual,
) -> pa.Table:
    """The rows of VALUES cast to the target's columns, by DuckDB; those not given are NULL.

    Every value is cast where it stands: DuckDB would first look for one type for all rows.
    """
    fields = [target.schema.find(name) for name in columns]
    types = [field.type for field in fields if field is not None]
    rows = ", ".join(
        "("
        + ", ".join(f"CAST({to_duckdb(v)} AS {t})" for v, t in zip(row, types, strict=True))
        + ")"
        for row in statement.rows
    )
    given = {name.lower(): f"v{i}" for i, name in enumerate(columns)}
    items = []
    for field in target.schema.fields:
        source = given.get(field.name.lower(), f"CAST(NULL AS {field.type})")
        items.append(f"{source} AS {quoted(field.name)}")
    names = ", ".join(f"v{i}" for i in range(len(columns)))
    sql = f"SELECT {', '.join(items)} FROM (VALUES {rows}) t({names})"
    try:
        table = residual.evaluate(sql, {})
    except MillpondError as error:
        raise MillpondError(
            "CQL-205",
            f'a value does not fit its column in "{target.name}"',
            detail=error.detail,
            hint="DESCRIBE shows the columns' types.",
            text=statement.text,
            span=statement.name_span,
        ) from error
    return table.cast(target.schema.to_arrow())
