"""The joined slice: which rows of a query's slices join, found by SteMs and not by DuckDB.

Whatever mode and however much is stored, the tuples of a joined slice come in the order of their
constituents, so an answer is the same to the last digit however it was found.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.engine.data_stem import DataSteM, Part, with_time
from millpond.engine.join import TooManyPairs, join_slices
from millpond.engine.join_keys import Numbers
from millpond.engine.join_plan import JoinPlan, plan_join
from millpond.errors import MillpondError
from millpond.planner.bound import BoundQuery

#: Pairs beyond which joining is left to DuckDB, which need not hold them all at once.
MOST_PAIRS = 16_000_000


def join_of(bound: BoundQuery, streams: Sequence[StreamDef]) -> JoinPlan | None:
    """The join a query is, if SteMs serve it; `streams` are those of its leaves."""
    if bound.join is None:
        return None
    names = [stream.name for stream in streams]
    timed_by = [stream.timestamp_by for stream in streams]
    return plan_join(bound.join, bound.literals, names, timed_by)


def joined_slices(
    plan: JoinPlan, bound: BoundQuery, slices: dict[str, pa.Table]
) -> dict[str, pa.Table] | None:
    """The slices with those of the joined leaves row by row side by side.

    None when the join is better left to DuckDB: there are too many pairs, or a factor cannot be
    evaluated over a whole slice (a query may guard it with another predicate).
    """
    assert bound.join is not None
    tables = [bound.streams[leaf].table for leaf in bound.join.leaves]
    stems = [
        DataSteM([Part(with_time(slices[table], column))])
        for table, column in zip(tables, plan.timed_by, strict=True)
    ]
    try:
        places = join_slices(plan, stems, MOST_PAIRS)
    except (TooManyPairs, MillpondError):
        return None
    return {
        **slices,
        **{table: take(slices[table], places[leaf]) for leaf, table in enumerate(tables)},
    }


def take(table: pa.Table, places: Numbers) -> pa.Table:
    """The rows at some places, again and again where they repeat."""
    return table.combine_chunks().take(pa.array(places))
