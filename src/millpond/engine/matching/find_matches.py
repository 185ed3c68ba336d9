"""The rows of a table that match one predicate: where no matches are stored."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import snapshot_queries
from millpond.engine.matching.results_structure import MatchReader
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.predicates.factors import Factors
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.engine.scalars.user_functions import function_failed_error, is_fault
from millpond.errors import MillpondError
from millpond.model.schema import Schema


def find_matches(table: pa.Table, factors: Factors, schema: Schema) -> np.ndarray:
    """The rows of a table that match a predicate, ascending.

    Raises:
        MillpondError: POND-404, the predicate cannot be evaluated; what a function that failed
            gives.
    """
    found = match(table, _stem_of(factors, schema), ScalarEvaluator.of_this_thread())
    if 0 in found.failed and is_fault(found.failed[0]):
        raise function_failed_error(found.failed[0])
    if 0 in found.failed:
        raise MillpondError(
            "POND-404",
            "the query's predicate could not be evaluated",
            detail=found.failed[0],
            hint="Guard the expression, for example with CASE, TRY_CAST or NULLIF.",
        )
    rows = MatchReader(found.to_table()).rows(0, 0, table.num_rows)
    return np.asarray(rows, np.int64)


@lru_cache(maxsize=256)
def _stem_of(factors: Factors, schema: Schema) -> StemSnapshot:
    """The one predicate as a Query SteM; making it takes longer than matching a few elements."""
    return snapshot_queries([(0, factors)], schema)
