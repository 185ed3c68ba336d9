"""Queries inside UPDATE and DELETE: answered once, as of the statement's instant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millpond.cql import parse_query, print_query, span_of
from millpond.errors import MillpondError

if TYPE_CHECKING:
    from millpond.service.components import Components


def answer_subqueries(
    value: exp.Expression, components: Components, at: int, text: str
) -> exp.Expression:
    """Replace each query in an expression by its answer.

    Args:
        value: The expression, which has been checked as a whole; it is not changed.
        components: The pond's components, which answer queries.
        at: The instant as of which the queries are answered.
        text: The statement, for errors.

    Raises:
        MillpondError: CQL-301 for a query that reads columns of the row being changed; POND-404 for
            a query that cannot be computed, or that gives several rows for one value.
    """
    holder = exp.Paren(this=value.copy())
    while (node := _find_outermost(holder)) is not None:
        node.replace(_answer(node, components, at, text))
    found: exp.Expression = holder.this
    return found


def _find_outermost(holder: exp.Expr) -> exp.Expr | None:
    """Find the expression around an outermost query: IN, EXISTS, a comparison, or its brackets."""
    query = next(iter(holder.find_all(exp.Query)), None)
    if query is None:
        return None
    node: exp.Expr = query
    parent = node.parent
    while isinstance(parent, exp.Subquery):
        node, parent = parent, parent.parent
    if isinstance(parent, exp.In | exp.Exists) and node.arg_key != "this":
        return parent
    if isinstance(parent, exp.Exists):
        return parent
    return node


def _answer(node: exp.Expr, components: Components, at: int, text: str) -> exp.Expr:
    match node:
        case exp.Exists():
            rows = _ask(node.this, components, at, text).num_rows
            return exp.Boolean(this=rows > 0)
        case exp.In():
            values = _constants(_ask(node.args["query"], components, at, text), components)
            if not values:
                return exp.Boolean(this=False)
            return exp.In(this=node.this.copy(), expressions=values)
    if isinstance(node.parent, exp.Any | exp.All):
        raise MillpondError(
            "CQL-301",
            "ANY and ALL are not available yet in UPDATE and DELETE",
            hint="Write IN (SELECT ...), or compare with SELECT max(...).",
            text=text,
            span=span_of(node),
        )
    values = _constants(_ask(node, components, at, text), components)
    if len(values) > 1:
        raise MillpondError(
            "POND-404",
            f"a query that stands for one value gives {len(values)} rows",
            hint="Choose one, for example with max(...) or LIMIT 1.",
            text=text,
            span=span_of(node),
        )
    return exp.Paren(this=values[0] if values else exp.Null())


def _ask(node: exp.Expr, components: Components, at: int, text: str) -> pa.Table:
    query = print_query(node.unnest() if isinstance(node, exp.Subquery) else node)
    components.await_inputs(query)
    try:
        prepared = components.registrar.prepare_once(query)
    except MillpondError as error:
        # The whole statement was bound before: a column missing here is the changed row's.
        raise MillpondError(
            "CQL-301",
            "a query in UPDATE or DELETE that reads the row's columns is not available yet",
            detail=error.primary,
            hint="Write column IN (SELECT ...), or make the change row by row.",
            text=text,
            span=span_of(node),
        ) from error
    return components.invoker.invoke(prepared, at).table


def _constants(answer: pa.Table, components: Components) -> list[exp.Expr]:
    """Turn the values of a table's one column into constants of its type."""
    given = answer.rename_columns(["v"])
    texts = components.residual.evaluate(
        "SELECT DISTINCT CAST(v AS VARCHAR) AS v, typeof(v) AS type FROM given", {"given": given}
    )
    return [
        parse_constant(row["v"], row["type"]) if row["v"] is not None else exp.Null()
        for row in texts.to_pylist()
    ]


def parse_constant(value: str, type_: str) -> exp.Expr:
    """Parse a text as a constant of a type."""
    quoted = "'" + value.replace("'", "''") + "'"
    query = parse_query(f"SELECT CAST({quoted} AS {type_})")
    constant: exp.Expr = query.expressions[0]
    return constant
