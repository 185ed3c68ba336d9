"""What a relation demands of a change: NOT NULL, and one row a key at every instant."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.catalog.objects import RelationDef
from millpond.engine.scalars.residual_query import Residual
from millpond.errors import MillpondError
from millpond.model.duckdb_words import quote_name
from millpond.model.time import format_instant


def check_keys(
    residual: Residual, relation: RelationDef, held: pa.Table, added: pa.Table, ended: pa.Table
) -> None:
    """Refuse a change of a relation that its columns or its primary key do not allow.

    Args:
        residual: Evaluates SQL.
        relation: The relation.
        held: The rows before the change, with `__rid`, `__from` and `__to`.
        added: The rows that come, likewise.
        ended: The rows that end: `__rid` and `__to`.

    Raises:
        MillpondError: POND-408, two rows of one key would hold at one instant, or a key is NULL;
            CQL-205, a NULL in a column that is NOT NULL.
    """
    for field in relation.schema.fields:
        if field.required and added.num_rows and added[field.name].null_count:
            raise MillpondError(
                "CQL-205",
                f'a NULL in column "{field.name}" of relation "{relation.name}"',
                detail=f"The column is {field.declared}. Nothing was changed.",
                hint="Give every row a value.",
            )
    if not relation.primary_key or not added.num_rows:
        return
    after = _apply_change(held, added, ended)
    keys = [quote_name(k) for k in relation.primary_key]
    nulls = " OR ".join(f"{k} IS NULL" for k in keys)
    found = residual.evaluate(
        f"SELECT {', '.join(keys)} FROM added WHERE {nulls} LIMIT 1", {"added": added}
    )
    if found.num_rows:
        raise MillpondError(
            "POND-408",
            f'a row of relation "{relation.name}" has no primary key',
            detail=f"{', '.join(relation.primary_key)} may not be NULL.",
            hint="Give every row a key.",
        )
    same = " AND ".join(f"a.{k} = b.{k}" for k in keys)
    clash = residual.evaluate(
        f"SELECT {', '.join('a.' + k for k in keys)}, greatest(a.__from, b.__from) AS __at"
        f" FROM added a JOIN kept b ON {same} AND a.__rid <> b.__rid"
        " AND a.__from < b.__to AND b.__from < a.__to LIMIT 1",
        {"added": added, "kept": after},
    )
    if clash.num_rows:
        row = clash.to_pylist()[0]
        at = row.pop("__at")
        shown = ", ".join(f"{k} = {v!r}" for k, v in row.items())
        raise MillpondError(
            "POND-408",
            f'relation "{relation.name}" already has a row with the key {shown}',
            detail=f"Both rows would hold at {format_instant(at)}. Nothing was changed.",
            hint="UPDATE the row, or DELETE it first.",
        )


def _apply_change(kept: pa.Table, added: pa.Table, ended: pa.Table) -> pa.Table:
    """All rows after a change."""
    ends = kept["__to"].to_numpy().copy()
    if ended.num_rows:
        rids = kept["__rid"].to_numpy()
        hit = np.isin(rids, ended["__rid"].to_numpy())
        ends[hit] = np.minimum(ends[hit], ended["__to"].to_numpy()[0])
    column = kept.schema.get_field_index("__to")
    return pa.concat_tables([kept.set_column(column, "__to", pa.array(ends)), added])
