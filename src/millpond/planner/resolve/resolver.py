"""Names: walk a query and find what every table, alias and column in it means.

The walk follows SQL's scopes: CTEs before the query that reads them, FROM before the other clauses
of a SELECT; a subquery looks a name up in its own scope first, then in the scopes around it. The
walk collects the leaves (each occurrence of a stream or relation), the columns each leaf must
deliver, and the scopes in which predicates are pushed down. DuckDB checks types later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from sqlglot import exp

from millpond.catalog.objects import Definition
from millpond.cql.tree import nodes
from millpond.errors import MillpondError
from millpond.model.windows import Period
from millpond.planner.resolve.columns import resolve_column
from millpond.planner.resolve.error_places import mark
from millpond.planner.resolve.from_clause import FromClause
from millpond.planner.resolve.names import Names, spell
from millpond.planner.resolve.negation import check_attributes
from millpond.planner.resolve.placement import Placement, check_placement, find_set_call
from millpond.planner.resolve.scope import Body, Cte, Leaf, Resolution, SelectScope, Source
from millpond.work import check_work


@dataclass(eq=False)
class Resolver:
    """One walk over one query.

    Attributes:
        text: The statement's text, for errors.
        catalog: Where names are looked up.
        leaves: Every occurrence of a stream or relation, in the order found.
        scopes: Every SELECT, inner ones first.
        resolved: The meanings of columns, by the id of their nodes.
        used: The definitions the query depends on, by the name they were looked up under.
    """

    text: str
    catalog: Names
    leaves: list[Leaf] = field(default_factory=list)
    scopes: list[SelectScope] = field(default_factory=list)
    resolved: dict[int, Resolution] = field(default_factory=dict)
    used: dict[str, Definition] = field(default_factory=dict)

    def query(
        self,
        node: exp.Expr,
        parent: SelectScope | None,
        known: dict[str, Cte],
        period: Period | None = None,
    ) -> Body:
        """Resolve a query expression.

        Args:
            node: A SELECT or a set operation, with or without parentheses.
            parent: The scope around it.
            known: The CTEs it may read, by lower-case name.
            period: The `BEGIN … END` of the FROM clause the expression stands in.

        Raises:
            MillpondError: a name in the expression is wrong; POND-405, the request is to end.
        """
        check_work()
        known, named = self._ctes(node, parent, known)
        match node:
            case exp.Select():
                body = self._select(node, parent, known, period)
            case exp.SetOperation():
                body = self._set_operation(node, parent, known, period)
            case exp.Subquery():
                body = self.query(node.this, parent, known, period)
                self._outer_order(node, body, known)
                if node.args.get("limit") or node.args.get("offset"):
                    # A query with LIMIT does not map rows one by one.
                    body = replace(body, select=None, origins=None)
            case _:
                raise self.error("CQL-219", "a query was expected here", node)
        for cte in named:
            if cte.body is None:
                self.read_cte(cte, None, node)
        return body

    def error(
        self,
        code: str,
        primary: str,
        node: exp.Expr | None,
        *,
        detail: str | None = None,
        hint: str | None = None,
    ) -> MillpondError:
        """Make an error placed at a node."""
        span = mark(node, self.text) if node is not None else None
        return MillpondError(
            code,
            primary,
            detail=detail,
            hint=hint,
            text=self.text if span else None,
            span=span,
        )

    def read_cte(self, cte: Cte, period: Period | None, reader: exp.Expr) -> Body:
        """Give the body of a CTE that a FROM item reads.

        Raises:
            MillpondError: CQL-218, if two readers give the CTE's streams different periods.
        """
        if cte.body is None:
            columns = cte.node.args["alias"].args.get("columns") or []
            body = self.query(cte.node.this, cte.parent, cte.known, period)
            cte.body, cte.period = body.rename_columns(tuple(c.name for c in columns)), period
        elif cte.period != period:
            raise self.error(
                "CQL-218",
                f'"{cte.node.alias}" is read under different BEGIN … END clauses',
                reader,
                hint="Put the BEGIN … END into its own query.",
            )
        cte.body.reads += 1
        return cte.body

    def _ctes(
        self, node: exp.Expr, parent: SelectScope | None, known: dict[str, Cte]
    ) -> tuple[dict[str, Cte], list[Cte]]:
        """List the CTEs that can be read here, and the CTEs of this query's own WITH."""
        clause = node.args.get("with_")
        if clause is None:
            return known, []
        named: dict[str, Cte] = {}
        for entry in clause.expressions:
            name = entry.alias.lower()
            if name in named:
                raise self.error(
                    "CQL-208", f'WITH names "{entry.alias}" twice', entry.args["alias"]
                )
            named[name] = Cte(entry, {**known, **named}, parent)
        return {**known, **named}, list(named.values())

    def _select(
        self,
        node: exp.Select,
        parent: SelectScope | None,
        known: dict[str, Cte],
        period: Period | None,
    ) -> Body:
        scope = SelectScope(node, parent, self.resolved)
        own = node.args.get(nodes.PERIOD)
        FromClause(self, scope, known, period, own).read()
        for item in node.expressions:
            if isinstance(item, exp.Alias):
                scope.aliases[item.alias.lower()] = item.this
        for item in list(node.expressions):
            self.expression(item, scope, known, Placement("SELECT"))
        for item in node.expressions:  # a struct's field was written anew
            if isinstance(item, exp.Alias):
                scope.aliases[item.alias.lower()] = item.this
        self._clauses(node, scope, known)
        self.scopes.append(scope)
        return self._outputs(scope)

    def _clauses(self, node: exp.Select, scope: SelectScope, known: dict[str, Cte]) -> None:
        if where := node.args.get("where"):
            self.expression(where.this, scope, known, Placement("WHERE", aggregates=False))
        if group := node.args.get("group"):
            self.expression(group, scope, known, Placement("GROUP BY", aggregates=False))
        for clause, name in (("having", "HAVING"), ("qualify", "QUALIFY")):
            if part := node.args.get(clause):
                self.expression(part.this, scope, known, Placement(name))
        for window in node.args.get("windows") or []:
            self.expression(window, scope, known, Placement("WINDOW"))
        if distinct := node.args.get("distinct"):
            self.expression(distinct, scope, known, Placement("DISTINCT ON"))
        if order := node.args.get("order"):
            self.expression(order, scope, known, Placement("ORDER BY", aliases_first=True))
        for clause in ("limit", "offset"):
            if part := node.args.get(clause):
                self.expression(
                    part, SelectScope(node, None, self.resolved), known, Placement("LIMIT", False)
                )

    def _set_operation(
        self,
        node: exp.SetOperation,
        parent: SelectScope | None,
        known: dict[str, Cte],
        period: Period | None,
    ) -> Body:
        left = self.query(node.left, parent, known, period)
        right = self.query(node.right, parent, known, period)
        if node.args.get(nodes.BY_ATTRIBUTES):
            check_attributes(node, (left, right), self.text)
        elif left.is_exact and right.is_exact and len(left.columns) != len(right.columns):
            raise self.error(
                "CQL-219",
                f"{node.key.upper()} of {len(left.columns)} and {len(right.columns)} columns",
                node.right,
                detail="Both sides of a set operation have the same number of columns.",
            )
        body = Body(left.columns, left.is_open, None, is_exact=left.is_exact)
        self._outer_order(node, body, known)
        return body

    def _outer_order(self, node: exp.Expr, body: Body, known: dict[str, Cte]) -> None:
        """Resolve ORDER BY and LIMIT around a whole query: they see the query's output only."""
        outputs = SelectScope(exp.Select(), None, self.resolved)
        outputs.sources.append(Source("", body.columns, is_open=body.is_open))
        if order := node.args.get("order"):
            self.expression(order, outputs, known, Placement("ORDER BY", aggregates=False))
        for clause in ("limit", "offset"):
            if part := node.args.get(clause):
                empty = SelectScope(exp.Select(), None, self.resolved)
                self.expression(part, empty, known, Placement("LIMIT", False))

    def expression(
        self, node: exp.Expr, scope: SelectScope, known: dict[str, Cte], place: Placement
    ) -> None:
        """Resolve the columns and subqueries of a scalar expression or clause."""
        # Not by recursion: the tree of a long chain of ORs is as deep as the chain is long.
        stack = [(node, place)]
        while stack:
            node, place = stack.pop()
            check_work()
            check_placement(node, place, self.text)
            match node:
                case exp.Column() if isinstance(node.this, exp.Star):
                    self._resolve_star(node, scope)
                case exp.Column():
                    resolve_column(node, scope, self.text, aliases_first=place.aliases_first)
                case exp.Star():
                    if not isinstance(node.parent, exp.Count):
                        for source in scope.sources:
                            source.need_all()
                case exp.Query():
                    self.query(node, scope, known)
                case _:
                    inner = place.inside(node)
                    stack.extend((child, inner) for child in node.iter_expressions(reverse=True))

    def _resolve_star(self, node: exp.Column, scope: SelectScope) -> Source:
        name = node.table
        at: SelectScope | None = scope
        while at is not None:
            if source := at.find_source(name):
                spell(node.args["table"], source.name)
                source.need_all()
                return source
            at = at.parent
        raise self.error(
            "CQL-202",
            f'no table "{name}" in the FROM clause',
            node,
            hint="There are: " + ", ".join(s.name for s in scope.sources if s.name) + "."
            if scope.sources
            else None,
        )

    def _outputs(self, scope: SelectScope) -> Body:
        """List a SELECT's output columns, each with the plain column it comes from, if any."""
        columns: list[str] = []
        origins: list[Resolution | None] = []
        is_open, is_exact = False, True
        for item in scope.select.expressions:
            inner = item.this if isinstance(item, exp.Alias) else item
            if isinstance(item, exp.Star) or (
                isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
            ):
                sources = (
                    scope.sources
                    if isinstance(item, exp.Star)
                    else [self._resolve_star(item, scope)]
                )
                is_open = is_open or any(s.is_open for s in sources)
                is_exact = is_exact and all(s.body is None or s.body.is_exact for s in sources)
                for source, column in _expand_star(sources, scope.merged):
                    columns.append(column)
                    shared = column.lower() in scope.merged
                    origins.append(None if shared else Resolution(source, column))
                continue
            found = scope.resolved.get(id(inner)) if isinstance(inner, exp.Column) else None
            plain = found is not None and found.source is not None
            named = isinstance(item, exp.Alias) or plain
            columns.append(item.alias_or_name if named else "")
            is_open = is_open or not named
            is_exact = is_exact and find_set_call(item) is None
            kept = plain and found is not None and not found.outer and len(inner.parts) < 3
            origins.append(found if kept else None)
        return Body(
            tuple(columns),
            is_open,
            scope,
            origins=tuple(origins) if is_exact else None,
            is_exact=is_exact,
        )


def _expand_star(sources: Iterable[Source], merged: set[str]) -> Iterator[tuple[Source, str]]:
    """List the columns of `*`: all sources' columns, columns joined by USING once."""
    seen: set[str] = set()
    for source in sources:
        for column in source.columns:
            key = column.lower()
            if key not in merged or key not in seen:
                seen.add(key)
                yield source, column
