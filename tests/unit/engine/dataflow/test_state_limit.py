"""Operators are measured where they may have grown, and where they keep rows."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import plan_query

from millpond.engine.dataflow import state_limit
from millpond.engine.dataflow.dataflow import Dataflow

SECOND = 1_000_000
ROWS = 10_000


def batch(first: int) -> pa.Table:
    """Elements of one second, each of a group of its own."""
    numbers = range(first, first + ROWS)
    stamps = [first // ROWS * SECOND + n for n in range(ROWS)]
    return pa.table({"__ts": stamps, "__seq": numbers, "k": numbers})


def test_who_keeps_no_rows_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: Counter[str] = Counter()
    measure = state_limit.measure_state

    def note(operator):  # type: ignore[no-untyped-def]
        measured[type(operator).__name__] += 1
        return measure(operator)

    monkeypatch.setattr(state_limit, "measure_state", note)
    pond = OraclePond()
    pond.execute("CREATE STREAM s (at TIMESTAMP, k BIGINT) TIMESTAMP BY at DELAY 0 SECONDS")
    texts = [
        f"SELECT k, COUNT(*) AS n FROM s [RANGE 2 SECONDS] GROUP BY k HAVING n > {i}"
        for i in range(3)
    ]
    flow = Dataflow(*(plan_query(pond.world, text) for text in texts))
    sizes = []
    for step in range(6):
        rows = {"s": batch(step * ROWS)} if step < 3 else {}
        flow.advance(rows, step * SECOND + SECOND // 2)
        sizes.append(flow.size.memory)
        if not step:
            assert len(measured) > 2
            measured.clear()
    assert measured.keys() == {"GroupingRows", "KeepingElements"}
    assert sizes[0] < sizes[1]
    # The last rows have left: who kept them is measured once more.
    assert sizes[4] < sizes[3] < sizes[2]
