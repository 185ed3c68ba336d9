"""What a join in parts found, finished piece by piece: pairs are held only until they are rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from millpond.engine.scalars.residual_query import Limits, too_many_rows_error
from millpond.errors import MillpondError
from millpond.service.answers.partial import join
from millpond.service.answers.partial.join import Pairs
from millpond.service.answers.partial.looking import LookedLeaf
from millpond.service.queries.join_use import SlicedRows


class JoinedPieces:
    """Makes rows of pairs, as many pairs at once as a piece has (`join.PIECE`).

    Args:
        finish: Evaluates the query over joined rows; a join with a preference is row by row.
        leaves: The query's leaves.
        limits: Those of the whole answer.
    """

    def __init__(
        self,
        finish: Callable[[SlicedRows], pa.Table],
        leaves: Sequence[LookedLeaf],
        limits: Limits,
    ) -> None:
        self._finish = finish
        self._leaves = leaves
        self._limits = limits
        self._until = time.perf_counter() + limits.seconds
        self._held: list[Pairs] = []
        self._rows: list[pa.Table] = []

    def receive(self, pairs: Pairs) -> None:
        """Take the next pairs. Raises POND-404 and POND-405 as the whole answer does."""
        if self._held and sum(map(len, self._held)) + len(pairs) > join.PIECE:
            self._finish_held()
        self._held.append(pairs)

    def read(self) -> pa.Table:
        """The rows of all pairs, in the order found. Raises POND-404 and POND-405."""
        if self._held or not self._rows:
            self._finish_held()
        return pa.concat_tables(self._rows, promote_options="permissive")

    def _finish_held(self) -> None:
        self._rows.append(self._finish(_join_rows(self._held, self._leaves)))
        self._held.clear()
        if sum(table.num_rows for table in self._rows) > self._limits.rows:
            raise too_many_rows_error(self._limits)
        if len(self._rows) > 1 and time.perf_counter() > self._until:
            raise MillpondError(
                "POND-405",
                f"the answer took longer than {self._limits.seconds:g} s",
                hint="Use a smaller budget, or raise max_seconds.",
            )


def _join_rows(found: Sequence[Pairs], leaves: Sequence[LookedLeaf]) -> SlicedRows:
    """The pairs of some steps as joined rows."""
    tables: list[pa.Table] = []
    places: dict[int, np.ndarray] = {}
    for leaf in (0, 1):
        parts = [pairs.tables[leaf] for pairs in found]
        if not parts:
            names = list(leaves[leaf].leaf.columns)
            parts = [leaves[leaf].stream.schema.to_arrow().empty_table().select(names)]
        tables.append(pa.concat_tables(parts))
        offsets = np.cumsum([0, *(part.num_rows for part in parts)])
        own = [pairs.places[leaf] + offsets[n] for n, pairs in enumerate(found)]
        places[leaf] = np.concatenate(own) if own else np.empty(0, np.int64)
    return SlicedRows(tables, places)
