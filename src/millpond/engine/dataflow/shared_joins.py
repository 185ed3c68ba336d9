"""Joins of windows of other lengths, as stubs over what is kept for all (`stubs.py`)."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import sqlglot
from sqlglot import exp

from millpond.engine.dataflow.stubs import find_elements
from millpond.operators.join import Join
from millpond.operators.protocol.stubs import Origin
from millpond.operators.shared_join import KeptSides, SharedJoin

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
#: What a condition may consist of that is true, false or NULL of all pairs.
_CANNOT_FAIL = (*_COMPARISONS, exp.And, exp.Or, exp.Not, exp.Paren, exp.Column, exp.Identifier)


@lru_cache(maxsize=1 << 12)
def share_join(join: Join) -> SharedJoin | None:
    """Make a join over kept elements of a join of two windows that carry expirations.

    Returns:
        None: it is no such join, or a query has it for itself.
    """
    if join.sums is not None or join.owner:
        return None
    left, right = find_elements(join.left), find_elements(join.right)
    if left is None or right is None or not _cannot_fail(join.predicates, _list_types(join)):
        return None
    kept = KeptSides(left.node, right.node, join.left_keys, join.right_keys, join.nulls_match)
    return SharedJoin(kept, Origin(join), (left.length, right.length))


def _list_types(join: Join) -> tuple[pa.DataType, ...]:
    return (*join.left.schema.types, *join.right.schema.types)


@lru_cache(maxsize=1 << 12)
def _cannot_fail(predicates: tuple[str, ...], types: tuple[pa.DataType, ...]) -> bool:
    """Whether predicates compare columns of equal types only: they fail on nobody's pairs.

    A pair that holds only before a query's changes begin must not fail it, and the operator of a
    shared join is not tried again without such pairs.
    """
    for sql in predicates:
        for part in sqlglot.parse_one(sql, dialect="duckdb").walk():
            if not isinstance(part, _CANNOT_FAIL):
                return False
            if isinstance(part, _COMPARISONS):
                sides = part.this, part.expression
                if not all(isinstance(side, exp.Column) for side in sides):
                    return False
                one, other = (types[int(side.name[1:])] for side in sides)
                if one != other:
                    return False
    return True
