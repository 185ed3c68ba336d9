"""Sums below a join: where only sums of pairs are wanted, the join keeps sums by key, and no rows.

    γ(sum(b.x), count(*)) (A ⋈ B)   =   γ(sum(b.x), count(*)) (A ⋈ Σ B)

Counts and sums are bilinear in the two inputs, so rows of an input that agree in the columns that
are read one by one can be added up before they are joined (eager aggregation: Yan and Larson, VLDB
1995; for windows it is a departure, as none of the papers has it). What a row costs then no longer
depends on how many partners its key has. Of a key with few partners pairs cost less, so the choice
is the cost model's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millpond.operators.aggregation.aggregate import Aggregate
from millpond.operators.aggregation.aggregates.average import Average
from millpond.operators.aggregation.aggregates.count import Count
from millpond.operators.aggregation.aggregates.sum import SumOfDoubles, SumOfWholes
from millpond.operators.group_by import GroupBy
from millpond.operators.join import Join
from millpond.operators.project import Project
from millpond.operators.protocol.delta import places_in
from millpond.operators.protocol.node import Node
from millpond.operators.structures.value_digits import has_digits
from millpond.operators.union import Union

#: The aggregates that are functions of sums and counts.
_LINEAR = (Count, SumOfWholes, SumOfDoubles, Average)


def sum_by_key(node: Node) -> Node | None:
    """Apply the rule to a node; None if it does not apply."""
    if not isinstance(node, GroupBy):
        return None
    added: set[int] = set()
    types = node.input.input.schema.types
    read = places_in(node.input.by, len(types))
    for aggregate in node.aggregates:
        own = places_in((aggregate.argument.column,), len(types))
        if _is_linear(aggregate) and all(has_digits(types[p]) for p in own):
            added |= own
            read |= places_in((aggregate.argument.chosen,), len(types))
        else:
            read |= places_in(aggregate.columns, len(types))
    summed = _keep_sums(node.input.input, added - read)
    if summed is node.input.input:
        return None
    return replace(node, input=replace(node.input, input=summed))


def sum_further(node: Node) -> Node | None:
    """Have the joins below a join that keeps sums keep sums too; None if there are none.

    Such a join adds up what it gets, so it may get rows that have the same sums.
    """
    if not isinstance(node, Join) or node.sums is None:
        return None
    inputs = tuple(
        _keep_sums(below, set(node.divide_columns(side)[1]))
        for side, below in enumerate(node.inputs)
    )
    return None if inputs == node.inputs else node.over_inputs(inputs)


def _keep_sums(node: Node, added: set[int]) -> Node:
    """Have the joins below keep sums of columns of which sums are wanted, at some places.

    An outer join is a union of a join and of rows without partners.
    """
    if isinstance(node, Union):
        return _over(node, [_keep_sums(i, added) for i in node.inputs])
    if isinstance(node, Project):
        passed = {e for p, e in enumerate(node.expressions) if isinstance(e, int) and p in added}
        rest = tuple(e for p, e in enumerate(node.expressions) if p not in added or e not in passed)
        others = places_in(rest, len(node.input.schema))
        return _over(node, [_keep_sums(node.input, passed - others)])
    if not isinstance(node, Join) or node.predicates or node.sums is not None:
        return node
    if all(isinstance(i, GroupBy) for i in node.inputs):
        return node  # no row has copies that could be added up
    width = len(node.left.schema)
    sums = {node.keep[p] for p in added}
    sums -= {*node.left_keys, *(width + p for p in node.right_keys)}
    sums -= {place for p, place in enumerate(node.keep) if p not in added}
    return replace(node, sums=tuple(sorted(sums)))


def _over(node: Node, inputs: Sequence[Node]) -> Node:
    return node if tuple(inputs) == node.inputs else node.over_inputs(inputs)


def _is_linear(aggregate: Aggregate) -> bool:
    """Whether an aggregate reads a column by its sum and its count alone."""
    argument = aggregate.argument
    is_column = isinstance(argument.column, int) and not argument.distinct
    return is_column and isinstance(aggregate, _LINEAR)
