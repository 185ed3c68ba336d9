"""FROM clauses: each item becomes a source, each join a step above its sources."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from sqlglot import exp

from millpond.catalog.objects import Definition
from millpond.cql.tree import nodes
from millpond.errors import MillpondError
from millpond.model.windows import Period
from millpond.planner.resolve.leaves import leaf_of, period_of, sample_of
from millpond.planner.resolve.names import Names, spell
from millpond.planner.resolve.placement import Placement
from millpond.planner.resolve.row_by_row import is_row_by_row
from millpond.planner.resolve.scope import (
    Body,
    Cte,
    JoinStep,
    Leaf,
    Resolution,
    SelectScope,
    Source,
)
from millpond.planner.resolve.views import VIEW


class QueryWalk(Protocol):
    """The walk over the whole query, as reading a FROM clause uses it.

    Attributes:
        text: The statement's text, for errors.
        catalog: Where names are looked up.
        leaves: Every occurrence of a stream or relation, in the order found.
        resolved: The meanings of columns, by the id of their nodes.
        used: The definitions the query depends on, by the name they were looked up under.
    """

    text: str
    catalog: Names
    leaves: list[Leaf]
    resolved: dict[int, Resolution]
    used: dict[str, Definition]

    def query(
        self,
        node: exp.Expr,
        parent: SelectScope | None,
        known: dict[str, Cte],
        period: Period | None = None,
    ) -> Body:
        """Resolve a query expression."""
        ...

    def read_cte(self, cte: Cte, period: Period | None, reader: exp.Expr) -> Body:
        """Give the body of a WITH entry that a FROM item reads."""
        ...

    def expression(
        self, node: exp.Expr, scope: SelectScope, known: dict[str, Cte], place: Placement
    ) -> None:
        """Resolve the columns and subqueries of a scalar expression or clause."""
        ...

    def error(
        self,
        code: str,
        primary: str,
        node: exp.Expr | None,
        *,
        detail: str | None = None,
        hint: str | None = None,
    ) -> MillpondError:
        """Make an error placed at a node of the statement."""
        ...


class FromClause:
    """Reads one SELECT's FROM clause into its scope.

    Sources become visible from left to right: a subquery may use the columns of the items before
    it (DuckDB's FROM is lateral), a join's ON those of the join's two sides.
    """

    def __init__(
        self,
        resolver: QueryWalk,
        scope: SelectScope,
        known: dict[str, Cte],
        inherited: Period | None,
        own: nodes.Period | None,
    ) -> None:
        self.resolver = resolver
        self.scope = scope
        self.known = known
        self.direct = own is not None
        self.period = period_of(own) if own is not None else inherited

    def read(self) -> None:
        """Read the FROM clause and fill the scope.

        Raises:
            MillpondError: what is wrong with an item or an ON.
        """
        select = self.scope.select
        clause = select.args.get("from_")
        if clause is None:
            if self.direct:
                raise self.resolver.error(
                    "CQL-218", "BEGIN … END without a FROM clause", select.args[nodes.PERIOD]
                )
            return
        self._chain(self._item(clause.this, []), select.args.get("joins") or [], [])

    def _chain(
        self, left: list[Source], joins: list[exp.Join], before: list[Source]
    ) -> list[Source]:
        """Read a chain of joins; `before` are the sources visible to the left of the chain."""
        for join in joins:
            right = self._item(join.this, [*before, *left])
            left = self._join(join, left, right, before)
        return left

    def _refuse_different(
        self, column: str, left: list[Source], right: list[Source], join: exp.Join
    ) -> None:
        """Refuse to join a text and another type by name, as ON would be (CQL-205)."""
        types = [
            {t for s in side if (t := s.type_of(column)) is not None} for side in (left, right)
        ]
        one, other = (kinds.pop() if len(kinds) == 1 else None for kinds in types)
        if one is None or other is None or one == other or "VARCHAR" not in (one, other):
            return
        how = "NATURAL JOIN" if join.method == "NATURAL" else "USING"
        named = {i.name.lower(): i for i in join.args.get("using") or []}
        raise self.resolver.error(
            "CQL-205",
            f'{how} compares "{column}", which is {one} on one side and {other} on the other',
            named.get(column, join.this),
            detail="Every text would be read as the other type, and the first that is none fails.",
            hint=f"Write ON with a cast of one side: CAST(a.{column} AS VARCHAR) = b.{column}.",
        )

    def _join(
        self, join: exp.Join, left: list[Source], right: list[Source], before: list[Source]
    ) -> list[Source]:
        for source in left:
            source.steps.insert(0, JoinStep(join, left=True))
        for source in right:
            source.steps.insert(0, JoinStep(join, left=False))
        using = {i.name.lower() for i in join.args.get("using") or []}
        if join.method == "NATURAL":
            names = {c.lower() for s in left for c in s.columns}
            using = {c.lower() for s in right for c in s.columns if c.lower() in names}
            if any(s.is_open for s in (*left, *right)):
                # NATURAL may join by columns whose names only DuckDB knows.
                for source in (*left, *right):
                    source.need_all()
        if join.method == "ASOF":
            # Of rows it cannot tell apart it takes the least, by all columns of the right side.
            for source in right:
                source.need_all()
        for identifier in join.args.get("using") or []:
            for side in (left, right):
                if not any(s.place(identifier.name) is not None or s.is_open for s in side):
                    raise self.resolver.error(
                        "CQL-202",
                        f'no column "{identifier.name}" on one side of the join',
                        identifier,
                        detail="USING names columns that both sides have.",
                    )
        for column in sorted(using):
            self._refuse_different(column, left, right, join)
            for source in (*left, *right):
                source.need(column)
        self.scope.merged |= using
        if using and join.side in ("RIGHT", "FULL"):
            self.scope.merges_outer = True
        if (on := join.args.get("on")) is not None:
            self.scope.sources = [*left, *right]
            self.resolver.expression(on, self.scope, self.known, Placement("ON", aggregates=False))
        visible = left if join.kind in ("SEMI", "ANTI") else [*left, *right]
        self.scope.sources = [*before, *visible]
        self._refuse_twice(visible)
        return visible

    def _refuse_twice(self, sources: list[Source]) -> None:
        seen: set[str] = set()
        for source in sources:
            name = source.name.lower()
            if name and name in seen:
                raise self.resolver.error(
                    "CQL-203",
                    f'the FROM clause names "{source.name}" twice',
                    source.leaf.node if source.leaf else self.scope.select.args["from_"],
                    hint=f'Give one of them another name: "{source.name} AS {source.name[:1]}2".',
                )
            seen.add(name)

    def _item(self, node: exp.Expr, visible: list[Source]) -> list[Source]:
        self.scope.sources = list(visible)
        sources = self._sources(node, visible)
        self.scope.sources = [*visible, *sources]
        return sources

    def _sources(self, node: exp.Expr, visible: list[Source]) -> list[Source]:
        match node:
            case exp.Table():
                sources = [self._table(node)]
            case exp.Subquery():
                sources = [self._subquery(node)]
            case _:
                raise self.resolver.error(
                    "CQL-219",
                    "a FROM clause reads streams, relations and subqueries only",
                    node,
                )
        return self._chain(sources, node.args.get("joins") or [], visible)

    def _table(self, node: exp.Table) -> Source:
        alias = node.args.get("alias")
        names = tuple(c.name for c in alias.args.get("columns") or []) if alias else ()
        cte = self.known.get(node.name.lower()) if len(node.parts) == 1 else None
        if cte is not None:
            return self._cte(node, cte, names)
        leaf = leaf_of(
            node, self.resolver.text, self.resolver.catalog, self.period, direct=self.direct
        )
        name = ".".join(p.name for p in node.parts)
        found = self.resolver.catalog.find(name)
        self.resolver.used[name] = leaf.definition if found is None else found
        self.resolver.leaves.append(leaf)
        spell(node.this, leaf.definition.name)
        columns = leaf.definition.schema.names
        if names:
            leaf.positional = True
            columns = names + columns[len(names) :]
        name = node.alias or leaf.definition.name
        self._inside_window(leaf, name)
        return Source(name, columns, leaf=leaf)

    def _inside_window(self, leaf: Leaf, name: str) -> None:
        """Resolve the predicate inside a window's brackets against the window's stream only."""
        window = leaf.node.args.get(nodes.WINDOW)
        predicate = window.args.get("where") if window is not None else None
        if predicate is None:
            return
        inner = SelectScope(self.scope.select, None, self.resolver.resolved)
        inner.sources.append(
            Source(name, leaf.definition.schema.names, leaf=Leaf(leaf.node, leaf.definition))
        )
        self.resolver.expression(
            predicate, inner, {}, Placement("a window's WHERE", aggregates=False)
        )
        leaf.before = strip_qualifiers(predicate)

    def _cte(self, node: exp.Table, cte: Cte, names: tuple[str, ...]) -> Source:
        if (window := node.args.get(nodes.WINDOW)) is not None:
            raise self._windowed_query_error(cte.node.alias, window)
        if (sample := node.args.get(nodes.STREAM_SAMPLE)) is not None:
            raise self._sampled_query_error(sample)
        body = self.resolver.read_cte(cte, self.period, node)
        spell(node.this, cte.node.alias)
        return _source(node.alias or cte.node.alias, body, body.rename_columns(names).columns)

    def _subquery(self, node: exp.Subquery) -> Source:
        alias = node.args.get("alias")
        names = tuple(c.name for c in alias.args.get("columns") or []) if alias else ()
        if node.meta.get(VIEW):
            body = self.resolver.query(node.this, None, {}, None)
        else:
            body = self.resolver.query(node.this, self.scope, self.known, self.period)
        if (sample := node.args.get(nodes.STREAM_SAMPLE)) is not None:
            self._sample(body, sample)
        body.reads += 1
        return _source(node.alias, body, body.rename_columns(names).columns)

    def _sample(self, body: Body, sample: exp.Expr) -> None:
        """Apply a subquery's SAMPLE to its stream: it commutes with selecting and projecting."""
        select = body.select
        sources = select.sources if select is not None else []
        leaf = sources[0].leaf if len(sources) == 1 else None
        if (
            select is None
            or leaf is None
            or not leaf.commutes
            or leaf.sample is not None
            or not is_row_by_row(select)
        ):
            raise self._sampled_query_error(sample)
        leaf.sample = sample_of(sample)

    def _windowed_query_error(self, name: str, window: exp.Expr) -> MillpondError:
        return self.resolver.error(
            "CQL-204",
            f'window applied to subquery "{name}"',
            window,
            detail="A subquery is a relation already; windows belong to the streams inside it.",
            hint="Move the window to the stream in the subquery.",
        )

    def _sampled_query_error(self, sample: exp.Expr) -> MillpondError:
        return self.resolver.error(
            "CQL-301",
            "a sample of such a subquery is not available yet",
            sample,
            detail="It is for subqueries that select from one stream, row by row.",
            hint="Write SAMPLE behind the stream in the subquery.",
        )


def _source(name: str, body: Body, columns: tuple[str, ...]) -> Source:
    return Source(name, columns, body=body, is_open=body.is_open)


def strip_qualifiers(predicate: exp.Expr) -> exp.Expr:
    """Copy a predicate without its columns' qualifiers."""
    copied: exp.Expr = predicate.copy()
    for column in list(copied.find_all(exp.Column)):
        for part in ("table", "db", "catalog"):
            column.set(part, None)
    return copied


def is_more_than_a_projection(select: exp.Select, known: Collection[str] = ()) -> bool:
    """Whether a SELECT has clauses, besides `known`, that do more than choose rows and columns."""
    return any(
        select.args.get(clause) and clause not in known
        for clause in (
            "with_",
            "group",
            "having",
            "qualify",
            "windows",
            "order",
            "limit",
            "offset",
            "distinct",
        )
    )
