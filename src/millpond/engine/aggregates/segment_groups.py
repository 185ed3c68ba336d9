"""Totals by group of a segment's matches, and the values of aggregates from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from millpond.engine.aggregates.segment_totals import AggregatedSegment
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.planner.aggregates import AVG, COUNT, MIN, SUM, ColumnAggregate, GroupedAggregates
from millpond.synopses.group_totals import Grouped, GroupTotals, join_parts
from millpond.synopses.running_totals import round_to_doubles


def compute_groups(segment: AggregatedSegment, grouped: Grouped, lo: int, hi: int) -> GroupTotals:
    """Compute the totals by group of the matches in rows [lo, hi)."""
    return compute_groups_of([read_matches(segment, grouped, lo, hi)], grouped)


def read_matches(segment: AggregatedSegment, grouped: Grouped, lo: int, hi: int) -> pa.Table:
    """Read what totals by group need of the matches in rows [lo, hi): columns k0, …, v0, …."""
    hi = max(lo, hi)
    rows = segment.matching(lo, hi) if lo < hi else None
    names = [f"k{i}" for i in range(len(grouped.keys))]
    names += [f"v{i}" for i in range(len(grouped.columns))]
    columns = (*grouped.keys, *(name for name, _ in grouped.columns))
    table = pa.table([segment.values(column).slice(lo, hi - lo) for column in columns], names)
    return table if rows is None else table.take(pa.array(rows - lo))


def compute_groups_of(tables: Sequence[pa.Table], grouped: Grouped) -> GroupTotals:
    """Compute the totals by group of the rows in tables of `read_matches`."""
    return GroupTotals(_ask(pa.concat_tables(tables), grouped.write_totals_sql()))


def merge_groups(grouped: Grouped, parts: Iterable[GroupTotals]) -> GroupTotals:
    """Merge the totals of parts of a bag; there is at least one."""
    found = list(parts)
    if len(found) == 1:
        return found[0]
    return GroupTotals(_ask(join_parts(found), grouped.write_merge_sql()))


def finish_groups(asked: GroupedAggregates, totals: GroupTotals) -> list[pa.ChunkedArray]:
    """Return the query's columns; sums of whole numbers have 128 bits."""
    keys, columns = asked.grouped.keys, [name for name, _ in asked.grouped.columns]
    table = totals.table
    return [
        table[f"k{keys.index(item)}"]
        if isinstance(item, str)
        else _finish(item, table, columns.index(item.column) if item.column else None)
        for item in asked.items
    ]


def _finish(call: ColumnAggregate, table: pa.Table, place: int | None) -> pa.ChunkedArray:
    if place is None:
        return table["n"]
    if call.function == COUNT:
        return table[f"c{place}"]
    if call.function == SUM:
        return table[f"s{place}"]
    if call.function == AVG:
        return pa.chunked_array([_average(table[f"s{place}"], table[f"c{place}"])])
    return table[f"{'l' if call.function == MIN else 'h'}{place}"]


def _average(sums: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.Array:
    """Divide sums by counts, as DuckDB does."""
    whole = pa.concat_arrays(sums.chunks) if sums.num_chunks else pa.array([], sums.type)
    values = counts.to_numpy()
    if not len(whole):
        return pa.array([], pa.float64())
    words = np.frombuffer(whole.buffers()[1], np.int64).reshape(-1, 2)
    rounded = round_to_doubles(words[whole.offset : whole.offset + len(whole)])
    if sums.type.scale:
        rounded = rounded / 10.0**sums.type.scale
    empty = values == 0
    return pa.array(rounded / np.where(empty, 1, values), mask=empty)


def _ask(table: pa.Table, sql: str) -> pa.Table:
    return ScalarEvaluator.of_this_thread().select_from(table, sql)
