"""EXPLAIN: a query at each level of planning, as indented text.

The levels are listed in `millpond.cql.tree.explain_levels`. The levels `shared` and `runtime` show
the leaves as `rewritten` does, with facts that only a running pond knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from sqlglot import exp

from millpond.cql.print.dialect import print_query
from millpond.cql.tree.explain_levels import Level
from millpond.errors import MillpondError
from millpond.model.function_names import restore_names
from millpond.model.windows import Rows
from millpond.planner.bind.bound_query import BoundQuery, StreamLeaf
from millpond.planner.explain.logical_plan import LogicalOperator, plan_logically, window_text
from millpond.planner.residual import replace_literals
from millpond.planner.resolve.pushdown import split_conjuncts

#: Says what matches a factor of a leaf's predicate: a grouped filter, or DuckDB alone.
ServedBy = Callable[[StreamLeaf, exp.Expr], str]


def explain(
    bound: BoundQuery,
    level: str = "logical",
    served_by: ServedBy = lambda _leaf, _factor: "factor",
    **facts: Any,
) -> str:
    """Explain a bound query at one level.

    Args:
        bound: The query.
        level: One of `Level`.
        served_by: Describes what matches a factor; only the engine knows.
        facts: For `shared` and `runtime`, the facts the service knows. `leaves` has one mapping
            for every stream leaf, shown under that leaf; the other facts are shown first.

    Raises:
        MillpondError: CQL-214, for another level.
    """
    match level:
        case Level.SYNTAX:
            lines = _show_syntax(_fill_in_literals(bound))
        case Level.LOGICAL:
            lines = chain(_show_logical(plan_logically(bound)), _show_summaries(bound))
        case Level.REWRITTEN:
            lines = _show_rewritten(bound, served_by, {})
        case Level.SHARED | Level.RUNTIME:
            lines = _show_rewritten(bound, served_by, facts)
        case _:
            raise MillpondError(
                "CQL-214",
                f'no level "{level}" of EXPLAIN',
                hint=f"The levels are {', '.join(Level)}.",
            )
    return "\n".join(lines)


def _fill_in_literals(bound: BoundQuery) -> exp.Expr:
    if not bound.literals:
        return bound.tree
    copied = bound.tree.copy()
    replace_literals(copied, bound.literals)
    return copied


# -- syntax ----------------------------------------------------------------------------------------


def _show_syntax(node: exp.Expr, role: str = "", depth: int = 0) -> Iterator[str]:
    label = f"{role}: " if role else ""
    if not any(True for _ in node.iter_expressions()) or isinstance(node, exp.Column):
        yield f"{'  ' * depth}{label}{type(node).__name__} {print_query(node).strip()}".rstrip()
        return
    values = [
        f"{key}={value}"
        for key, value in node.args.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value != ""
    ]
    yield f"{'  ' * depth}{label}{type(node).__name__}{' ' if values else ''}{' '.join(values)}"
    for key, value in node.args.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, exp.Expr):
                yield from _show_syntax(item, key.rstrip("_"), depth + 1)


# -- logical ---------------------------------------------------------------------------------------


def _show_logical(root: LogicalOperator) -> Iterator[str]:
    rows = list(_operator_rows(root, 0))
    width = min(max(len(text) for text, _ in rows) + 2, 100)
    for text, pattern in rows:
        yield f"{text:<{width}}{pattern}"


def _operator_rows(operator: LogicalOperator, depth: int) -> Iterator[tuple[str, str]]:
    detail = f" {operator.detail}" if operator.detail else ""
    yield f"{'  ' * depth}{operator.name}{detail}", operator.pattern.name
    for below in operator.inputs:
        yield from _operator_rows(below, depth + 1)


def _show_summaries(bound: BoundQuery) -> Iterator[str]:
    """The summaries a query asks, and how it can be answered in parts."""
    if bound.preference is not None and not isinstance(bound.partial, str):
        asked = sorted({e.estimate.summary.name for e in bound.preference.estimates})
        fade = f", faded by {bound.preference.fade:g}" if bound.preference.fade != 1 else ""
        budget = ""
        if bound.preference.budget is not None:
            budget = f", {bound.preference.budget} for each element"
        kind = f"a{'n' * (bound.partial.kind == 'aggregate')} {bound.partial.kind}"
        yield (
            f"preference {bound.preference.order}: {kind} in parts, by regions of"
            f" {', '.join(asked)}{fade}{budget}"
        )
    if bound.estimates:
        asked = sorted({e.summary.name for e in bound.estimates.values()})
        yield f"estimates of {', '.join(asked)}"


# -- rewritten, shared, runtime --------------------------------------------------------------------


def _show_rewritten(
    bound: BoundQuery, served_by: ServedBy, facts: Mapping[str, Any]
) -> Iterator[str]:
    known = list(facts.get("leaves") or [])
    yield from _show_facts({k: v for k, v in facts.items() if k != "leaves"}, 0)
    if bound.to_stream is not None:
        yield bound.to_stream
    if bound.projection is not None:
        chosen = ", ".join(c if c == n else f"{c} AS {n}" for c, n in bound.projection)
        yield f"projection {chosen}"
    elif bound.aggregates is not None:
        calls = ", ".join(f"{call.function}({call.column or '*'})" for call in bound.aggregates)
        yield f"aggregates {calls} (merged from the segments' totals, at invocation)"
    else:
        yield "residual (DuckDB, at invocation)"
        yield f"  {restore_names(bound.residual_sql)}"
    for number, leaf in enumerate(bound.streams):
        given = known[number] if number < len(known) else {}
        yield from _show_leaf(leaf, served_by, given)
    for relation in bound.relations:
        yield f"  {relation.table}: relation {relation.relation}, {', '.join(relation.columns)}"
    yield from _show_summaries(bound)


def _show_leaf(leaf: StreamLeaf, served_by: ServedBy, facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"  {leaf.table}: {', '.join(leaf.columns)}"
    depth = 2
    shown = window_text(leaf.window)
    if isinstance(leaf.window, Rows) and leaf.before is not None:
        yield f"{'  ' * depth}window {shown}, counted over what satisfies its WHERE"
    elif isinstance(leaf.window, Rows):
        yield f"{'  ' * depth}window {shown}, counted over all elements"
    else:
        yield f"{'  ' * depth}window {shown}, chosen at invocation"
    applied = (leaf.pushed, "pushed"), (leaf.before, "in the window"), (leaf.after, "after it")
    for predicate, when in applied:
        for conjunct in split_conjuncts(predicate):
            text = print_query(conjunct).strip()
            yield f"{'  ' * (depth + 1)}{served_by(leaf, conjunct)}: {text} ({when})"
    if leaf.sample is not None:
        yield f"{'  ' * (depth + 1)}sample {leaf.sample:g} %"
    yield f"{'  ' * (depth + 1)}stream {leaf.stream}"
    yield from _show_facts(facts, depth + 2)


def _show_facts(facts: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield f"{'  ' * depth}{key}:"
            yield from _show_facts(value, depth + 1)
        elif isinstance(value, list | tuple):
            yield f"{'  ' * depth}{key}:"
            for item in value:
                if isinstance(item, Mapping):
                    yield from _show_facts(item, depth + 1)
                else:
                    yield f"{'  ' * (depth + 1)}{item}"
        else:
            yield f"{'  ' * depth}{key}: {'none' if value is None else value}"
