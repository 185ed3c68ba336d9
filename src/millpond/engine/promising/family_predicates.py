"""Matches elements with the predicates of many queries at once (section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import snapshot_queries
from millpond.engine.matching.results_structure import MatchReader
from millpond.engine.predicates.factors import Factors
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.errors import MillpondError
from millpond.model.schema import Schema

Flags = npt.NDArray[np.bool_]


class FamilyPredicates:
    """The predicates of a family's queries over one stream, as one Query SteM.

    Attributes:
        failures: By query, why its predicate could not be evaluated; shared with the family.
    """

    def __init__(
        self, every: Sequence[Factors | None], schema: Schema, failures: dict[int, MillpondError]
    ) -> None:
        given = [(number, factors) for number, factors in enumerate(every) if factors is not None]
        self._snapshot = snapshot_queries(given, schema)
        self._everything: Flags = np.array([factors is None for factors in every])
        self.failures = failures

    def match(self, table: pa.Table) -> Flags:
        """Match elements with all queries: bool[queries, elements].

        A query whose predicate cannot be evaluated matches nothing, and is put into `failures`.
        """
        out = np.repeat(self._everything[:, None], table.num_rows, axis=1)
        if self._everything.all() or not table.num_rows:
            return out
        found = match(table, self._snapshot, ScalarEvaluator.of_this_thread())
        for number, reason in found.failed.items():
            self.failures[number] = MillpondError(
                "POND-404",
                "the query's predicate could not be evaluated",
                detail=reason,
                hint="Guard the expression, for example with CASE, TRY_CAST or NULLIF.",
            )
        reader = MatchReader(found.to_table())
        for number in reader.slots.tolist():
            out[number, reader.rows(number, 0, table.num_rows)] = True
        return out
