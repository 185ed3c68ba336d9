"""Evaluates a SELECT in a confined process, with the user-defined functions it calls."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pyarrow as pa

from millpond.confined.processes import ANSWER, SECONDS, Request, evaluate_confined, read_table
from millpond.engine.scalars.user_functions import functions
from millpond.model.function_names import names_inside


def select_confined(
    sql: str,
    tables: Mapping[str, pa.Table | pa.RecordBatch],
    seconds: float = SECONDS,
    rows: int = sys.maxsize,
    memory: int = ANSWER,
) -> pa.Table:
    """Compute the rows of `sql` over the named tables; not many more than `rows` of them.

    Args:
        sql: One SELECT.
        tables: What it reads.
        seconds: How long it may take.
        rows: How many rows its answer may have.
        memory: How many bytes its answer may have, 128 MiB at most.

    Raises:
        duckdb.Error: it failed, or was ended because it took too long or too much.
        MillpondError: POND-405, the answer is larger than it may be.
    """
    found = [functions.find(name) for name in sorted(names_inside(sql))]
    definitions = tuple(function.definition for function in found if function is not None)
    request = Request(
        sql, definitions=definitions, seconds=seconds, rows=rows, memory=min(memory, ANSWER)
    )
    reply = evaluate_confined(sql, tables, request)
    functions.report(reply.usage)
    assert reply.rows is not None
    return read_table(reply.rows)
