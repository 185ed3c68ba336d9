"""Queries inside UPDATE and DELETE that read nothing of the row: answered once."""

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
        MillpondError: POND-404 for a query that cannot be computed, or that gives several rows for
            one value.
    """
    holder = exp.Paren(this=value.copy())
    while (node := _find_outermost(holder)) is not None:
        node.replace(_answer(node, components, at, text))
    found: exp.Expression = holder.this
    return found


def reads_the_row(value: exp.Expression, components: Components) -> bool:
    """Whether an expression has to be answered row by row (`answers_by_row.py`).

    That is where a query in it reads columns of the row, or stands behind ANY or ALL. The
    expression has been bound as a whole, so what a query cannot be bound for alone is a column of
    the row.
    """
    holder = exp.Paren(this=value.copy())
    while (node := _find_outermost(holder)) is not None:
        if isinstance(node.parent, exp.Any | exp.All):
            return True
        query = node.this if isinstance(node, exp.Exists) else node.args.get("query", node)
        try:
            components.registrar.bind(_print(query))
        except MillpondError:
            return True
        node.replace(exp.Null())
    return False


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
            rows = _ask(node.this, components, at).num_rows
            return exp.Boolean(this=rows > 0)
        case exp.In():
            values = _constants(_ask(node.args["query"], components, at), components)
            if not values:
                return exp.Boolean(this=False)
            return exp.In(this=node.this.copy(), expressions=values)
    values = _constants(_ask(node, components, at), components)
    if len(values) > 1:
        raise MillpondError(
            "POND-404",
            f"a query that stands for one value gives {len(values)} rows",
            hint="Choose one, for example with max(...) or LIMIT 1.",
            text=text,
            span=span_of(node),
        )
    return exp.Paren(this=values[0] if values else exp.Null())


def _ask(node: exp.Expr, components: Components, at: int) -> pa.Table:
    query = _print(node)
    components.inputs.wait(query)
    return components.invoker.invoke(components.registrar.prepare_once(query), at).table


def _print(node: exp.Expr) -> str:
    return print_query(node.unnest() if isinstance(node, exp.Subquery) else node)


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
