"""Queries that are aggregates of one stream's elements, and nothing more.

Such an answer is one row, and each of its columns is a function of a total: of the rows that match,
or of one column's values in them. So the answer can be merged from totals that segments keep
(`millpond.engine.aggregates`), and no row has to be fetched but at the window's edges.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from millpond.cql.print import approximations
from millpond.cql.tree.function_calls import name_call
from millpond.model.approximation import APPROXIMATE, COUNT_OF, QUANTILE, TOP_K
from millpond.model.windows import Rows
from millpond.planner.resolve.from_clause import is_more_than_a_projection
from millpond.planner.resolve.pushdown import is_pushed_whole
from millpond.planner.resolve.scope import Leaf, SelectScope
from millpond.synopses.group_totals import Grouped
from millpond.synopses.order_keys import is_whole
from millpond.synopses.totals import ColumnKind, kind_of

#: The functions whose values come from totals; those of `APPROXIMATE` come from sketches.
COUNT, SUM, AVG, MIN, MAX = FUNCTIONS = ("count", "sum", "avg", "min", "max")


@dataclass(frozen=True)
class ColumnAggregate:
    """A call of an aggregate function of a stream's column.

    Attributes:
        function: One of `FUNCTIONS` or `APPROXIMATE`.
        column: The argument, as the stream declares it; None for `COUNT(*)`.
        share: Which quantile, of `approx_quantile`.
        value: Which value is counted, of `approx_count`.
    """

    function: str
    column: str | None
    share: float | None = None
    value: int | str | None = None

    @property
    def sketch(self) -> str | None:
        """The function whose sketch the value comes from; None if it comes from totals."""
        return self.function if self.function in APPROXIMATE else None


def find_aggregates(
    body: exp.Expr, leaves: list[Leaf], scopes: list[SelectScope]
) -> tuple[ColumnAggregate, ...] | None:
    """Find the calls that are a query's columns; None if the query is anything else.

    Args:
        body: The query.
        leaves: Its occurrences of streams and relations.
        scopes: Its SELECTs, resolved and pushed down.
    """
    plain = _find_scope(body, leaves, scopes)
    if plain is None:
        return None
    scope, leaf = plain
    calls = [_read_call(item.unalias(), scope, leaf) for item in body.expressions]
    found = tuple(call for call in calls if call is not None)
    return found if found and len(found) == len(calls) else None


def _find_scope(
    body: exp.Expr,
    leaves: list[Leaf],
    scopes: list[SelectScope],
    known: Collection[str] = (),
) -> tuple[SelectScope, Leaf] | None:
    """Find the scope and the stream of a query over one window of time and its WHERE alone.

    `known` has the clauses that the query may have besides.
    """
    if not isinstance(body, exp.Select) or len(leaves) != 1 or len(scopes) != 1:
        return None
    scope, leaf = scopes[0], leaves[0]
    if scope.select is not body or not leaf.is_stream or scope.sources[0].leaf is not leaf:
        return None
    if body.args.get("joins") or is_more_than_a_projection(body, known):
        return None
    if not is_pushed_whole(scope):
        return None
    if isinstance(leaf.window, Rows) or leaf.sample is not None or leaf.hidden:
        return None
    return scope, leaf


#: What has to be measured of a column by group, by function (`Grouped`).
_MEASURED = {COUNT: "c", SUM: "s", AVG: "cs", MIN: "l", MAX: "h"}


@dataclass(frozen=True)
class GroupedAggregates:
    """The columns of a query that is aggregates by group of one stream's columns.

    Attributes:
        grouped: What totals the aggregates need.
        items: The answer's columns: the name of a key, or a call.
    """

    grouped: Grouped
    items: tuple[str | ColumnAggregate, ...]


def find_grouped_aggregates(
    body: exp.Expr, leaves: list[Leaf], scopes: list[SelectScope]
) -> GroupedAggregates | None:
    """Find what a query asks of groups; None if it is anything else.

    Args:
        body: The query.
        leaves: Its occurrences of streams and relations.
        scopes: Its SELECTs, resolved and pushed down.
    """
    if not isinstance(body, exp.Select):
        return None
    clause = body.args.get("group")
    if clause is None or any(value for key, value in clause.args.items() if key != "expressions"):
        return None
    plain = _find_scope(body, leaves, scopes, {"group"})
    if plain is None:
        return None
    scope, leaf = plain
    keys: list[str] = []
    for key in clause.expressions:
        field = _find_field(key, scope, leaf)
        if field is None or not _can_be_key(field.type):
            return None
        keys.append(field.name)
    items: list[str | ColumnAggregate] = []
    measures: dict[str, str] = {}
    for item in body.expressions:
        inner = item.unalias()
        field = _find_field(inner, scope, leaf)
        if field is not None and field.name in keys:
            items.append(field.name)
            continue
        call = _read_call(inner, scope, leaf)
        if call is None or call.sketch is not None:
            return None
        if call.column is not None:
            type_ = leaf.definition.schema.to_arrow().field(call.column).type
            if call.function in (SUM, AVG) and not is_whole(type_):
                return None  # the sum of doubles would depend on the order
            measures[call.column] = measures.get(call.column, "") + _MEASURED[call.function]
        items.append(call)
    if not keys or not any(isinstance(item, ColumnAggregate) for item in items):
        return None
    columns = tuple((name, "".join(sorted(set(wanted)))) for name, wanted in measures.items())
    grouped = Grouped(tuple(dict.fromkeys(keys)), columns)
    return GroupedAggregates(grouped, tuple(items))


def _can_be_key(type_: pa.DataType) -> bool:
    """Whether equal values of a type have equal bits."""
    if pa.types.is_string(type_) or pa.types.is_boolean(type_):
        return True
    return kind_of(type_) is ColumnKind.WHOLE


def find_approximations(body: exp.Expr) -> tuple[tuple[int, str], ...]:
    """Find a query's columns that are values of `approx_…` functions: (place, function) of each."""
    if not isinstance(body, exp.Select) or any(item.is_star for item in body.expressions):
        return ()
    found = [
        (place, item.unalias().meta.get(approximations.FUNCTION))
        for place, item in enumerate(body.expressions)
    ]
    return tuple((place, function) for place, function in found if function)


