"""Constraints that nobody declared, seen in a run of a stream's elements (STREAM, CIDR 4.1).

What elements did so far they will perhaps go on to do: an observed constraint is used as a declared
one is, and no answer depends on it (`releases.py`). A join that sees it broken stops using it, for
nobody has promised that it holds. Foreign keys are not observed: a run of one stream does not show
what it refers to.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.model.constraints import CLUSTERED, ORDERED, UNIQUE, Constraint
from millpond.operators.protocol.delta import Ints
from millpond.operators.structures.key_hashes import find_words
from millpond.operators.structures.release_rules import is_hashable, is_ordered_number

#: A run of fewer elements says nothing; fewer distinct values are no keys.
_LEAST_ELEMENTS, _LEAST_VALUES = 1_000, 10
#: k may be at most this part of the run: a constraint with a larger one would release little.
_PART = 20
#: How many times the k that was seen is allowed: the run is only some of the elements.
_MARGIN = 2


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
            found.append(_name(UNIQUE, name, None))
        elif _MARGIN * spread <= most:
            found.append(_name(CLUSTERED, name, _MARGIN * spread))
        if is_ordered_number(column.type) and _MARGIN * (late := _measure_lateness(words)) <= most:
            found.append(_name(ORDERED, name, _MARGIN * late))
    return tuple(found)


def _name(kind: str, column: str, rows: int | None) -> Constraint:
    return Constraint(f"observed {kind} ({column})", kind, (column,), rows=rows, observed=True)


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
