"""What followed parts found, as changes: `__at`, `__sign`, the answer's columns, the priority.

Queries with equal SQL are evaluated together. Where that fails, each is evaluated by itself: its
error is its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from millpond.engine.promising.estimating import LookedStep, estimate_steps
from millpond.engine.promising.look import PRIORITY, QUERY, STEP, Look
from millpond.engine.promising.step import FamilyState
from millpond.engine.scalars.residual_query import Limits, Residual
from millpond.errors import MillpondError

#: Rows of a result; more than a step can find.
_MANY = 1 << 62

#: By query its changes, or why they could not be computed.
Finished = dict[int, pa.Table | MillpondError]


def finish_rows(
    residual: Residual,
    looks: Sequence[Look],
    numbers: Sequence[int],
    steps: Mapping[int, Sequence[LookedStep]],
    state: FamilyState,
) -> Finished:
    """Evaluate the SELECT lists of selections or joins over what they found.

    Who found nothing is not in the answer.
    """
    del state
    numbers = [n for n in numbers if any(step.found is not None for step in steps.get(n, ()))]

    def evaluate(group: list[int]) -> Finished:
        return _evaluate_rows(residual, looks[group[0]], group, steps)

    equal = [(looks[n].sql, tuple((s.table, s.columns) for s in looks[n].streams)) for n in numbers]
    return _in_groups(numbers, equal, evaluate)


def finish_estimates(
    residual: Residual,
    looks: Sequence[Look],
    numbers: Sequence[int],
    steps: Mapping[int, Sequence[LookedStep]],
    state: FamilyState,
) -> Finished:
    """Compute the estimates of aggregates; `state` gets what they keep."""

    def evaluate(group: list[int]) -> Finished:
        kept = [state.panes[n] or pa.table({}) for n in group]
        own = [looks[n] for n in group]
        made = estimate_steps(residual, own, kept, [steps[n] for n in group])
        found: Finished = {}
        for number, look, estimated in zip(group, own, made, strict=True):
            state.panes[number] = estimated.panes
            columns = [*estimated.answers.columns, estimated.priority, pa.array(estimated.share)]
            found[number] = _as_changes(look, pa.array(estimated.at), columns)
        return found

    equal = [(looks[n].estimate, looks[n].streams[0].columns) for n in numbers]
    return _in_groups(numbers, equal, evaluate)


def _in_groups(
    numbers: Sequence[int], equal: Sequence[object], evaluate: Callable[[list[int]], Finished]
) -> Finished:
    groups: defaultdict[object, list[int]] = defaultdict(list)
    for number, key in zip(numbers, equal, strict=True):
        groups[key].append(number)
    found: Finished = {}
    for group in groups.values():
        try:
            found |= evaluate(group)
        except MillpondError as error:
            if len(group) == 1:
                found[group[0]] = error
                continue
            for number in group:
                try:
                    found |= evaluate([number])
                except MillpondError as own:
                    found[number] = own
    return found


def _evaluate_rows(
    residual: Residual,
    look: Look,
    group: list[int],
    steps: Mapping[int, Sequence[LookedStep]],
) -> Finished:
    found = [
        (number, step.at, step.found)
        for number in group
        for step in steps[number]
        if step.found is not None
    ]
    tables: dict[str, pa.Table] = {}
    for leaf_number, leaf in enumerate(look.streams):
        empty = leaf.schema.to_arrow().empty_table().select(list(leaf.columns))
        tables[leaf.table] = pa.concat_tables(
            [empty, *(rows.tables[leaf_number] for _, _, rows in found)]
        )
    counts = [len(rows.priority) for _, _, rows in found]
    first = look.streams[0].table
    for name, values in (
        (PRIORITY, np.concatenate([np.empty(0), *(rows.priority for _, _, rows in found)])),
        (STEP, np.repeat(np.array([at for _, at, _ in found], np.int64), counts)),
        (QUERY, np.repeat(np.array([number for number, _, _ in found], np.int64), counts)),
    ):
        tables[first] = tables[first].append_column(name, pa.array(values))
    answer = residual.evaluate(look.sql, tables, Limits(rows=_MANY))
    *columns, at, query = answer.columns
    owners = query.to_numpy()
    order = np.argsort(owners, kind="stable")
    rows = pa.table([at, *columns], [str(n) for n in range(len(columns) + 1)])
    rows = rows.take(pa.array(order)).combine_chunks()
    lows, highs = (np.searchsorted(owners[order], group, side) for side in ("left", "right"))
    made: Finished = {}
    for number, low, high in zip(group, lows.tolist(), highs.tolist(), strict=True):
        at, *columns = rows.slice(low, high - low).columns
        made[number] = _as_changes(look, at, columns)
    return made


def _as_changes(look: Look, at: pa.Array, columns: Sequence[pa.Array]) -> pa.Table:
    if len(columns) != len(look.columns):
        raise MillpondError("INTERNAL-901", "a result has other columns than the query")
    signs = pa.array(np.ones(len(at), np.int8))
    names = ["__at", "__sign", *look.columns]
    return pa.Table.from_arrays([at, signs, *columns], names=names)
