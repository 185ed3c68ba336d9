"""Queries that are aggregates of one stream's elements, and nothing more.

Such an answer is one row, and each of its columns is a function of a total: of the rows that match,
or of one column's values in them. So the answer can be merged from totals that segments keep
(`millpond.engine.aggregates`), and no row has to be fetched but at the window's edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from millpond.cql.tree.function_calls import name_call
from millpond.model.windows import Rows
from millpond.planner.resolve.from_clause import is_more_than_a_projection
from millpond.planner.resolve.pushdown import is_pushed_whole
from millpond.planner.resolve.scope import Leaf, SelectScope
from millpond.synopses.totals import ColumnKind, kind_of

#: The functions whose values come from totals.
COUNT, SUM, AVG, MIN, MAX = FUNCTIONS = ("count", "sum", "avg", "min", "max")


@dataclass(frozen=True)
class ColumnAggregate:
    """A call of an aggregate function of a stream's column.

    Attributes:
        function: One of `FUNCTIONS`.
        column: The argument, as the stream declares it; None for `COUNT(*)`.
    """

    function: str
    column: str | None


def find_aggregates(
    body: exp.Expr, leaves: list[Leaf], scopes: list[SelectScope]
) -> tuple[ColumnAggregate, ...] | None:
    """Find the calls that are a query's columns; None if the query is anything else.

    Args:
        body: The query.
        leaves: Its occurrences of streams and relations.
        scopes: Its SELECTs, resolved and pushed down.
    """
    if not isinstance(body, exp.Select) or len(leaves) != 1 or len(scopes) != 1:
        return None
    scope, leaf = scopes[0], leaves[0]
    if scope.select is not body or not leaf.is_stream or scope.sources[0].leaf is not leaf:
        return None
    if body.args.get("joins") or is_more_than_a_projection(body) or not is_pushed_whole(scope):
        return None
    if isinstance(leaf.window, Rows) or leaf.sample is not None or leaf.hidden:
        return None
    calls = [_read_call(item.unalias(), scope, leaf) for item in body.expressions]
    found = tuple(call for call in calls if call is not None)
    return found if found and len(found) == len(calls) else None


def _read_call(node: exp.Expr, scope: SelectScope, leaf: Leaf) -> ColumnAggregate | None:
    if not isinstance(node, exp.Count | exp.Sum | exp.Avg | exp.Min | exp.Max):
        return None
    function, argument = name_call(node), node.this
    if node.expressions or argument is None:
        return None
    if isinstance(argument, exp.Star):
        plain = function == COUNT and not any(argument.args.values())
        return ColumnAggregate(COUNT, None) if plain else None
    if isinstance(argument, exp.Literal):
        return ColumnAggregate(COUNT, None) if function == COUNT else None
    resolution = scope.resolved.get(id(argument)) if isinstance(argument, exp.Column) else None
    if resolution is None or resolution.source is not scope.sources[0] or resolution.outer:
        return None
    place = scope.sources[0].place(resolution.column)
    if place is None:
        return None
    field = leaf.definition.schema.to_arrow().field(place)
    if not _has_totals(function, field.type):
        return None
    return ColumnAggregate(function, field.name)


def _has_totals(function: str, type_: pa.DataType) -> bool:
    """Whether totals of a column of this type have what the function needs."""
    return function == COUNT or kind_of(type_) is not ColumnKind.COUNTED
