"""Joins of every kind, built from two operators and duplicate elimination.

    L SEMI R on θ   =  L ⋈ δ(π_keys R)            where θ is equality of keys
    L LEFT R on θ   =  (L ⋈θ R) + (L ANTI R on θ) × NULLs

So EXISTS, IN and outer joins over the same inputs share their common nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.operators.distinct_delta_star import DistinctDeltaStar
from millpond.operators.expire import announce_expirations
from millpond.operators.filtered_semijoin import FilteredSemijoin
from millpond.operators.join import Join
from millpond.operators.protocol.node import Node
from millpond.operators.semijoin import Semijoin
from millpond.operators.set_operations import SetOperation
from millpond.operators.structures.key_hashes import is_hashable
from millpond.operators.union import Union
from millpond.planner.dataflow.bands import find_band
from millpond.planner.dataflow.column_types import (
    find_answer_types,
    find_expression_types,
    type_names,
)
from millpond.planner.dataflow.filtered_windows import (
    find_window,
    lengthen_window,
    slice_window,
)
from millpond.planner.dataflow.frame import Frame, Unsupported, find_columns, project, reads_columns
from millpond.planner.resolve.nrr_join import SAID


@dataclass(frozen=True, eq=False)
class Condition:
    """A join condition: which rows of two nodes are partners.

    Attributes:
        left, right: The nodes, with the key columns among their columns.
        left_keys, right_keys: The places of the keys.
        predicates: The other conjuncts of the condition, as SQL over both nodes' columns.
        widths: How many columns the nodes had before keys were added.
        text: The condition as the query writes it.
    """

    left: Node
    right: Node
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    predicates: tuple[str, ...]
    widths: tuple[int, int]
    text: str = ""

    @property
    def both(self) -> tuple[int, ...]:
        """List the places of the original columns in a pair."""
        first, second = self.widths
        offset = len(self.left.schema)
        return (*range(first), *range(offset, offset + second))

    @property
    def only_left(self) -> tuple[int, ...]:
        return tuple(range(self.widths[0]))


def split_condition(left: Frame, right: Frame, conjuncts: list[exp.Expr]) -> Condition:
    """Split conjuncts over two frames into keys and other predicates."""
    pairs: list[tuple[exp.Expr, exp.Expr]] = []
    rest: list[exp.Expr] = []
    for conjunct in conjuncts:
        pair = _split_equality(conjunct, left, right)
        if pair is not None:
            pairs.append(pair)
        else:
            rest.append(conjunct)
    ours = [left.sql(one) for one, _ in pairs]
    theirs = [right.sql(other) for _, other in pairs]
    our_types = find_expression_types(ours, left.node.schema)
    their_types = find_expression_types(theirs, right.node.schema)
    left_keys: list[str | int] = []
    right_keys: list[str | int] = []
    for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        common = _find_common_type(our_types[place], their_types[place])
        if common is None:
            rest.append(exp.EQ(this=pairs[place][0].copy(), expression=pairs[place][1].copy()))
            continue
        left_keys.append(_cast(one, our_types[place], common))
        right_keys.append(_cast(other, their_types[place], common))
    widths = (len(left.node.schema), len(right.node.schema))
    band = None if left_keys else find_band(left, right, rest, partial(_splits, left, right))
    if band is None:
        node, left_places = _add_keys(left.node, left_keys)
        other_node, right_places = _add_keys(right.node, right_keys)
    else:
        node, left_places = _add_keys(left.node, [band.left_bucket()])
        both = [_add_keys(right.node, [bucket]) for bucket in band.right_buckets()]
        other_node, right_places = Union(tuple(one for one, _ in both)), both[0][1]
    predicates = tuple(_pair_sql(left, right, len(node.schema), p) for p in rest)
    said = (c.meta.get(SAID, c.sql()) for c in conjuncts)
    text = " AND ".join(one for one in said if one)
    return Condition(node, other_node, left_places, right_places, predicates, widths, text)


def _pair_sql(left: Frame, right: Frame, offset: int, predicate: exp.Expr) -> str:
    """Write a predicate as SQL over a pair; a name of both sides means the right's column."""
    holder = exp.Paren(this=predicate.copy())
    for column in list(find_columns(holder)):
        place = right.find(column)
        if place is not None:
            place += offset
        else:
            place = left.find(column)
        if place is None:
            raise Unsupported(f'"{column.name}", which is no column of the join')
        column.replace(exp.Column(this=exp.Identifier(this=f"c{place}", quoted=False)))
    return to_duckdb(holder.this)


def inner_join(on: Condition) -> Node:
    """Plan the pairs of partners, with the columns of both sides."""
    return Join(
        on.left, on.right, on.left_keys, on.right_keys, on.predicates, on.both, text=on.text
    )


def semijoin(on: Condition, filtered: float | None = None) -> Node:
    """Plan the left rows that have a partner; `filtered` as of `filtered_semijoin`."""
    if (found := filtered_semijoin(on, filtered, anti=False)) is not None:
        return found
    columns = on.only_left
    if not on.predicates:
        keys = eliminate_duplicates(_key_columns(on))
        places = tuple(range(len(on.right_keys)))
        return Join(
            on.left, keys, on.left_keys, places, (), columns, label="semijoin", text=on.text
        )
    return Semijoin(
        on.left,
        announce_expirations(on.right),
        on.left_keys,
        on.right_keys,
        on.predicates,
        False,
        columns,
        on.text,
    )


