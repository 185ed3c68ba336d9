"""The output of a dataflow: net changes in canonical order.

Changes come by instant; within an instant all `-` before all `+`; then by the rows' values, NULLs
last. Changes of equal rows at one instant cancel each other. So the sequence of changes is a
function of history alone, whatever operators computed it and however the feed was cut.

Rows come in the order of their instants. At nearly every instant of a group-by or a selection,
either one row comes or leaves, or one row replaces another. Such an instant is net and in order
as soon as the two rows differ, and mostly the first column that is looked at says so. At all
other instants, the **crowded** ones, every column becomes 64-bit keys in the order of its values.
One pass over the instants sorts the rows of each crowded instant and adds up the weights of equal
rows, which then lie side by side. Where an operator gave its rows in canonical order already
(`Delta.is_canonical`), nothing is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit, types

from millpond.model.compiled import I64, READ_I64, called, compiled
from millpond.operators.protocol.delta import Bools, Delta, Ints
from millpond.operators.structures.value_words import make_words
from millpond.synopses.order_keys import is_whole

_KEYS = types.Array(types.int64, 2, "C", readonly=True)
_BOOL = types.Array(types.boolean, 1, "C", readonly=True)

#: Which net weights are given out: 0 as changes + and -, 1 the rows that came, -1 those that left.
_STREAMS = {None: 0, "istream": 1, "rstream": 1, "dstream": -1}
#: Rows that are sorted by insertion before they are merged.
_RUN = 24


def net_changes(delta: Delta, schema: pa.Schema, to_stream: str | None) -> pa.Table:
    """Turn a delta without expirations into a table of changes.

    Args:
        delta: The changes of R.
        schema: `__at`, `__sign` and the answer's columns.
        to_stream: 'istream' keeps the rows that came, 'dstream' those that left, both signed +.
    """
    which = _STREAMS[to_stream]
    if delta.is_canonical:
        kept = delta if which == 0 else delta.where(delta.weight == which)
        signs = kept.weight.astype(np.int8) if which == 0 else np.ones(len(kept), np.int8)
        columns = [pa.array(kept.at), pa.array(signs), *kept.rows.columns]
        return pa.Table.from_arrays(columns, schema=schema)
    rows = normalize(delta.rows)
    at, weight = np.ascontiguousarray(delta.at), delta.weight
    crowded = _find_crowded(rows, at, weight)
    if which == 0 and not crowded.any():
        signs = weight.astype(np.int8)
    else:
        most = int(np.abs(weight).sum())
        places, signs = np.empty(most, np.int64), np.empty(most, np.int8)
        keys = _make_keys(_pick(rows, crowded))
        count, is_moved = _net(at, weight, crowded, keys, which, places, signs)
        places, signs = places[:count], signs[:count]
        if is_moved or count != len(at):
            rows, at = rows.take(pa.array(places)), at[places]
    return pa.Table.from_arrays([pa.array(at), pa.array(signs), *rows.columns], schema=schema)


def list_changes(delta: Delta, schema: pa.Schema) -> pa.Table:
    """Turn a delta without expirations into a table of its rows, copy by copy, as they came.

    Nothing cancels: whoever adds the changes up does that.
    """
    rows, at, weight = normalize(delta.rows), delta.at, delta.weight
    if bool((np.abs(weight) != 1).any()):
        places = np.repeat(np.arange(len(at)), np.abs(weight))
        rows, at, weight = rows.take(pa.array(places)), at[places], np.sign(weight)[places]
    signs = pa.array(weight.astype(np.int8))
    return pa.Table.from_arrays([pa.array(at), signs, *rows.columns], schema=schema)


def join_changes(left: pa.Table, came: pa.Table, changes: pa.Table, at: int) -> pa.Table:
    """Put the rows that leave and come at an instant before changes from that instant on.

    Args:
        left: The rows of the answer that is left, all signed +.
        came: The rows of the answer that is taken up, all signed +.
        changes: Net changes in canonical order, at this instant or later.
        at: The instant.
    """
    schema = changes.schema
    names = schema.names[2:]
    columns = pa.schema(list(schema)[2:])
    rows = pa.concat_tables([t.select(names).cast(columns) for t in (left, came, changes)])
    now = np.full(left.num_rows + came.num_rows, at, np.int64)
    weights = np.repeat(np.array([-1, 1], np.int64), [left.num_rows, came.num_rows])
    delta = Delta.of(
        _as_batch(rows),
        np.concatenate([now, changes["__at"].cast(pa.int64()).to_numpy()]),
        weight=np.concatenate([weights, changes["__sign"].cast(pa.int64()).to_numpy()]),
    )
    return net_changes(delta, schema, None)


def merge_changes(parts: Sequence[pa.Table]) -> pa.Table:
    """Put net changes together that have no equal rows, each in canonical order, as one such list.

    Args:
        parts: Tables of one schema.
    """
    every = pa.concat_tables(parts)
    at = every["__at"].cast(pa.int64()).to_numpy()
    order = np.argsort(at, kind="stable")
    rows = _as_batch(every.drop_columns(["__at", "__sign"]).take(pa.array(order)))
    weight = every["__sign"].cast(pa.int64()).to_numpy()[order]
    return net_changes(Delta.of(rows, at[order], weight=weight), parts[0].schema, None)


def _as_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch, also without rows."""
    columns = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def normalize(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Replace −0.0 by 0.0, so that equal rows look equal."""
    columns = [_unify_zeros(c) if pa.types.is_floating(c.type) else c for c in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _unify_zeros(column: pa.Array) -> pa.Array:
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    if not (np.signbit(values) & (values == 0)).any():
        return column
    return pc.add(column, pa.scalar(0, column.type))


def _find_crowded(rows: pa.RecordBatch, at: Ints, weight: Ints) -> Bools:
    """Find the rows of instants at which more happens than that a row comes, leaves or is replaced.

    A row that is replaced by an equal row counts too.
    """
    crowded = np.empty(len(at), bool)
    replaced = np.empty(len(at) // 2, np.int64)
    equal = replaced[: _list_replaced(at, weight, crowded, replaced)]
    # Whole numbers first, because their keys cost least; then later columns: groups stand before.
    cheap = [is_whole(column.type) for column in rows.columns]
    for place in sorted(range(len(cheap)), key=lambda place: (not cheap[place], -place)):
        if not len(equal):
            break
        for word in make_words(rows.column(place)):
            equal = equal[: _keep_equal(np.ascontiguousarray(word), equal)]
    crowded[equal] = crowded[equal + 1] = True
    return crowded


def _pick(rows: pa.RecordBatch, chosen: Bools) -> pa.RecordBatch:
    return rows if chosen.all() else rows.take(pa.array(np.flatnonzero(chosen)))


def _make_keys(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Make keys that compare as rows do: int64[rows, words]."""
    columns = rows.columns if rows.num_rows else []
    words = [word for column in columns for word in make_words(column)]
    keys = np.empty((rows.num_rows, len(words)), np.int64)
    for place, word in enumerate(words):
        keys[:, place] = word
    return keys


@njit(inline="always")
def _compare(keys, left, right):  # type: ignore[no-untyped-def]
    for j in range(keys.shape[1]):
        if keys[left, j] != keys[right, j]:
            return -1 if keys[left, j] < keys[right, j] else 1
    return 0


@called
def _sort(keys, places, spare, low, high):  # type: ignore[no-untyped-def]
    """Sort places[low:high] by their rows: runs by insertion, then merged from the bottom up."""
    for start in range(low, high, _RUN):
        for i in range(start + 1, min(start + _RUN, high)):
            place = places[i]
            k = i
            while k > start and _compare(keys, places[k - 1], place) > 0:
                places[k] = places[k - 1]
                k -= 1
            places[k] = place
    width = _RUN
    while width < high - low:
        for start in range(low, high, 2 * width):
            middle, end = min(start + width, high), min(start + 2 * width, high)
            i, j, k = start, middle, start
            while i < middle or j < end:
                if j >= end or (i < middle and _compare(keys, places[i], places[j]) <= 0):
                    spare[k] = places[i]
                    i += 1
                else:
                    spare[k] = places[j]
                    j += 1
                k += 1
        for k in range(low, high):
            places[k] = spare[k]
        width *= 2


@compiled(types.int64(READ_I64, READ_I64, types.Array(types.boolean, 1, "C"), I64))
def _list_replaced(at, weight, crowded, replaced):  # type: ignore[no-untyped-def]
    """List where at an instant one row replaces another; `crowded`: where more happens."""
    n = len(at)
    found = 0
    low = 0
    while low < n:
        high = low + 1
        while high < n and at[high] == at[low]:
            high += 1
        if high - low == 2 and weight[low] == -1 and weight[low + 1] == 1:
            replaced[found] = low
            found += 1
            crowded[low] = crowded[low + 1] = False
        else:
            is_single = high - low == 1 and abs(weight[low]) == 1
            for i in range(low, high):
                crowded[i] = not is_single
        low = high
    return found


@compiled(types.int64(READ_I64, I64))
def _keep_equal(word, replaced):  # type: ignore[no-untyped-def]
    """Keep the places at which a word is that of the next place; return how many."""
    kept = 0
    for place in replaced:
        if word[place] == word[place + 1]:
            replaced[kept] = place
            kept += 1
    return kept


@compiled(
    types.Tuple((types.int64, types.boolean))(
        READ_I64, READ_I64, _BOOL, _KEYS, types.int64, I64, types.Array(types.int8, 1, "C")
    )
)
def _net(at, weight, crowded, keys, which, out, signs):  # type: ignore[no-untyped-def]
    """Fill in the places and signs of the net changes; return how many, and whether rows moved.

    `keys` has the rows of crowded instants only.
    """
    n = len(at)
    places = np.arange(len(keys))
    spare = np.empty(len(keys), np.int64)
    sums = np.empty(len(keys), np.int64)
    found = 0
    is_moved = False
    begin = 0
    low = 0
    while low < n:
        if not crowded[low]:
            sign = 1 if weight[low] > 0 else -1
            if which == 0 or which == sign:
                is_moved |= low != found
                out[found] = low
                signs[found] = 1 if which != 0 else sign
                found += 1
            low += 1
            continue
        high = low + 1
        while high < n and at[high] == at[low]:
            high += 1
        # The instant's rows have the keys [begin, end).
        end = begin + high - low
        shift = low - begin
        if high - low > 1:
            _sort(keys, places, spare, begin, end)
        # The first of equal rows gets the sum of their weights.
        distinct = begin
        i = begin
        while i < end:
            first = places[i]
            total = weight[first + shift]
            i += 1
            while i < end and _compare(keys, first, places[i]) == 0:
                total += weight[places[i] + shift]
                i += 1
            places[distinct] = first
            sums[distinct] = total
            distinct += 1
        if which <= 0:
            for k in range(begin, distinct):
                for _ in range(-sums[k]):
                    is_moved |= places[k] + shift != found
                    out[found] = places[k] + shift
                    signs[found] = 1 if which < 0 else -1
                    found += 1
        if which >= 0:
            for k in range(begin, distinct):
                for _ in range(sums[k]):
                    is_moved |= places[k] + shift != found
                    out[found] = places[k] + shift
                    signs[found] = 1
                    found += 1
        begin = end
        low = high
    return found, is_moved
