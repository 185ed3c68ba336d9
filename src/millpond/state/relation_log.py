"""Relations on disk: Arrow files of rows that were added and of rows that ended.

A relation's row is valid from `__from` until before `__to` (`END` while nothing has ended it) and
has a number `__rid` of its own. A delta is one file with two kinds of lines, which `__op` names:

    ADDED  the row's columns, __rid, __from, __to
    ENDED  nulls,             __rid,  null,  __to     the row ends at __to, unless it ended earlier

R(τ) is the fold of all deltas, cut at τ. Of several ends of a row the earliest applies, so folding
is independent of the order of the deltas. A fold is itself a delta without ends:
`write_delta(fold(…))` rewrites many deltas into one. The rewritten deltas must be a prefix of all
deltas in the order of their epochs, so that no end is separated from its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.time import END
from millpond.state.arrow_file import FileMeta, write_arrow
from millpond.state.store import new_path

#: The values of `__op`.
ADDED, ENDED = 0, 1

_VALIDITY = (
    pa.field("__rid", pa.int64()),
    pa.field("__from", pa.int64()),
    pa.field("__to", pa.int64()),
)


def folded_schema(columns: pa.Schema) -> pa.Schema:
    """Make the schema of a fold: the relation's columns, `__rid`, `__from`, `__to`."""
    return pa.schema([*columns, *_VALIDITY])


def ends(rids: Sequence[int], at: Sequence[int] | int) -> pa.Table:
    """Make the table of ends `write_delta` takes: the rows `rids` end at `at`."""
    instants = [at] * len(rids) if isinstance(at, int) else at
    return pa.table({"__rid": pa.array(rids, pa.int64()), "__to": pa.array(instants, pa.int64())})


def write_delta(directory: str | Path, added: pa.Table, ended: pa.Table | None = None) -> FileMeta:
    """Write one delta into the store at `directory`.

    Args:
        directory: The store's directory.
        added: The new rows, with `folded_schema` of the relation's columns; may have no rows.
        ended: `__rid`, `__to` of rows that end; this delta or an earlier one added them.

    Raises:
        MillpondError: STORE-603, the file cannot be written.
    """
    lines = added.append_column("__op", pa.array(np.zeros(added.num_rows, dtype=np.int8)))
    if ended is not None and ended.num_rows:
        given = {
            "__rid": ended.column("__rid"),
            "__to": ended.column("__to"),
            "__op": pa.array(np.full(ended.num_rows, ENDED, dtype=np.int8)),
        }
        nulls = [
            given.get(name, pa.nulls(ended.num_rows, type))
            for name, type in zip(lines.schema.names, lines.schema.types, strict=True)
        ]
        lines = pa.concat_tables([lines, pa.table(nulls, schema=lines.schema)])
    return write_arrow(new_path(directory, "relations"), lines)


def fold(deltas: Iterable[pa.Table], columns: pa.Schema) -> pa.Table:
    """Fold deltas into every row they added, with the interval in which the row is valid.

    Args:
        deltas: Tables of files `write_delta` made, in any order.
        columns: The relation's columns.

    Returns:
        `folded_schema(columns)`, in the order of `__rid`. A row that ends when it begins, or
        before, was never valid and is left out; an end without its row ends nothing.
    """
    schema = folded_schema(columns)
    tables = list(deltas)
    if not tables:
        return schema.empty_table()
    lines = pa.concat_tables(tables)
    is_added = pc.equal(lines.column("__op"), ADDED)
    added = lines.filter(is_added).select(schema.names).cast(schema).sort_by("__rid")
    ended = lines.filter(pc.invert(is_added))
    rids = added.column("__rid").to_numpy()
    until = added.column("__to").to_numpy().copy()
    if ended.num_rows:
        which = ended.column("__rid").to_numpy()
        place = np.searchsorted(rids, which)
        known = place < len(rids)
        known[known] = rids[place[known]] == which[known]
        np.minimum.at(until, place[known], ended.column("__to").to_numpy()[known])
    valid = until > added.column("__from").to_numpy()
    folded = added.set_column(
        schema.get_field_index("__to"), _VALIDITY[2], pa.array(until, pa.int64())
    )
    return folded if valid.all() else folded.filter(pa.array(valid))


def select_at(folded: pa.Table, at: int) -> pa.Table:
    """Select the rows of a fold that are valid at an instant, with their intervals."""
    starts, until = folded["__from"].to_numpy(), folded["__to"].to_numpy()
    return folded.filter(pa.array((starts <= at) & (at < until)))


def changes_between(
    known: pa.Table, folded: pa.Table, after: int, upto: int, columns: Sequence[str]
) -> pa.Table:
    """Compute a relation's changes in (after, upto], for a reader who has its rows as of `after`.

    An update that was dated back, to an instant whose changes the reader already has, becomes a
    change at the first instant of the interval.

    Args:
        known: The rows (of an earlier fold) that the reader has as of `after`.
        folded: The relation's fold now.
        after: The instant before the first of the interval.
        upto: The last instant.
        columns: The relation's columns that are wanted.

    Returns:
        The columns, `__at` (int64) and `__sign` (int8), in ascending order of `__at`; within an
        instant, rows that leave stand before rows that come.
    """
    first = after + 1
    rids, starts = folded["__rid"].to_numpy(), folded["__from"].to_numpy()
    until, before = folded["__to"].to_numpy(), known["__rid"].to_numpy()
    holds = (starts <= first) & (first < until)
    goes = np.flatnonzero(~np.isin(before, rids[holds]))
    ends_later = np.flatnonzero((until > first) & (until <= upto) & (until < END))
    comes = np.flatnonzero(holds & ~np.isin(rids, before))
    starts_later = np.flatnonzero((starts > first) & (starts <= upto))
    # Without a column a table would have no rows; `count(*)` reads none.
    names = [*columns, "__rid"]
    rows = pa.concat_tables(
        [
            known.select(names).take(pa.array(goes)),
            folded.select(names).take(pa.array(np.concatenate([ends_later, comes, starts_later]))),
        ]
    )
    at = np.concatenate(
        [
            np.full(len(goes), first, np.int64),
            until[ends_later],
            np.full(len(comes), first, np.int64),
            starts[starts_later],
        ]
    )
    leaving = len(goes) + len(ends_later)
    sign = np.where(np.arange(len(at)) < leaving, -1, 1).astype(np.int8)
    order = np.lexsort((sign, at))
    rows = rows.append_column("__at", pa.array(at, pa.int64())).drop_columns(["__rid"])
    return rows.append_column("__sign", pa.array(sign)).take(pa.array(order)).combine_chunks()


def number_added(table: pa.Table, first_rid: int, since: int) -> pa.Table:
    """Number new rows from `first_rid` on and make them valid from `since` on."""
    rows = table.num_rows
    values = [
        *table.columns,
        pa.array(np.arange(first_rid, first_rid + rows, dtype=np.int64)),
        pa.array(np.full(rows, since, dtype=np.int64)),
        pa.array(np.full(rows, END, dtype=np.int64)),
    ]
    return pa.table(values, schema=folded_schema(table.schema.remove_metadata()))