def antijoin(on: Condition, filtered: float | None = None) -> Node:
    """Plan the left rows that have no partner; `filtered` as of `filtered_semijoin`."""
    if (found := filtered_semijoin(on, filtered, anti=True)) is not None:
        return found
    right, places = announce_expirations(on.right), on.right_keys
    if not on.predicates:
        right, places = (
            announce_expirations(eliminate_duplicates(_key_columns(on))),
            tuple(range(len(on.right_keys))),
        )
    return Semijoin(
        on.left, right, on.left_keys, places, on.predicates, True, on.only_left, on.text
    )


def _key_columns(on: Condition) -> Node:
    """Project the right side to its keys; without keys, to one constant column."""
    return project(on.right, list(on.right_keys) or ["true"])


def filtered_semijoin(on: Condition, share: float | None, *, anti: bool) -> Node | None:
    """Plan a semijoin or antijoin with a filter of the right's keys.

    Args:
        on: The condition.
        share: Of how many left rows without a partner it may be wrong, 0 to 1.
        anti: Whether the rows without a partner are wanted.

    Returns:
        None if it is to be exact, or the right's rows are not those of a window over time.
    """
    hashable = all(is_hashable(on.right.schema.field(p).type) for p in on.right_keys)
    if share is None or on.predicates or not on.left_keys or not hashable:
        return None
    window = find_window(on.right)
    if window is None:
        return None
    slicing = slice_window(window, share)
    right = _key_columns(replace(on, right=lengthen_window(on.right, slicing.ahead)))
    places = tuple(range(len(on.right_keys)))
    return FilteredSemijoin(
        on.left, right, on.left_keys, places, anti, on.only_left, slicing, on.text
    )


def outer_join(on: Condition, flipped: Condition, side: str) -> Node:
    """Plan a LEFT, RIGHT or FULL join; `flipped` is the condition with its sides exchanged."""
    parts: list[Node] = [inner_join(on)]
    ours = [on.left.schema.field(p).type for p in range(on.widths[0])]
    theirs = [on.right.schema.field(p).type for p in range(on.widths[1])]
    if side in ("LEFT", "FULL"):
        nulls: list[str | int] = [*on.only_left, *_nulls(theirs)]
        parts.append(project(antijoin(on), nulls))
    if side in ("RIGHT", "FULL"):
        nulls = [*_nulls(ours), *flipped.only_left]
        parts.append(project(antijoin(flipped), nulls))
    return Union(tuple(parts))


def eliminate_duplicates(node: Node) -> Node:
    """Plan the node's distinct rows."""
    if not node.announces:
        return DistinctDeltaStar(node)
    return SetOperation((announce_expirations(node),), "distinct")


def _nulls(types: list[pa.DataType]) -> list[str | int]:
    return [f"CAST(NULL AS {name})" for name in type_names(types)]


def _split_equality(
    conjunct: exp.Expr, left: Frame, right: Frame
) -> tuple[exp.Expr, exp.Expr] | None:
    """Split an equality of the two frames into its sides; None for any other conjunct."""
    if not isinstance(conjunct, exp.EQ):
        return None
    one, other = conjunct.this, conjunct.expression
    for first, second in ((one, other), (other, one)):
        if _splits(left, right, first, second):
            return first, second
    return None


def _splits(left: Frame, right: Frame, first: exp.Expr, second: exp.Expr) -> bool:
    """Whether one expression reads the left frame alone, and the other the right one."""
    if not reads_columns(first) or not reads_columns(second):
        return False
    if not left.covers(first) or not right.covers(second):
        return False
    # A name both frames have means the right frame's column, so the left expression may not read a
    # name the right frame has.
    return all(right.find(c) is None for c in find_columns(first))


def _find_common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Find the type in which two keys are compared; None if that is not certain."""
    if one == other:
        return None if pa.types.is_nested(one) else one
    if _is_number(one) and _is_number(other):
        names = type_names([one, other])
        pair = f"SELECT coalesce(CAST(NULL AS {names[0]}), CAST(NULL AS {names[1]}))"
        return find_answer_types(pair, [], [])[0]
    return None


def _is_number(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    )


def _cast(sql: str, type_: pa.DataType, wanted: pa.DataType) -> str | int:
    if type_ != wanted:
        return f"CAST({sql} AS {type_names([wanted])[0]})"
    return int(sql[1:]) if sql[:1] == "c" and sql[1:].isdigit() else sql


def _add_keys(node: Node, keys: list[str | int]) -> tuple[Node, tuple[int, ...]]:
    """Add keys to a node as columns; return the node and the keys' places."""
    columns: list[str | int] = list(range(len(node.schema)))
    places = []
    for key in keys:
        if key not in columns:
            columns.append(key)
        places.append(columns.index(key))
    return project(node, columns), tuple(places)