def _read_call(node: exp.Expr, scope: SelectScope, leaf: Leaf) -> ColumnAggregate | None:
    if node.meta.get(approximations.FUNCTION):
        return _read_approximation(node, scope, leaf)
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
    field = _find_field(argument, scope, leaf)
    if field is None or not _has_totals(function, field.type):
        return None
    return ColumnAggregate(function, field.name)


def _find_field(node: exp.Expr | None, scope: SelectScope, leaf: Leaf) -> pa.Field | None:
    """Find the column of the stream that a node names."""
    resolution = scope.resolved.get(id(node)) if isinstance(node, exp.Column) else None
    if resolution is None or resolution.source is not scope.sources[0] or resolution.outer:
        return None
    place = scope.sources[0].place(resolution.column)
    return None if place is None else leaf.definition.schema.to_arrow().field(place)


def _read_approximation(node: exp.Expr, scope: SelectScope, leaf: Leaf) -> ColumnAggregate | None:
    function = node.meta[approximations.FUNCTION]
    share = node.meta.get(approximations.SHARE)
    if not node.meta[approximations.IS_COLUMN] or node.find(exp.Filter):
        return None
    field = _find_field(node.find(exp.Column), scope, leaf)
    if field is None or not _has_sketch(function, field.type):
        return None
    if function == QUANTILE and (share is None or not 0 <= share <= 1):
        return None
    value = node.meta.get(approximations.VALUE)
    if function == COUNT_OF and not _is_of_type(value, field.type):
        return None
    return ColumnAggregate(function, field.name, share, value)


def _is_of_type(value: int | str | None, type_: pa.DataType) -> bool:
    """Whether DuckDB compares a constant with a column in the column's type."""
    if isinstance(value, str):
        return bool(pa.types.is_string(type_))
    return value is not None and pa.types.is_integer(type_) and -(2**31) <= value < 2**31


def _has_sketch(function: str, type_: pa.DataType) -> bool:
    """Whether DuckDB reads a column of this type from a segment as it does from a window."""
    if function == TOP_K:
        return False
    if kind_of(type_) is not ColumnKind.COUNTED:
        return True
    return function != QUANTILE and (pa.types.is_string(type_) or pa.types.is_boolean(type_))


def _has_totals(function: str, type_: pa.DataType) -> bool:
    """Whether totals of a column of this type have what the function needs."""
    return function == COUNT or kind_of(type_) is not ColumnKind.COUNTED
