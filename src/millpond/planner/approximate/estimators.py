"""Estimators: aggregates of one stream's elements, computed from a sample of them (STREAM, 5.1.2).

COUNT and SUM of a sample of p % are scaled by 100/p; AVG is that of the sample. Each group is
estimated by itself. The estimating query has the answer's columns and, behind them, what the bounds
of each estimate are computed from (`millpond.synopses.sample_bounds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millpond.cql.tree import nodes
from millpond.cql.tree.function_calls import name_call
from millpond.model.schema import Field, Schema
from millpond.model.windows import Rows
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.residual import LEAF, replace_literals
from millpond.planner.resolve.placement import is_aggregate

COUNT, SUM, AVG = _ESTIMATED = ("count", "sum", "avg")
_PARTS = {"kind", "expressions", "from_", "where", "group", "order", "operation_modifiers"}
_NUMBERS = ("BIGINT", "HUGEINT", "INTEGER", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT", "DECIMAL")


@dataclass(frozen=True)
class Estimate:
    """A column of an answer that is estimated.

    Attributes:
        place: The column's place in the answer.
        function: 'count', 'sum' or 'avg'.
        column: The stream's column it is computed from; None for a count, or for an expression,
            whose range is not known, so that its estimate has no bounds.
    """

    place: int
    function: str
    column: str | None


def find_estimates(bound: BoundQuery) -> tuple[Estimate, ...] | str:
    """The columns of an answer that can be estimated from a sample; or why there is no estimator.

    Every column is a COUNT, a SUM or an AVG of rows of one stream, or a value of a group.
    """
    body = bound.tree
    if not isinstance(body, exp.Select) or len(bound.streams) != 1:
        return "there are estimators for one SELECT from one stream"
    table = body.args["from_"].this if body.args.get("from_") else None
    leaf = bound.streams[0]
    if not isinstance(table, exp.Table) or table.meta.get(LEAF) != leaf.table:
        return "there are estimators for a SELECT from the stream itself"
    parts = {key for key, value in body.args.items() if value not in (None, False, [])}
    if unknown := parts - _PARTS - {nodes.PERIOD}:
        shown = ", ".join(sorted(part.strip("_").upper() for part in unknown))
        return f"there is no estimator for a SELECT with {shown}"
    if isinstance(leaf.window, Rows):
        return "a sample of the last rows is not one of the elements"
    group = body.args.get("group")
    if group is not None and any(v for k, v in group.args.items() if k != "expressions"):
        return "there is no estimator for several groupings at once"
    found = []
    for place, item in enumerate(body.expressions):
        call = item.unalias()
        if not any(is_aggregate(node) for node in call.walk()):
            continue
        estimate = _read(place, call, bound)
        if isinstance(estimate, str):
            return estimate
        found.append(estimate)
    if not found:
        return "it has no aggregate"
    return tuple(found)


def _read(place: int, call: exp.Expr, bound: BoundQuery) -> Estimate | str:
    name = name_call(call) if is_aggregate(call) else ""
    if name not in _ESTIMATED or not isinstance(call, exp.Count | exp.Sum | exp.Avg):
        return "there are estimators for COUNT, SUM and AVG alone"
    argument = call.this
    if call.expressions or isinstance(argument, exp.Distinct | exp.Order) or argument is None:
        return f"there is no estimator for {name.upper()} of distinct or ordered values"
    if isinstance(argument, exp.Star):
        return Estimate(place, name, None)
    if any(isinstance(node, exp.Query) for node in argument.walk()):
        return f"there is no estimator for {name.upper()} of a subquery"
    type_ = bound.output.fields[place].type
    if name != COUNT and not type_.startswith(_NUMBERS):
        return f"there is no estimator for {name.upper()} of {type_}"
    column = None
    if name != COUNT and isinstance(argument, exp.Column):
        named = [n for n in bound.streams[0].columns if n.lower() == argument.name.lower()]
        column = named[0] if named else None
    return Estimate(place, name, column)


def estimating_query(
    bound: BoundQuery, estimates: Sequence[Estimate], percent: float
) -> BoundQuery:
    """The query over a sample that gives the estimates, and behind them what bounds need.

    Behind the answer come: of a count how many were counted; of a sum the
    sum and the sum of squares in the sample; of an average how many values, and their variance.
    """
    tree = bound.tree.copy()
    replace_literals(tree, bound.literals)
    items = list(tree.expressions)
    fields = list(bound.output.fields)
    for estimate in estimates:
        item = items[estimate.place]
        call = item.unalias()
        items[estimate.place] = exp.alias_(
            _scale(call.copy(), estimate, percent, fields[estimate.place].type),
            fields[estimate.place].name,
            quoted=True,
        )
        extra = _measures(call, estimate.function)
        for number, measure in enumerate(extra):
            name = f"__estimate_{estimate.place}_{number}"
            items.append(exp.alias_(measure, name, quoted=True))
            fields.append(Field(name, "DOUBLE"))
    tree.set("expressions", items)
    return replace(
        bound,
        tree=tree,
        literals={},
        output=Schema(tuple(fields)),
        projection=None,
        aggregates=None,
        grouped=None,
        join=None,
    )


def _scale(call: exp.Expr, estimate: Estimate, percent: float, type_: str) -> exp.Expr:
    if estimate.function == AVG:
        return call
    factor = _double(exp.Literal.string(repr(100 / percent)))
    return exp.Cast(
        this=exp.Mul(this=_double(call), expression=factor), to=exp.DataType.build(type_, "duckdb")
    )


def _measures(call: exp.Expr, function: str) -> list[exp.Expr]:
    argument = call.this
    if function == COUNT:
        return [_double(call.copy())]
    value = _double(argument.copy())
    if function == SUM:
        square = exp.Mul(this=value.copy(), expression=value.copy())
        return [exp.Sum(this=value), exp.Sum(this=square)]
    variance = exp.AnonymousAggFunc(this="var_pop", expressions=[value.copy()])
    return [_double(exp.Count(this=argument.copy(), big_int=True)), variance]


def _double(value: exp.Expr) -> exp.Expr:
    return exp.Cast(this=value, to=exp.DataType.build("DOUBLE"))
