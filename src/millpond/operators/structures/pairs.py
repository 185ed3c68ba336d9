"""The pairs that a join finds: who meets whom, since when, and their columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from millpond.errors import MillpondError
from millpond.model.time import END
from millpond.operators.protocol.delta import Delta, Ints, positional_schema
from millpond.operators.protocol.node import Scalars
from millpond.operators.structures.join_side import Side
from millpond.operators.structures.key_numbers import KeyNumbers

#: How many rows one step may join.
MOST_ROWS = 5_000_000


class PairFinder:
    """Makes the rows of a join's output of the places of rows that meet.

    Args:
        left, right: The schemas of the two inputs.
        predicates: SQL over the pair's columns: `c0`, … of the left row, then of the right.
        keep: Places of the pair's columns that are in the output, in order.
        text: The condition, for what is said when too many rows are joined.
    """

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        predicates: tuple[str, ...],
        keep: tuple[int, ...],
        text: str,
    ) -> None:
        both = [*left.types, *right.types]
        self._pair_schema = positional_schema(both)
        self.schema = positional_schema([both[p] for p in keep])
        self._predicates, self._keep = predicates, keep
        self._text = text or "without a condition"

    def find_pairs(
        self,
        delta: Delta,
        found: Iterable[tuple[Ints, Ints]],
        side: Side,
        held_is_left: bool,
        scalars: Scalars,
        length: int | None = None,
    ) -> Iterator[Delta]:
        """Make the joined rows of a delta and a side, in parts.

        Of a key that very many rows have, and of a join without keys, most pairs may not satisfy
        the conditions: they are never there all at once.

        Args:
            delta: The rows that probe.
            found: In parts, the places of those that meet one, and of those that they meet.
            side: The rows that are held.
            held_is_left: Whether these are of the left input.
            scalars: Evaluates the predicates.
            length: How long after its instant a held row leaves; None: when the side says.

        Raises:
            MillpondError: POND-405, one step joins more rows than can be held.
        """
        count = 0
        for probing, held in found:
            part = self._make_rows(delta, probing, side, held, held_is_left, scalars, length)
            count += len(part)
            check_count(count, self._text)
            if len(part):
                yield part

    def _make_rows(
        self,
        delta: Delta,
        probing: Ints,
        side: Side,
        held: Ints,
        held_is_left: bool,
        scalars: Scalars,
        length: int | None,
    ) -> Delta:
        at = np.maximum(delta.at[probing], side.at[held])
        order = np.argsort(at, kind="stable")
        probing, held, at = probing[order], held[order], at[order]
        ends = side.until[held] if length is None else np.minimum(side.at[held] + length, END)
        until = np.minimum(delta.until[probing], ends)
        weight = delta.weight[probing] * side.weight[held]
        if self._predicates and len(at):
            rows = self._gather(delta, probing, side, held, held_is_left, None)
            places = np.flatnonzero(scalars.select(rows, self._predicates))
            probing, held = probing[places], held[places]
            at, until, weight = at[places], until[places], weight[places]
        rows = self._gather(delta, probing, side, held, held_is_left, self._keep)
        return Delta(rows, at, until, weight)

    def _gather(
        self,
        delta: Delta,
        probing: Ints,
        side: Side,
        held: Ints,
        held_is_left: bool,
        keep: tuple[int, ...] | None,
    ) -> pa.RecordBatch:
        """Gather the pairs' columns: all of them, or the columns at the places in `keep`."""
        schema = self._pair_schema if keep is None else self.schema
        wanted = range(len(schema)) if keep is None else keep
        ours = delta.rows.take(pa.array(probing)).columns
        theirs = side.rows.pick(held).columns
        left, right = (theirs, ours) if held_is_left else (ours, theirs)
        both = [*left, *right]
        return pa.RecordBatch.from_arrays([both[p] for p in wanted], schema=schema)


def number_rows(
    delta: Delta, places: tuple[int, ...], keys: KeyNumbers, nulls_match: bool
) -> tuple[Delta, Ints]:
    """Select the rows that can have a partner, and number their keys."""
    columns = [delta.rows.column(p) for p in places]
    if not nulls_match and any(c.null_count for c in columns):
        found = np.ones(len(delta), bool)
        for column in columns:
            found &= column.is_valid().to_numpy(zero_copy_only=False)
        delta = delta.where(found)
        columns = [delta.rows.column(p) for p in places]
    if not places:
        if len(delta):
            keys.number_empty_rows()
        return delta, np.zeros(len(delta), np.int64)
    return delta, keys.number(columns)


def check_count(count: int, text: str) -> None:
    """Refuse to join more rows in one step than can be held.

    Raises:
        MillpondError: POND-405, there are too many.
    """
    if count > MOST_ROWS:
        raise refuse_rows(text)


def refuse_rows(text: str) -> MillpondError:
    """What is raised where one step joins more rows than can be held."""
    return MillpondError(
        "POND-405",
        "a join of the query's changes finds too many rows",
        detail=f"In one step more than {MOST_ROWS:,} rows are joined"
        f" ({text}): some value has very many partners.",
        hint="Join by more columns, leave such values out, or shorten the windows.",
    )
