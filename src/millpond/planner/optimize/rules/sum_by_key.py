"""Sums below a join: where only sums of pairs are wanted, the join keeps sums by key, and no rows.

    γ(sum(b.x), count(*)) (A ⋈ B)   =   γ(sum(b.x), count(*)) (A ⋈ Σ B)

Counts and sums are bilinear in the two inputs, so rows of an input that agree in the columns that
are read one by one can be added up before they are joined (eager aggregation: Yan and Larson, VLDB
1995; for windows it is a departure, as none of the papers has it). What a row costs then no longer
depends on how many partners its key has. Of a key with few partners pairs cost less, so the choice
is the cost model's.
"""

from __future__ import annotations

from dataclasses import replace

from millpond.operators.aggregation.aggregate import Aggregate
from millpond.operators.aggregation.aggregates.average import Average
from millpond.operators.aggregation.aggregates.count import Count
from millpond.operators.aggregation.aggregates.sum import SumOfDoubles, SumOfWholes
from millpond.operators.group_by import GroupBy
from millpond.operators.join import Join
from millpond.operators.protocol.delta import places_in
from millpond.operators.protocol.node import Node
from millpond.operators.structures.value_digits import has_digits

#: The aggregates that are functions of sums and counts.
_LINEAR = (Count, SumOfWholes, SumOfDoubles, Average)


def sum_by_key(node: Node) -> Node | None:
    """Apply the rule to a node; None if it does not apply."""
    if not isinstance(node, GroupBy) or not isinstance(node.input.input, Join):
        return None
    join = node.input.input
    if join.predicates or join.sums is not None:
        return None
    added: set[int] = set()
    read = _list_places(node.input.by)
    for aggregate in node.aggregates:
        argument = aggregate.argument
        read |= _list_places((argument.chosen,))
        own = _list_places((argument.column,))
        if _is_linear(aggregate) and has_digits(join.schema.field(min(own)).type):
            added |= own
        else:
            read |= own
    sums = {join.keep[p] for p in added} - {join.keep[p] for p in read}
    width = len(join.left.schema)
    sums -= {*join.left_keys, *(width + p for p in join.right_keys)}
    if sums != {p for p in sums if join.keep.count(p) == 1}:
        return None
    summed = replace(join, sums=tuple(sorted(sums)))
    return replace(node, input=replace(node.input, input=summed))


def _is_linear(aggregate: Aggregate) -> bool:
    """Whether an aggregate reads a column by its sum and its count alone."""
    argument = aggregate.argument
    is_column = isinstance(argument.column, int) and not argument.distinct
    return is_column and isinstance(aggregate, _LINEAR)


def _list_places(columns: tuple[int | str | None, ...]) -> set[int]:
    """List the columns that columns and expressions read."""
    found = {column for column in columns if isinstance(column, int)}
    return found | places_in([column for column in columns if isinstance(column, str)])
