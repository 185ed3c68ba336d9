"""Evaluates a SELECT in a confined process, with the user-defined functions it calls."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager

import pyarrow as pa

from millpond.confined.processes import ANSWER, SECONDS, Request, evaluate_confined, read_table
from millpond.engine.scalars.deadline import Interrupt, deadlines
from millpond.engine.scalars.user_functions import functions
from millpond.engine.scalars.work import current_work
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
    work = current_work()

    def watch(interrupt: Interrupt) -> AbstractContextManager[None]:
        # `select_confined` watches its own time; the request's time may be over before.
        return deadlines.within(math.inf, interrupt, work)

    reply = evaluate_confined(sql, tables, request, watch if work is not None else None)
    functions.report(reply.usage)
    assert reply.rows is not None
    return read_table(reply.rows)
