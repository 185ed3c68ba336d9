"""Checks of a query whose names are resolved: functions, types, truth values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import duckdb
from sqlglot import exp

from millpond.cql.print.approximations import is_for_quantile
from millpond.cql.print.dialect import to_duckdb
from millpond.cql.tree import nodes
from millpond.cql.tree.function_calls import name_call
from millpond.errors import MillpondError
from millpond.model.approximation import COUNT_DISTINCT, COUNT_OF, QUANTILE, TOP_K
from millpond.model.functions import ALLOWED, Refusal
from millpond.planner.check.duckdb_messages import translate_message
from millpond.planner.check.localize_error import Prober, list_clause_expressions, localize_error
from millpond.planner.check.typecheck import TypeCheck
from millpond.planner.resolve.columns import json_hint
from millpond.planner.resolve.duckdb_tree import FunctionCall, find_calls, find_tables
from millpond.planner.resolve.error_places import mark, mark_word
from millpond.planner.resolve.names import Names, did_you_mean
from millpond.planner.resolve.placement import is_aggregate
from millpond.planner.resolve.pushdown import split_conjuncts
from millpond.planner.resolve.scope import Leaf, SelectScope

#: The arguments of the `approx_…` functions, as their hints write them.
_FORMS = {COUNT_DISTINCT: "x", QUANTILE: "x, 0.5", COUNT_OF: "x, 'a'", TOP_K: "x, 10"}
_RANGES = {TOP_K: " The number is a whole one from 1 to 1,000."}


def check_functions(
    check: TypeCheck, sql: str, tree: exp.Expr, text: str, leaves: list[Leaf], catalog: Names
) -> None:
    """Refuse calls a query may not make.

    Raises:
        MillpondError: CQL-212 or CQL-213, at the call.
    """
    try:
        parsed = check.syntax_tree(sql)
    except ValueError as error:
        # DuckDB's message ends with settings that would help, but users cannot change them.
        detail = str(error).partition(' Use "SET ')[0].rstrip(".")
        raise MillpondError(
            "CQL-219", "the query cannot be understood", detail=f"{detail}."
        ) from None
    for call in find_calls(parsed):
        if not call.is_allowed and call.name not in check.functions:
            raise forbidden_call_error(call, tree, text, catalog.functions())
    known = {f.table for f in leaves} | {c.alias.lower() for c in tree.find_all(exp.CTE)}
    for table in find_tables(parsed):
        if table.lower() not in known:
            raise MillpondError("CQL-201", f'no stream or relation "{table}"')


def forbidden_call_error(
    call: FunctionCall, tree: exp.Expr, text: str, own: Sequence[str] = ()
) -> MillpondError:
    """Make the error of a call that may not be made, at the call."""
    wanted = call.name.replace("_", "")
    span = None
    for node in tree.find_all(exp.Func, bfs=False):
        if name_call(node).replace("_", "") == wanted:
            span = mark(node, text)
            break
    span = span or mark_word(call.name, text)
    if call.refusal is None:
        return MillpondError(
            "CQL-212",
            f'no function "{call.name}"',
            hint=did_you_mean(call.name, [*own, *ALLOWED]),
            text=text if span else None,
            span=span,
        )
    hint = (
        "A query's answer depends on its windows and relations only; for the present, use a "
        "window or BEGIN … END NOW."
    )
    if call.refusal is Refusal.STATISTICS:
        hint = f"Give the least and the greatest value there may be: {call.name}(value, 0, 63)."
    if call.refusal is Refusal.FORM:
        hint = f"Write {call.name}({_FORMS[call.name]}).{_RANGES.get(call.name, '')}"
    return MillpondError(
        "CQL-213",
        f'function "{call.name}" cannot be used in a query',
        detail=call.refusal.value,
        hint=hint,
        text=text if span else None,
        span=span,
    )


def check_window_predicate(leaf: Leaf, check: TypeCheck, tree: exp.Expr, text: str) -> None:
    """Check the predicate inside a window's brackets, which is no part of the residual."""
    if leaf.before is None:
        return
    window = leaf.node.args[nodes.WINDOW]
    sql = f"SELECT {to_duckdb(leaf.before)} FROM {leaf.table}_stream"
    _check_functions_of(sql, check, tree, text)
    for conjunct, place in zip(
        split_conjuncts(leaf.before), split_conjuncts(window.args["where"]), strict=True
    ):
        probe = f"SELECT {to_duckdb(conjunct)} FROM {leaf.table}_stream"
        try:
            type_ = check.columns(probe)[0][1]
            check.check_casts(probe)
        except duckdb.Error as error:
            complaint = translate_message(str(error))
            raise MillpondError(
                complaint.code,
                complaint.primary,
                detail=complaint.detail,
                hint=complaint.hint,
            ).at(text, mark(place, text)) from None
        if type_ not in _TRUTH:
            raise _not_boolean_error(place, type_, "a window's WHERE", text)


