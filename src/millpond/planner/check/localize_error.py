"""Where a query is wrong: the smallest expression DuckDB does not accept.

DuckDB gives the place of an error in the generated SQL, not in the user's text. So DuckDB is asked
to bind each expression alone, over the expression's FROM clause, and then the parts of a wrong
expression, until all parts are right and the whole is not. This is slow, and is only done for a
wrong query. A query of many expressions over many streams would take minutes: so the SQL that is
bound for one query has a limit, after which the error has no place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.errors import MillpondError
from millpond.planner.check.typecheck import Columns, TypeCheck
from millpond.planner.residual import to_slices
from millpond.planner.resolve.pushdown import split_conjuncts
from millpond.planner.resolve.scope import SelectScope

#: The most characters of SQL that DuckDB is asked to bind for the places of one query's errors;
#: they take it some seconds.
MOST_PROBED = 400_000

#: Nodes that have no type of their own, or cannot be bound alone.
_NOT_ALONE = (
    exp.Identifier,
    exp.DataType,
    exp.Var,
    exp.Star,
    exp.Query,
    exp.Interval,
    exp.Any,
    exp.All,
)
#: Nodes that contain expressions, but are not expressions.
_HOLDERS = (
    exp.Ordered,
    exp.Order,
    exp.Where,
    exp.Distinct,
    exp.Tuple,
    exp.If,
    exp.Group,
    exp.WindowSpec,
    exp.Limit,
    exp.Offset,
)


class Prober:
    """Asks DuckDB to bind single expressions of a query."""

    def __init__(self, check: TypeCheck) -> None:
        self._check = check
        self._probed = 0

    def type_of(self, node: exp.Expr, scope: SelectScope) -> str:
        """Find the type of an expression.

        Raises:
            duckdb.Error: the expression has no type.
            MillpondError: as `types_of`.
        """
        return self.types_of([node], scope)[0]

    def types_of(self, nodes: Sequence[exp.Expr], scope: SelectScope) -> list[str]:
        """Find the types of expressions, all at once.

        Raises:
            duckdb.Error: one of the expressions has no type beside the others.
            MillpondError: CQL-104, too much was asked for this query.
        """
        return [type_ for _, type_ in self._bind(self._sql(nodes, scope))]

    def _bind(self, sql: str) -> Columns:
        self._probed += len(sql)
        if self._probed > MOST_PROBED:
            raise MillpondError(
                "CQL-104",
                "the query has too many expressions over too many streams to be checked",
                hint="Read fewer streams at once, or ask with several queries.",
            )
        return self._check.columns(sql)

    def find_objection(self, node: exp.Expr, scope: SelectScope) -> str | None:
        """Find DuckDB's objection to an expression, or None.

        An expression over groups is right only with the GROUP BY clause, an expression over rows
        (the argument of an aggregate) only without it. So an expression is tried both ways; an
        expression in the wrong one of the two places fails when DuckDB binds the whole.
        """
        objection = None
        for group in (None, scope.select.args.get("group")):
            if group is None and objection is not None:
                break
            sql = self._sql([node], scope, group)
            try:
                self._bind(sql)
                self._check.check_casts(sql)
            except duckdb.Error as error:
                objection = objection or str(error)
            else:
                return None
        return objection

    def _sql(
        self, nodes: Sequence[exp.Expr], scope: SelectScope, group: exp.Expr | None = None
    ) -> str:
        probe = exp.Select(expressions=[self._isolate(node, scope, set()) for node in nodes])
        if group is not None:
            probe.set("group", group.copy())
        select = scope.select
        if (clause := select.args.get("from_")) is not None:
            probe.set("from_", clause.copy())
            probe.set("joins", [self._join(j) for j in select.args.get("joins") or []])
        if windows := select.args.get("windows"):
            probe.set("windows", [w.copy() for w in windows])
        ctes = [
            cte.copy()
            for ancestor in reversed(list(_ancestors(select)))
            if (with_ := ancestor.args.get("with_")) is not None
            for cte in with_.expressions
        ]
        if ctes:
            probe.set("with_", exp.With(expressions=ctes))
        to_slices(probe)
        return to_duckdb(probe)

    def _join(self, join: exp.Join) -> exp.Join:
        """Copy a join without the parts of its ON that could be wrong."""
        copied = join.copy()
        if copied.args.get("on") is not None:
            copied.set("on", exp.true())
        return copied

    def _isolate(self, node: exp.Expr, scope: SelectScope, seen: set[str]) -> exp.Expr:
        """Copy an expression with aliases spelled out and outer columns as NULLs of their type."""
        copied = node.copy()
        holder = exp.Paren(this=copied)
        originals, copies = list(node.find_all(exp.Column)), list(copied.find_all(exp.Column))
        for original, column in zip(originals, copies, strict=True):
            resolution = scope.resolved.get(id(original))
            if resolution is None:
                continue
            if resolution.source is None:
                alias = original.name.lower()
                definition = scope.aliases.get(alias)
                if definition is not None and alias not in seen:
                    column.replace(exp.Paren(this=self._isolate(definition, scope, seen | {alias})))
            elif resolution.outer and resolution.source not in scope.sources:
                null: exp.Expr = exp.null()
                if (type_ := resolution.source.type_of(resolution.column)) is not None:
                    null = exp.cast(exp.null(), type_, dialect="duckdb")
                column.replace(null)
        return holder.this


def localize_error(
    scopes: list[SelectScope], prober: Prober, message: str
) -> tuple[exp.Expr | None, SelectScope | None, str]:
    """Find the smallest wrong expression, its scope, and DuckDB's objection to it.

    Args:
        scopes: The query's SELECTs, inner ones first.
        prober: Asks DuckDB.
        message: The objection to the whole query, returned if no single expression is wrong, or
            if too much would have to be bound to find it.
    """
    try:
        for scope in scopes:
            for node in list_clause_expressions(scope):
                objection = prober.find_objection(node, scope)
                if objection is not None:
                    found, objection = _narrow(node, scope, prober, objection)
                    return found, scope, objection
    except MillpondError as error:
        if error.code != "CQL-104":
            raise
    return None, None, message


def list_clause_expressions(scope: SelectScope) -> Iterator[exp.Expr]:
    """List the expressions of a SELECT's own clauses."""
    select = scope.select
    for join in select.args.get("joins") or []:
        yield from split_conjuncts(join.args.get("on"))
    if (where := select.args.get("where")) is not None:
        yield from split_conjuncts(where.this)
    for key in ("expressions", "group", "having", "qualify", "order"):
        value = select.args.get(key)
        for item in value if isinstance(value, list) else [value] if value is not None else []:
            yield from _find_isolable(item)


def _find_isolable(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.Alias | exp.Having | exp.Qualify):
        yield from _find_isolable(node.this)
    elif isinstance(node, _HOLDERS):
        for child in node.iter_expressions():
            yield from _find_isolable(child)
    elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        return
    elif not isinstance(node, _NOT_ALONE):
        yield node


def _narrow(
    node: exp.Expr, scope: SelectScope, prober: Prober, objection: str
) -> tuple[exp.Expr, str]:
    for child in node.iter_expressions():
        for part in _find_isolable(child):
            inner = prober.find_objection(part, scope)
            if inner is not None:
                return _narrow(part, scope, prober, inner)
    return node, objection


def _ancestors(node: exp.Expr) -> Iterator[exp.Expr]:
    at: exp.Expr | None = node
    while at is not None:
        yield at
        at = at.parent
