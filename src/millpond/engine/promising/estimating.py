"""Aggregates of the elements that were looked at, step after step (promising tuples, section 4.3).

Between two steps an aggregate keeps a row a pane (`panes.py`): how many elements there are, how
many were looked at, and the partial values of those that match. New partial values are added to
it, and nothing is ever taken away: a pane that left the window goes as a whole. So NaN and infinite
values leave no trace, and an estimate of everything is the exact aggregate.

INV-ESTIMATE-1: an estimate is a function of the elements in the window at the end of its step, and
of which of them were looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engine.joins.keys import Numbers
from millpond.engine.promising.look import PANE, QUERY, STEP, Look
from millpond.engine.promising.panes import find_panes
from millpond.engine.promising.probing import Found
from millpond.engine.promising.scaling import scale
from millpond.engine.scalars.residual_query import Limits, Residual
from millpond.model.time import BEGINNING
from millpond.model.windows import interval
from millpond.synopses.summaries.protocol import Estimates

#: Columns of a pane: its elements, those of them that were looked at, and the matches of these.
TOTAL, SEEN, MATCHED = "__total", "__seen", "__matched"
#: The sum of the ranking column over the elements that were not looked at, and of how many elements
#: it is known: of fewer than there are in panes that an earlier version kept.
REST, VALUED = "__rest", "__valued"
#: Rows of an answer; more than there are.
_MANY = 1 << 62


@dataclass(frozen=True, eq=False)
class LookedStep:
    """One step of a followed part.

    Attributes:
        at: The step's last instant.
        found: What was looked at; None if nothing was.
        listed: The timestamps of the elements that regions were made of.
        worth: Their values, where the aggregate has a SUM of them.
    """

    at: int
    found: Found | None
    listed: Numbers
    worth: Estimates


@dataclass(frozen=True, eq=False)
class Estimated:
    """The estimates of one followed aggregate in one job.

    Attributes:
        answers: A row a step: the aggregates as they are shown.
        at: The steps' last instants.
        priority: The priority of the region that was looked at last in each step; NaN if none was.
        share: Which share of the window's elements has been looked at.
        panes: What is kept.
    """

    answers: pa.Table
    at: Numbers
    priority: pa.Array
    share: np.ndarray
    panes: pa.Table


def estimate_steps(
    residual: Residual,
    looks: Sequence[Look],
    kept: Sequence[pa.Table],
    steps: Sequence[Sequence[LookedStep]],
) -> list[Estimated]:
    """Compute the estimates of aggregates with equal SQL and columns, all of them at once.

    Args:
        residual: Evaluates the SQL.
        looks: The aggregates; equal in `estimate` and in the leaf's columns.
        kept: What each keeps of its panes; without columns before its first step.
        steps: The steps of each, in the order of time.

    Raises:
        MillpondError: POND-404 or 405, an aggregate cannot be computed.
    """
    sql, leaf = looks[0].estimate, looks[0].streams[0]
    assert sql is not None
    rows, numbers = [], []
    for query, (look, own) in enumerate(zip(looks, steps, strict=True)):
        for step in own:
            if step.found is not None:
                panes = _panes_of(look, step.found.stamps)
                rows.append(_mark(step.found.tables[0], query, panes, step.at))
                seen = _count(look, query, step.at, step.found.looked, -step.found.worth)
                numbers.append(seen.rename_columns({"count": SEEN}))
            total = _count(look, query, step.at, step.listed, step.worth)
            valued = total["count"] if look.known else pa.nulls(len(total), pa.int64())
            numbers.append(total.rename_columns({"count": TOTAL}).append_column(VALUED, valued))
    empty = leaf.schema.to_arrow().empty_table().select(list(leaf.columns))
    rows.append(_mark(empty, 0, np.empty(0, np.int64), 0))
    new = residual.evaluate(sql.partial, {leaf.table: pa.concat_tables(rows)}, Limits(rows=_MANY))
    before = [
        table.append_column(QUERY, pa.array(np.full(table.num_rows, query, np.int64)))
        .append_column(STEP, pa.array(np.full(table.num_rows, BEGINNING, np.int64)))
        for query, table in enumerate(kept)
        if table.num_rows
    ]  # fmt: skip
    parts = pa.concat_tables([new, *numbers, *before], promote_options="default")
    made = residual.evaluate(
        sql.answer, {"parts": parts, "steps": _list_steps(looks, steps)}, Limits(rows=_MANY)
    )
    last = [own[-1].at for own in steps]
    lows = [_low_of(look, at) for look, at in zip(looks, last, strict=True)]
    alive = parts[PANE].to_numpy() >= np.array(lows)[parts[QUERY].to_numpy()]
    merged = residual.evaluate(
        sql.merge, {"parts": parts.filter(pa.array(alive))}, Limits(rows=_MANY)
    )
    owners = merged[QUERY].to_numpy()
    out, begin = [], 0
    for query, (look, own) in enumerate(zip(looks, steps, strict=True)):
        answers = made.slice(begin, len(own))
        begin += len(own)
        mine = merged.filter(pa.array(owners == query)).drop_columns([QUERY])
        out.append(_finish(look, own, answers, mine))
    return out


def _finish(
    look: Look, steps: Sequence[LookedStep], answers: pa.Table, panes: pa.Table
) -> Estimated:
    seen, total = answers[SEEN].to_numpy(), answers[TOTAL].to_numpy()
    rest, matched = answers[REST].to_numpy(), answers[MATCHED].to_numpy()
    is_known = (answers[VALUED].to_numpy() == total) & np.isfinite(rest)
    shown = answers.select(list(range(2, 2 + len(look.aggregates))))
    scaled = [
        scale(
            shown.slice(n, 1),
            look.aggregates,
            int(seen[n]),
            int(total[n]),
            dict.fromkeys(look.known, float(rest[n])) if is_known[n] else None,
            int(matched[n]),
        )
        for n in range(len(steps))
    ]
    least = [None if s.found is None else s.found.least for s in steps]
    return Estimated(
        pa.concat_tables(scaled),
        np.array([step.at for step in steps], np.int64),
        pa.array(least, pa.float64()),
        np.where(total > 0, seen / np.maximum(total, 1), 1.0),
        panes,
    )


def _panes_of(look: Look, ts: Numbers) -> Numbers:
    return find_panes(look.streams[0].window, look.line, ts)


def _low_of(look: Look, at: int) -> int:
    low, _ = interval(look.streams[0].window, at)
    return BEGINNING if low is None else low


def _mark(table: pa.Table, query: int, panes: Numbers, at: int) -> pa.Table:
    count = table.num_rows
    for name, values in ((QUERY, np.full(count, query)), (PANE, panes), (STEP, np.full(count, at))):
        table = table.append_column(name, pa.array(values.astype(np.int64)))
    return table


def _count(look: Look, query: int, at: int, ts: Numbers, worth: Estimates) -> pa.Table:
    """How many of some instants lie in each pane, and what their elements' values add up to."""
    panes, place, counts = np.unique(_panes_of(look, ts), return_inverse=True, return_counts=True)
    sums = np.bincount(place, worth, len(panes)) if look.known else np.zeros(len(panes))
    counted = pa.table(
        {"count": pa.array(counts.astype(np.int64)), REST: pa.array(sums, pa.float64())}
    )
    return _mark(counted, query, panes, at)


def _list_steps(looks: Sequence[Look], steps: Sequence[Sequence[LookedStep]]) -> pa.Table:
    """The steps with their windows: query, step, low, high."""
    rows = []
    for query, (look, own) in enumerate(zip(looks, steps, strict=True)):
        for step in own:
            _, high = interval(look.streams[0].window, step.at)
            rows.append((query, step.at, _low_of(look, step.at), high))
    array = np.array(rows, np.int64).reshape(-1, 4)
    names = (QUERY, STEP, "low", "high")
    return pa.table({name: pa.array(array[:, n]) for n, name in enumerate(names)})
