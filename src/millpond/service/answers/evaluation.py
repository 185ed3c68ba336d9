"""Evaluates a query over its slices: over rows that SteMs join, over lumps, or as it is written.

A join is laid out pair by pair where there are few pairs: that is what stored pairs, SteMs and
DuckDB's own joins do. Of a key with many partners on both sides there are more pairs than anybody
can look at. Then the query is evaluated over lumps (`planner/lumped`), if it only counts, adds up
and takes extremes. To group rows first costs as much as to read them a few times, so few pairs are
not found that way; how many there are is known

- where SteMs join, as soon as they have counted more than a quick evaluation may hold and a few for
  each row, or, where the answer over lumps may differ in the last digit, than the query may hold;
- where DuckDB joins (relations, outer joins), when it takes longer than a join without a hot key.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import pyarrow as pa

from millpond.confined.turns import NeedsMoreError, Turn
from millpond.engine.joins.join import TooManyPairs
from millpond.engine.joins.projection import JoinedRows, take_joined
from millpond.engine.scalars.residual_query import (
    Limits,
    OwnFunctions,
    Residual,
    too_much_memory_error,
)
from millpond.errors import MillpondError
from millpond.planner.lumped.lumped_query import LumpedQuery
from millpond.service.queries.join_use import join_window_slices
from millpond.service.queries.prepared import PreparedQuery

#: So many pairs DuckDB finds in about a second: fewer are found one by one, whatever the keys.
_FEW_PAIRS = 100_000_000
#: Where there are so many pairs for each row, it costs less to group the rows.
_PARTNERS = 2
#: How long DuckDB may join more rows than that before a hot key is assumed: seconds, and seconds a
#: row. A join in which each row has few partners takes half of it.
_PATIENCE, _PATIENCE_A_ROW = 0.2, 0.3e-6


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One evaluation of a query over its slices, in a turn.

    Attributes:
        residual: Evaluates SQL.
        query: The query.
        slices: The rows of its leaves, by the names of their tables.
        limits: What it may use.
        own: Functions it alone can call.
        turn: The turn.
    """

    residual: Residual
    query: PreparedQuery
    slices: Mapping[str, pa.Table]
    limits: Limits
    own: OwnFunctions | None
    turn: Turn

    def evaluate(self, stored: JoinedRows | None) -> pa.Table:
        """Compute the answer, with DuckDB's names of columns where DuckDB gives it.

        Args:
            stored: The joined rows from stored pairs, if they are known.

        Raises:
            MillpondError: POND-404, 405 or 411.
            NeedsMoreError: it needs more than its turn gives.
        """
        query, bound = self.query, self.query.bound
        joined, has_many_pairs = stored, False
        if query.join is not None and joined is None:
            try:
                joined = join_window_slices(query.join, bound, self.slices, self.turn)
            except TooManyPairs as found:
                if not self.turn.has_most:
                    return self._evaluate_early(found.pairs)
                has_many_pairs = True
        if joined is not None and query.projected is not None:
            return query.projected.project(joined, self.limits)
        if joined is not None:
            tables = self._take(joined)
            if tables is not None:
                return self._run(bound.joined_sql, {**self.slices, **tables})
            if stored is not None:
                raise too_much_memory_error()
            has_many_pairs = True
        return self._evaluate_slices(has_many_pairs)

    def _take(self, joined: JoinedRows) -> dict[str, pa.Table] | None:
        """Lay out joined rows; None if that takes too much memory."""
        bound = self.query.bound
        assert bound.join is not None
        taken: dict[str, pa.Table] = {}
        for number, at in enumerate(bound.join.leaves):
            leaf = bound.streams[at]
            rows = take_joined(joined, number, leaf.columns, self.turn)
            if rows is None:
                return None
            taken[leaf.table] = rows
        return taken

    def _evaluate_early(self, pairs: int) -> pa.Table:
        """Evaluate over lumps what has too many pairs for this turn, but perhaps not for the next.

        Only joins by equality: lumps of a band have as many pairs of neighbours as rows have, if
        few rows have the same value. And only where there are so many more pairs than rows, as far
        as pairs were counted, that to group the rows costs less.
        """
        plan = self.query.join
        assert plan is not None
        rows = sum(table.num_rows for table in self.slices.values())
        by_key = any(link.op == "=" for link in plan.links)
        lumped = self._lumped() if by_key and pairs > _PARTNERS * rows else None
        if lumped is None or not lumped.is_exact:
            raise NeedsMoreError
        try:
            return self._run(lumped.sql, self.slices)
        except MillpondError:
            raise NeedsMoreError from None

    def _evaluate_slices(self, has_many_pairs: bool) -> pa.Table:
        """Evaluate over the slices, of which nobody knows which rows join."""
        plain = self.query.bound.residual_sql
        rows = [table.num_rows for table in self.slices.values()]
        if not has_many_pairs and prod(rows) < _FEW_PAIRS:
            return self._run(plain, self.slices)
        lumped = self._lumped()
        if lumped is None:
            return self._run(plain, self.slices)
        begun = time.monotonic()
        patience = _PATIENCE + _PATIENCE_A_ROW * sum(rows)
        left = self.limits.seconds - self.turn.spent
        if not has_many_pairs and patience < left / 2:
            try:
                return self._run(plain, self.slices, seconds=patience)
            except MillpondError as error:
                if error.code != "POND-405" or time.monotonic() - begun < patience:
                    raise
        elif not has_many_pairs:
            return self._run(plain, self.slices)
        left -= time.monotonic() - begun
        begun = time.monotonic()
        try:
            return self._run(lumped.sql, self.slices, seconds=left)
        except MillpondError as error:
            # It may compute for all rows of a source what is guarded by what other sources have.
            used = time.monotonic() - begun
            if error.code == "POND-405" and used > left / 2:
                raise
            return self._run(plain, self.slices, seconds=left - used)

    def _lumped(self) -> LumpedQuery | None:
        """The query over lumps; None if it has none."""
        if self.own or len(self.slices) < 2 or self.query.projected is not None:
            return None
        return self.query.over_lumps({name: t.schema for name, t in self.slices.items()})

    def _run(
        self, sql: str, tables: Mapping[str, pa.Table], seconds: float | None = None
    ) -> pa.Table:
        """Run SQL over tables; within so many seconds from now, if that is said."""
        limits = self.limits
        if seconds is not None:
            limits = replace(limits, seconds=seconds + self.turn.spent)
        answer = self.residual.evaluate(sql, tables, limits, self.own, self.turn)
        return answer.rename_columns(list(self.query.bound.output.names))
