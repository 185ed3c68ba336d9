"""The joined slice: finds which rows of a query's slices join, by SteMs and not by DuckDB.

In every `materialize` mode, and however many pairs are stored, the tuples of a joined slice come in
the order of their constituents. So an answer is the same to the last digit however it was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.confined.turns import Turn
from millpond.engine.joins.join import join_slices
from millpond.engine.joins.join_stem import JoinSteM, StemPart, with_time
from millpond.engine.joins.keys import Numbers
from millpond.engine.joins.plan import JoinPlan, plan_join
from millpond.errors import MillpondError
from millpond.model.windows import Now, Period, Range, Rows, Window
from millpond.planner.bind.bound_query import BoundQuery
from millpond.state.join_state import JoinUse

#: What a pair takes while pairs are found and sorted, in bytes.
PAIR_BYTES = 128


def join_of(bound: BoundQuery, streams: Sequence[StreamDef]) -> JoinPlan | None:
    """The plan of a query's join, if SteMs serve it; `streams` are those of its leaves."""
    if bound.join is None or any(leaf.hidden for leaf in bound.streams):
        return None
    names = [stream.name for stream in streams]
    timed_by = [stream.timestamp_by for stream in streams]
    return plan_join(bound.join, bound.literals, names, timed_by)


def span_of(window: Window) -> int | None:
    """How long an element can be in a window: it leaves at most so many µs after its timestamp.

    None for a window that elements do not leave by time alone, or whose edge stands still.
    """
    match window:
        case Range(size, slide):
            return size + (slide or 0)
        case Now():
            return 1
        case Period(begin, _) if begin.instant is None:
            return max(1 - begin.at(0), 1)
    return None


def use_of(
    query_id: int, core_id: int, bound: BoundQuery, streams: Sequence[StreamDef]
) -> JoinUse | None:
    """How a query uses its join's core; None if its tuples cannot be stored.

    Which rows a ROWS window holds depends on later arrivals, and rejects have no Query SteM.
    """
    assert bound.join is not None
    leaves = bound.join.leaves
    windows = [bound.streams[leaf].window for leaf in leaves]
    if any(isinstance(window, Rows) for window in windows):
        return None
    if any(streams[leaf].is_pseudo for leaf in leaves):
        return None
    return JoinUse(query_id, core_id, leaves, tuple(span_of(window) for window in windows))


@dataclass(frozen=True, eq=False)
class SlicedRows:
    """Joined rows as places in the windows' slices."""

    slices: Sequence[pa.Table]
    places: Mapping[int, Numbers]
    _combined: dict[int, pa.Table] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.places[0])

    def take(
        self, leaf: int, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> pa.Table:
        table = self._combine(leaf).select(list(columns))
        return table.take(pa.array(self.places[leaf][start:stop]))

    def _combine(self, leaf: int) -> pa.Table:
        """The slice as one chunk, so that taking a row need not search for its chunk."""
        if leaf not in self._combined:
            self._combined[leaf] = self.slices[leaf].combine_chunks()
        return self._combined[leaf]


def join_window_slices(
    plan: JoinPlan, bound: BoundQuery, slices: Mapping[str, pa.Table], turn: Turn
) -> SlicedRows | None:
    """The rows of the windows' slices that join.

    None when the join is left to DuckDB: a factor cannot be evaluated over a whole slice (a query
    may guard it with another predicate).

    Raises:
        TooManyPairs: there are too many pairs for this turn.
    """
    assert bound.join is not None
    own = [slices[bound.streams[leaf].table] for leaf in bound.join.leaves]
    stems = [
        JoinSteM([StemPart(with_time(table, column))])
        for table, column in zip(own, plan.timed_by, strict=True)
    ]
    try:
        return SlicedRows(own, join_slices(plan, stems, turn.memory // PAIR_BYTES))
    except MillpondError:
        return None
