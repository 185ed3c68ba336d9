"""The regions that new elements bring, ranked (promising tuples, figures 7 and 8).

A region of a selection or an aggregate is a value among the new elements. Of a join it is a value
in a zone: new elements of one stream are looked up in every zone of the other, and older elements
among the new ones. So each pair lies in one region of one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from millpond.engine.joins.keys import Axis, Keys, Numbers, code_column, mix_numbers
from millpond.engine.promising.look import Look
from millpond.engine.promising.promise import estimate_regions, merge_zones, prioritize
from millpond.engine.promising.regions import check_priorities
from millpond.engine.promising.value_index import Elements, ValueIndex, take_elements
from millpond.engine.promising.waiting import REGION, Waiting
from millpond.engine.scalars.residual_query import Residual
from millpond.model.time import BEGINNING
from millpond.model.windows import interval
from millpond.synopses.summaries.protocol import Estimates
from millpond.synopses.summaries.stream_summary import StreamSummary


def list_selection(
    residual: Residual,
    look: Look,
    index: ValueIndex,
    summaries: Mapping[int, StreamSummary],
    new: Elements,
    since: int,
    line: int,
) -> tuple[Waiting, Elements, Numbers]:
    """List a region for each value of some elements with since ≤ timestamp < line.

    Returns:
        The regions, an element that has the value of each, and for each element its region.
    """
    keys, codes, values, first, place = _distinct(index, new)
    counts = summaries[0].count_by_zone(codes)[-1:] * (keys > 0)
    matrices = [
        estimate_regions(summaries[0], e.estimate.kind, summaries[0].count_by_zone(codes),
                         codes)[-1:]
        for e in look.preference.estimates
    ]  # fmt: skip
    priority = prioritize(residual, look.preference, matrices, {0: values}, counts)
    check_priorities(priority, look.preference.order)
    made = np.zeros(len(keys), REGION)
    made["key"], made["since"], made["upto"] = keys, since, line
    made["priority"], made["results"] = priority[0], counts[0]
    return made, first, place


def list_join(
    residual: Residual,
    look: Look,
    indexes: Sequence[ValueIndex],
    summaries: Mapping[int, StreamSummary],
    new: Sequence[Elements],
    after: int,
    line: int,
) -> Waiting:
    """Regions of a join: new elements into each zone, and older elements into the new zone."""
    zoned, other = look.zoned, 1 - look.zoned
    summary, index = summaries[zoned], indexes[zoned]
    lows = [interval(leaf.window, after + 1)[0] for leaf in look.streams]
    low, their_low = (BEGINNING if found is None else found for found in (lows[zoned], lows[other]))
    parts = []
    # New elements of the other stream are looked up in every zone, also in the newest.
    keys, codes, values, *_ = _distinct(indexes[other], new[other])
    edges = np.unique(np.concatenate([[low, line], np.clip(summary.zones.edges, low, line)]))
    parts.append(
        _rank_join(
            residual, look, summaries, keys, codes, values, edges, (after + 1, line), indexes
        )
    )
    # Older elements of the other stream are looked up among the new elements of this one.
    keys, codes, values, *_ = _distinct(index, new[zoned])
    edges = np.array([after + 1, line], np.int64)
    if their_low <= after:
        parts.append(
            _rank_join(
                residual,
                look,
                summaries,
                keys,
                codes,
                values,
                edges,
                (their_low, after + 1),
                indexes,
            )
        )
    return np.concatenate(parts)


def _rank_join(
    residual: Residual,
    look: Look,
    summaries: Mapping[int, StreamSummary],
    keys: Keys,
    codes: Numbers,
    values: pa.ChunkedArray,
    edges: Numbers,
    span: tuple[int, int],
    indexes: Sequence[ValueIndex],
) -> Waiting:
    zoned, other = look.zoned, 1 - look.zoned
    summary, zones = summaries[zoned], summaries[zoned].zones
    whole = np.ones(len(keys), np.int64)
    lookups = indexes[other].count(keys, whole * span[0], whole * span[1])
    place = np.searchsorted(zones.edges, edges[:-1], side="right") - 1
    covered = (place >= 0) & (place < len(zones))
    place = np.clip(place, 0, max(len(zones) - 1, 0))
    every = summary.count_by_zone(codes)
    counts = np.where(covered[:, None], every[place], 0.0)
    matrices: list[Estimates] = []
    for estimate in look.preference.estimates:
        kind = estimate.estimate.kind
        if estimate.leaf == zoned:
            matrices.append(estimate_regions(summary, kind, every, codes)[place])
            continue
        theirs = summaries[estimate.leaf]
        first = interval(look.streams[other].window, span[1] - 1)[0]
        merged = merge_zones(theirs, BEGINNING if first is None else first, span[1] - 1)
        seen = merged.kind.count(merged.cells, codes)
        matrices.append(estimate_regions(merged, kind, seen, codes))
    priority = prioritize(
        residual, look.preference, matrices, dict.fromkeys((0, 1), values), counts
    )
    check_priorities(priority, look.preference.order)
    zone, value = np.nonzero(np.repeat(lookups[None, :] > 0, len(edges) - 1, axis=0))
    made = np.zeros(len(zone), REGION)
    made["key"], made["since"], made["upto"] = keys[value], edges[zone], edges[zone + 1]
    made["low"], made["high"] = span
    made["priority"] = priority[zone, value]
    made["results"] = (counts * lookups)[zone, value]
    there = indexes[zoned].count(made["key"], made["since"], made["upto"])
    return made[there > 0]


def _distinct(
    index: ValueIndex, elements: Elements
) -> tuple[Keys, Numbers, pa.ChunkedArray, Elements, Numbers]:
    """The distinct values of some elements.

    Returns:
        Their keys (0 of NULL), codes and values, an element of each, and for each element that is
        looked up the place of its value.
    """
    axis = index.axis
    assert axis is not None
    column = take_elements(index.views, elements, [index.column])[index.column]
    codes, keys = code_keys(column, axis)
    if not index.with_nulls:
        known = np.flatnonzero(keys > 0)
        elements = elements[0][known], elements[1][known]
        codes, keys, column = codes[known], keys[known], column.take(pa.array(known))
    found, first, place = np.unique(keys, return_index=True, return_inverse=True)
    chosen = elements[0][first], elements[1][first]
    values = column.take(pa.array(first))
    return found, np.ascontiguousarray(codes[first]), values, chosen, place.reshape(-1)


def code_keys(column: pa.ChunkedArray, axis: Axis) -> tuple[Numbers, Keys]:
    """The codes and the keys of a column's values; the key of NULL is 0."""
    coded = code_column(column, axis)
    keys = mix_numbers(np.ascontiguousarray(coded.numbers))
    if coded.nulls is not None:
        keys[coded.nulls] = 0
    return coded.numbers, keys
