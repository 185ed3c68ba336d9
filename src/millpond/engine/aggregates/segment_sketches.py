"""Sketches of a segment's matches, over all of its rows or over some.

What a sketch keeps of a value is computed by DuckDB, as it is where a query's rows are aggregated
without sketches. So the two give the same values to the last bit.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.cql.print.approximations import write_kept_value
from millpond.engine.aggregates.segment_totals import AggregatedSegment
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.synopses.sketches import SKETCHES, Sketch

_VALUE = "v"


def compute_sketch(
    segment: AggregatedSegment, column: str, function: str, lo: int, hi: int
) -> Sketch:
    """Compute the sketch of a column's values in the matches in rows [lo, hi).

    Args:
        segment: The segment.
        column: The column.
        function: The function the sketch serves.
        lo: The first row.
        hi: The row behind the last.
    """
    rows = segment.matching(lo, hi) if lo < hi else None
    values = segment.values(column).slice(lo, max(hi - lo, 0))
    if rows is not None:
        values = values.take(pa.array(rows - lo))
    if not len(values):
        return SKETCHES[function].create(np.zeros(0, np.int64))
    table = pa.table({_VALUE: values})
    evaluator = ScalarEvaluator.of_this_thread()
    kept = evaluator.values(table, write_kept_value(function, _VALUE)).drop_null()
    return SKETCHES[function].create(kept.to_numpy())
