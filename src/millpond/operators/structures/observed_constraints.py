"""Constraints that nobody declared, seen in a run of a stream's elements (STREAM, CIDR 4.1).

What elements did so far they will perhaps go on to do: an observed constraint is used as a declared
one is, and no answer depends on it (`releases.py`). A join that sees it broken stops using it, for
nobody has promised that it holds. Keys of several columns and foreign keys are looked for where
joins compare them: there are too many others.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.constraints import CLUSTERED, FOREIGN_KEY, ORDERED, UNIQUE, Constraint
from millpond.operators.protocol.delta import Ints
from millpond.operators.structures.key_hashes import Hashes, find_words, hash_keys
from millpond.operators.structures.release_rules import is_hashable, is_ordered_number

#: A run of fewer elements says nothing; fewer distinct values are no keys.
_LEAST_ELEMENTS, _LEAST_VALUES = 1_000, 10
#: k may be at most this part of the run: a constraint with a larger one would release little.
_PART = 20
#: How many times the k that was seen is allowed: the run is only some of the elements.
_MARGIN = 2
#: Of so many keys at most it is looked at when the elements come that they refer to.
_SAMPLED = 1_000


def observe_constraints(run: pa.Table) -> tuple[Constraint, ...]:
    """Find constraints of single columns that a run of elements satisfies.

    Args:
        run: Consecutive elements of a stream, in the order of their timestamps and arrival.

    >>> run = pa.table({"a": range(2000), "b": [i // 4 for i in range(2000)], "c": [1] * 2000})
    >>> [(c.kind, *c.columns, c.rows) for c in observe_constraints(run)]
    [('unique', 'a', None), ('ordered', 'a', 0), ('clustered', 'b', 0), ('ordered', 'b', 0)]
    """
    found: list[Constraint] = []
    for name, column in zip(run.column_names, run.columns, strict=True):
        given = column.drop_null()
        if name.startswith("__") or not is_hashable(column.type) or len(given) < _LEAST_ELEMENTS:
            continue
        words = find_words(given.combine_chunks())
        spread = _measure_spread(words)
        if spread is None:
            continue
        most = len(words) // _PART
        if spread < 0:
            found.append(_name(UNIQUE, (name,), None))
        elif _MARGIN * spread <= most:
            found.append(_name(CLUSTERED, (name,), _MARGIN * spread))
        if is_ordered_number(column.type) and _MARGIN * (late := _measure_lateness(words)) <= most:
            found.append(_name(ORDERED, (name,), _MARGIN * late))
    return tuple(found)


def observe_key(run: pa.Table, columns: tuple[str, ...]) -> Constraint | None:
    """Find whether several columns together are unique or clustered in a run of elements.

    Args:
        run: Consecutive elements of a stream, in the order of their timestamps and arrival.
        columns: The columns.

    >>> run = pa.table({"a": [i // 50 for i in range(2000)], "b": [i % 50 for i in range(2000)]})
    >>> observe_key(run, ("a", "b")).kind
    'unique'
    """
    given = _take_given(run, columns)
    if given is None or given.num_rows < _LEAST_ELEMENTS:
        return None
    words = _hash_rows(given).view(np.int64)
    spread = _measure_spread(words)
    if spread is None:
        return None
    if spread < 0:
        return _name(UNIQUE, columns, None)
    within = _MARGIN * spread
    return _name(CLUSTERED, columns, within) if within <= len(words) // _PART else None


def observe_reference(
    run: pa.Table,
    columns: tuple[str, ...],
    referenced: pa.Table,
    unique: tuple[str, ...],
    stream: str,
) -> Constraint | None:
    """Find whether elements refer to elements that came before them, or come soon after.

    It is looked at for a sample of keys: those with the smallest hashes. A key whose element may
    still come says nothing.

    Args:
        run: Consecutive elements of a stream, by timestamp and arrival, with `__ts`.
        columns: The columns by which they may refer to others.
        referenced: Elements of the other stream, by timestamp and arrival, with `__ts`.
        unique: The columns that are unique there, in the order of `columns`.
        stream: The other stream's name.
    """
    given = _take_given(run, (*columns, "__ts"))
    if given is None or given.num_rows < _LEAST_ELEMENTS or not referenced.num_rows:
        return None
    hashes = _hash_rows(given.select(columns))
    keys, first = np.unique(hashes, return_index=True)
    keys, first = keys[:_SAMPLED], first[:_SAMPLED]  # in the order of the hashes
    if len(keys) < _LEAST_VALUES:
        return None
    ts = referenced["__ts"].to_numpy()
    places = _find_candidates(given.select(columns).take(pa.array(first)), referenced, unique)
    candidates = _take_given(referenced.take(pa.array(places)), unique)
    if candidates is None:
        return None
    found, place = np.unique(_hash_rows(candidates), return_index=True)
    position = np.full(len(keys), -1, np.int64)
    at = np.minimum(np.searchsorted(keys, found), len(keys) - 1)
    hit = keys[at] == found
    position[at[hit]] = places[place[hit]]
    # So many elements of the other stream there were when the first element with a key came.
    before = np.searchsorted(ts, given["__ts"].to_numpy()[first], side="right")
    has = position >= 0
    if int(has.sum()) < _LEAST_VALUES:
        return None
    within = _MARGIN * int(np.maximum(position[has] + 1 - before[has], 0).max())
    span = np.searchsorted(ts, given["__ts"].to_numpy()[[0, -1]], side="right")
    waited = len(ts) - before[~has]
    if within > (span[1] - span[0]) // _PART or (waited > within).any():
        return None
    name = f"observed foreign key ({', '.join(columns)}) references {stream}"
    return Constraint(name, FOREIGN_KEY, columns, stream, rows=within, observed=True)


def _take_given(rows: pa.Table, columns: tuple[str, ...]) -> pa.Table | None:
    """The rows without NULLs in some columns, and only these; None if a type has no hashes."""
    if any(n not in rows.column_names for n in columns) or not all(
        is_hashable(rows.schema.field(n).type) for n in columns
    ):
        return None
    return rows.select(columns).drop_null()


def _hash_rows(rows: pa.Table) -> Hashes:
    return hash_keys([column.combine_chunks() for column in rows.columns])


def _find_candidates(sample: pa.Table, rows: pa.Table, columns: tuple[str, ...]) -> Ints:
    """Find the places of rows that may be equal to a sampled one, without hashing them all."""
    found = np.ones(rows.num_rows, bool)
    for wanted, name in zip(sample.columns, columns, strict=True):
        column = rows[name]
        if column.type == wanted.type:
            found &= pc.is_in(column, value_set=wanted.combine_chunks()).to_numpy()
    return np.flatnonzero(found)


def _name(kind: str, columns: tuple[str, ...], rows: int | None) -> Constraint:
    name = f"observed {kind} ({', '.join(columns)})"
    return Constraint(name, kind, columns, rows=rows, observed=True)


def _measure_spread(words: Ints) -> int | None:
    """How many other elements lie among those with one value, at most; -1 if no value comes twice.

    None: there are too few values.
    """
    distinct, first, which, count = np.unique(
        words, return_index=True, return_inverse=True, return_counts=True
    )
    if len(distinct) < _LEAST_VALUES:
        return None
    if len(distinct) == len(words):
        return -1
    last = np.zeros(len(distinct), np.int64)
    np.maximum.at(last, which, np.arange(len(words)))
    return int((last - first - (count - 1)).max())


def _measure_lateness(words: Ints) -> int:
    """How many elements behind a greater one a smaller one comes, at most."""
    before = np.searchsorted(np.maximum.accumulate(words), words, side="right")
    return int(max(0, (np.arange(len(words)) - before).max()))
