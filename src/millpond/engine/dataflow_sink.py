"""What a dataflow gives: net changes in canonical order.

By instant; within an instant all `-` before all `+`; then by the rows' values, NULLs last. Changes
of equal rows at one instant cancel each other. So the sequence of changes is a function of history
alone, whatever operators computed it and however the feed was cut.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.operators.delta import Bools, Delta, Ints
from millpond.operators.keys import Keys


def net_changes(delta: Delta, schema: pa.Schema, to_stream: str | None) -> pa.Table:
    """A delta without expirations as a table of changes.

    Args:
        delta: The changes of R.
        schema: `__at`, `__sign` and the answer's columns.
        to_stream: 'istream' keeps what came, 'dstream' what left, both with the sign +.
    """
    rows = normal(delta.rows)
    at, weight = delta.at, delta.weight
    if len(at):
        keys = Keys([pa.int64(), *rows.schema.types])
        numbers = keys.number([pa.array(at), *rows.columns])
        sums = np.zeros(len(keys), np.int64)
        np.add.at(sums, numbers, weight)
        first = np.full(len(keys), len(at), np.int64)
        np.minimum.at(first, numbers, np.arange(len(at)))
        chosen = _chosen(sums, to_stream)
        places = np.repeat(first[chosen], np.abs(sums[chosen]))
        signs = np.repeat(np.sign(sums[chosen]), np.abs(sums[chosen]))
        if to_stream is not None:
            signs = np.abs(signs)
        rows, at, weight = rows.take(pa.array(places)), at[places], signs
    arrays = [pa.array(at), pa.array(weight.astype(np.int8)), *rows.columns]
    table = pa.Table.from_arrays(arrays, schema=schema)
    return table.take(_order(table)) if len(table) > 1 else table


def _chosen(sums: Ints, to_stream: str | None) -> Bools:
    match to_stream:
        case None:
            return sums != 0
        case "dstream":
            return sums < 0
    return sums > 0


def normal(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with one zero of both: what is equal looks equal."""
    columns = [
        pc.add(c, pa.scalar(0, c.type)) if pa.types.is_floating(c.type) else c for c in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _order(table: pa.Table) -> pa.Array:
    """The places of the rows in canonical order."""
    keyed = {
        f"k{i}": pa.array([repr(v) for v in column.to_pylist()])
        if pa.types.is_nested(column.type)
        else column
        for i, column in enumerate(table.columns)
    }
    names = [(name, "ascending") for name in keyed]
    # NULLs are put last unless something else is asked for.
    return pc.sort_indices(pa.table(keyed), sort_keys=names)