def _check_functions_of(sql: str, check: TypeCheck, tree: exp.Expr, text: str) -> None:
    for call in find_calls(check.syntax_tree(sql)):
        if not call.is_allowed and call.name not in check.functions:
            raise forbidden_call_error(call, tree, text)


#: Types a predicate may have; NULL has a type of its own.
_TRUTH = ("BOOLEAN", '"NULL"')
#: Nodes whose type is BOOLEAN, whatever their operands are.
_PREDICATES = (
    exp.Predicate,
    exp.Exists,
    exp.In,
    exp.Between,
    exp.Is,
    exp.Boolean,
)


def check_predicates(scopes: list[SelectScope], prober: Prober, text: str) -> None:
    """Check that WHERE, ON, HAVING and QUALIFY are truth values; DuckDB would cast any value."""
    for scope in scopes:
        select = scope.select
        clauses = [(j.args.get("on"), "ON") for j in select.args.get("joins") or []]
        for key, name in (("where", "WHERE"), ("having", "HAVING"), ("qualify", "QUALIFY")):
            clause = select.args.get(key)
            clauses.append((clause.this if clause is not None else None, name))
        for predicate, name in clauses:
            for operand, type_ in _find_types(list(_find_truth_values(predicate)), scope, prober):
                if type_ not in _TRUTH:
                    raise _not_boolean_error(operand, type_, name, text)


def _find_types(
    operands: list[exp.Expr], scope: SelectScope, prober: Prober
) -> Iterator[tuple[exp.Expr, str]]:
    """Find the types of those expressions that have one."""
    if not operands:
        return
    try:
        yield from zip(operands, prober.types_of(operands, scope), strict=True)
        return
    except duckdb.Error:
        pass
    # A group's key and an aggregate have types, but not beside each other.
    for operand in operands:
        with suppress(duckdb.Error):
            yield operand, prober.type_of(operand, scope)


def _find_truth_values(predicate: exp.Expr | None) -> Iterator[exp.Expr]:
    """Find the operands of AND, OR and NOT whose form does not show that they are truth values."""
    stack = [predicate] if predicate is not None else []
    while stack:
        node = stack.pop()
        if isinstance(node, exp.And | exp.Or):
            stack += [node.expression, node.this]
        elif isinstance(node, exp.Not | exp.Paren):
            stack.append(node.this)
        elif not isinstance(node, _PREDICATES):
            yield node


def _not_boolean_error(node: exp.Expr, type_: str, clause: str, text: str) -> MillpondError:
    return MillpondError(
        "CQL-205",
        f"{clause} needs a BOOLEAN, and this is {type_}",
        hint="Compare it with something.",
    ).at(text, mark(node, text))


def explain_objection(
    message: str, text: str, scopes: list[SelectScope], prober: Prober
) -> MillpondError:
    """Make the error for DuckDB's objection to a query, at the smallest wrong expression."""
    node, _, message = localize_error(scopes, prober, message)
    if isinstance(node, exp.Mul) and is_for_quantile(node):
        return MillpondError(
            "CQL-205",
            "approx_quantile takes numbers",
            hint="Write quantile_disc, which also takes texts and times, and is exact.",
        ).at(text, mark(node.this, text))
    complaint = translate_message(message)
    if node is None and complaint.column is not None:
        node = _column(complaint.column, scopes)
    hint = complaint.hint
    if isinstance(node, exp.Anonymous) and node.name.lower() == "array_extract":
        value, key = node.expressions
        hint = json_hint(to_duckdb(value)) if key.is_string else hint  # written value['key']
    error = MillpondError(complaint.code, complaint.primary, detail=complaint.detail, hint=hint)
    return error.at(text, mark(node, text)) if node is not None else error


def _column(name: str, scopes: list[SelectScope]) -> exp.Expr | None:
    """Find the first reference to a column outside of aggregates."""
    for scope in scopes:
        for part in list_clause_expressions(scope):
            for node in part.walk(prune=is_aggregate):
                if isinstance(node, exp.Column) and node.name.lower() == name.lower():
                    return node
    return None
