"""From a query's tree to a bound query: names, push-down, functions, types.

The steps, in order: names are resolved (`resolve`), leaves get the columns they must deliver and
the conjuncts that may be applied to them (`pushdown`), every call is checked against the functions
a query may call (`functions`), and DuckDB binds the residual over empty slices (`typecheck`), which
gives the output's types. Each step may refuse the query with an error at a place in its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb
from sqlglot import exp

from millpond.catalog.objects import Definition, FunctionDef, SummaryDef
from millpond.cql.print.approximations import expand_approximations
from millpond.cql.tree import nodes
from millpond.cql.tree.places import span_of
from millpond.cql.tree.recursion import with_room
from millpond.errors import MillpondError
from millpond.model.function_names import restore_names
from millpond.model.schema import Field, Schema, canonical_type
from millpond.planner.aggregates import (
    find_aggregates,
    find_approximations,
    find_grouped_aggregates,
)
from millpond.planner.bind.bound_query import BoundQuery, RelationLeaf, StreamLeaf
from millpond.planner.bind.preference import (
    BoundPreference,
    PartialShape,
    bind_preference,
    check_preference,
    find_partial_shape,
)
from millpond.planner.check.checks import (
    check_functions,
    check_predicates,
    check_window_predicate,
    explain_objection,
)
from millpond.planner.check.constants import check_constants
from millpond.planner.check.localize_error import Prober
from millpond.planner.check.texts import check_texts
from millpond.planner.check.typecheck import TypeCheck
from millpond.planner.joins import JoinShape, find_join
from millpond.planner.residual import LEAF, write_residual_sql
from millpond.planner.resolve.equal_rows import order_equal_rows
from millpond.planner.resolve.estimates import name_estimates
from millpond.planner.resolve.from_clause import is_more_than_a_projection
from millpond.planner.resolve.inner_streams import name_inner_streams
from millpond.planner.resolve.names import Names, mark_text
from millpond.planner.resolve.negation import name_columns, prepare_negations
from millpond.planner.resolve.nrr_join import mark_nrr_joins
from millpond.planner.resolve.pushdown import is_pushed_whole, push_down
from millpond.planner.resolve.resolver import Resolver
from millpond.planner.resolve.row_order import order_shown_rows
from millpond.planner.resolve.scope import Leaf
from millpond.planner.resolve.user_functions import name_functions
from millpond.planner.resolve.views import expand_views
from millpond.planner.resolve.window_queries import (
    move_window_queries,
    order_counted_elements,
)


@dataclass(frozen=True, eq=False)
class Binding:
    """A bound query and the definitions it was bound with, by the names they were found under."""

    query: BoundQuery
    used: dict[str, Definition]
    functions: Mapping[str, FunctionDef]
    summaries: frozenset[SummaryDef] = frozenset()


def bind(query: exp.Expr, text: str, catalog: Names, text_epoch: int | None = None) -> BoundQuery:
    """Bind a query: resolve its names, check its types, find its leaves.

    Args:
        query: The tree of `text`; it is not changed.
        text: The query's text, to which the tree's places refer.
        catalog: Where names are looked up.
        text_epoch: The epoch at which the text was given: columns that were added to streams
            later are not there for it. None: it is given now.

    Raises:
        MillpondError: CQL-2xx or CQL-301, at the wrong part of the text.
    """
    return bind_with_definitions(query, text, catalog, text_epoch).query


def bind_with_definitions(
    query: exp.Expr, text: str, catalog: Names, text_epoch: int | None = None
) -> Binding:
    """Bind a query as `bind`; return the definitions it was bound with too."""
    try:
        return with_room(lambda: _bind(query, text, catalog, text_epoch))
    except RecursionError:
        raise MillpondError(
            "CQL-219",
            "the query nests too deeply",
            hint="Name parts of it with WITH, or write long lists with IN.",
        ) from None


def _bind(query: exp.Expr, text: str, catalog: Names, text_epoch: int | None) -> Binding:
    tree = query.copy()
    mark_text(tree, text_epoch)
    inner = name_inner_streams(tree, text, catalog)
    views = expand_views(tree, text, catalog)
    if views:
        inner |= name_inner_streams(tree, text, catalog)
    expand_approximations(tree)
    move_window_queries(tree)
    called = name_functions(tree, catalog)
    estimates = name_estimates(tree, text, catalog)
    to_stream = None
    body = tree
    if isinstance(tree, nodes.RelationToStream):
        to_stream, body = str(tree.args["kind"]).lower(), tree.this
    resolver = Resolver(text, catalog)
    resolver.query(body, None, {})
    leaves = _number_leaves(resolver.leaves, body)
    push_down(resolver.scopes)
    order_counted_elements(resolver.scopes)
    order_equal_rows(resolver.scopes)
    mark_nrr_joins(resolver.scopes, leaves, text)
    prepare_negations(body, resolver.scopes, text)
    streams_read = [leaf for leaf in leaves if leaf.is_stream]
    scope = next((s for s in resolver.scopes if s.select is body), None)
    preference = bind_preference(body, scope, streams_read, text, catalog)
    checked = {**called, **{name: e.signature for name, e in estimates.items()}}
    output, join, partial = _check_types(tree, body, text, resolver, leaves, checked, preference)
    order_shown_rows(resolver.scopes, body)
    streams = tuple(_stream_leaf(f) for f in leaves if f.is_stream)
    relations = tuple(
        RelationLeaf(f.table, f.definition.name, f.columns(), f.hidden)
        for f in leaves
        if not f.is_stream
    )
    bound = BoundQuery(
        text=text,
        streams=streams,
        relations=relations,
        projection=_projection(body, resolver, output),
        output=output,
        to_stream=to_stream,
        ordered=body.args.get("order") is not None,
        tree=tree,
        join=join,
        functions=tuple(sorted(f.name for f in called.values())),
        views=tuple(sorted(view.name for view in views.values())),
        aggregates=find_aggregates(body, resolver.leaves, resolver.scopes),
        grouped=find_grouped_aggregates(body, resolver.leaves, resolver.scopes),
        approximations=find_approximations(body),
        estimates=estimates,
        preference=preference,
        partial=partial,
    )
    return Binding(bound, {**resolver.used, **views, **inner}, called, bound.summaries)


def _number_leaves(leaves: list[Leaf], body: exp.Expr) -> list[Leaf]:
    """Sort the leaves in the text's order; name each one's slice so that no CTE hides it."""
    taken = {cte.alias.lower() for cte in body.find_all(exp.CTE)}
    order = {id(node): place for place, node in enumerate(body.find_all(exp.Table, bfs=False))}

    def place(leaf: Leaf) -> int:
        span = span_of(leaf.node.this)
        return span.start if span is not None else order.get(id(leaf.node), 0)

    ordered = sorted(leaves, key=place)
    free = {kind: _free_names(kind, taken) for kind in ("leaf", "rel")}
    for leaf in ordered:
        leaf.table = next(free["leaf" if leaf.is_stream else "rel"])
        leaf.node.meta[LEAF] = leaf.table
    return ordered


def _free_names(prefix: str, taken: set[str]) -> Iterator[str]:
    number = 0
    while True:
        if (name := f"{prefix}_{number}") not in taken:
            yield name
        number += 1


def _stream_leaf(leaf: Leaf) -> StreamLeaf:
    return StreamLeaf(
        table=leaf.table,
        stream=leaf.definition.name,
        window=leaf.window,
        sample=leaf.sample,
        columns=leaf.columns(),
        before_shape=leaf.before,
        pushed_shape=_conjunction(leaf.pushed),
        after_shape=_conjunction(leaf.after),
        hidden=leaf.hidden,
    )


def _conjunction(conjuncts: list[exp.Expr]) -> exp.Expr | None:
    if len(conjuncts) > 1:
        return exp.and_(*conjuncts, copy=False)
    return next(iter(conjuncts), None)


def _projection(
    body: exp.Expr, resolver: Resolver, output: Schema
) -> tuple[tuple[str, str], ...] | None:
    """List (column, output name) pairs, if the residual only projects; None otherwise."""
    if not isinstance(body, exp.Select) or len(resolver.leaves) != 1 or len(resolver.scopes) != 1:
        return None
    scope, leaf = resolver.scopes[0], resolver.leaves[0]
    if scope.select is not body or not leaf.is_stream or not scope.sources[0].leaf:
        return None
    if body.args.get("joins") or is_more_than_a_projection(body):
        return None
    if not is_pushed_whole(scope):
        return None
    source = scope.sources[0]
    columns: list[str] = []
    for item in body.expressions:
        inner = item.unalias()
        if inner.is_star and isinstance(inner, exp.Star | exp.Column):
            columns.extend(leaf.definition.schema.names)
            continue
        resolution = scope.resolved.get(id(inner)) if isinstance(inner, exp.Column) else None
        if resolution is None or resolution.source is not source or not resolution.column:
            return None
        place = source.place(resolution.column)
        assert place is not None
        columns.append(leaf.definition.schema.names[place])
    return tuple(zip(columns, output.names, strict=True))


def _check_types(
    tree: exp.Expr,
    body: exp.Expr,
    text: str,
    resolver: Resolver,
    leaves: list[Leaf],
    called: Mapping[str, FunctionDef],
    preference: BoundPreference | None,
) -> tuple[Schema, JoinShape | None, PartialShape | str]:
    """Check functions and types; return the output's columns, and the query's shapes.

    Raises:
        MillpondError: CQL-205, 206, 210, 212, 213, 219, 220 or 224.
    """
    with TypeCheck(leaves, called) as check:
        prober = Prober(check)
        try:
            name_columns(
                body, lambda left: _names(check.columns(write_residual_sql(left, {})), leaves)
            )
        except duckdb.Error as error:
            raise explain_objection(str(error), text, resolver.scopes, prober) from None
        sql = write_residual_sql(tree, {})
        check_functions(check, sql, tree, text, leaves, resolver.catalog)
        for leaf in leaves:
            check_window_predicate(leaf, check, tree, text)
        try:
            columns = check.columns(sql)
            check.check_casts(sql)
        except duckdb.Error as error:
            raise explain_objection(str(error), text, resolver.scopes, prober) from None
        check_predicates(resolver.scopes, prober, text)
        check_constants(resolver.scopes, check, text)
        check_texts(resolver.scopes, prober, text)
        streams = [f for f in leaves if f.is_stream]
        join = find_join(body, resolver.scopes, streams, check)
        scope = next((s for s in resolver.scopes if s.select is body), None)
        partial = find_partial_shape(body, scope, streams, join)
        if preference is not None:
            check_preference(preference, partial, streams, body, check, text)
    return Schema(tuple(_make_distinct(columns, leaves))), join, partial


def _names(columns: list[tuple[str, str]], leaves: list[Leaf]) -> list[str]:
    return [field.name for field in _make_distinct(columns, leaves)]


def _make_distinct(columns: list[tuple[str, str]], leaves: list[Leaf]) -> Iterator[Field]:
    """Make column names distinct: a name that is there already, in any case, gets a number."""
    names = [_remove_slice_names(restore_names(name), leaves) for name, _ in columns]
    taken = {name.lower() for name in names}
    seen: set[str] = set()
    for name, (_, type_) in zip(names, columns, strict=True):
        chosen, number = name, 0
        while chosen.lower() in seen or (number and chosen.lower() in taken):
            number += 1
            chosen = f"{name}_{number}"
        seen.add(chosen.lower())
        yield Field(chosen, canonical_type(type_) or type_)


def _remove_slice_names(name: str, leaves: list[Leaf]) -> str:
    """Replace slices by streams in the name of an unnamed column, which is its SQL."""
    for leaf in leaves:
        if f"{leaf.table} AS " in name:
            own = exp.to_identifier(leaf.definition.name).sql("duckdb")
            name = re.sub(rf'\b{leaf.table} AS (?={re.escape(own)}(?![\w"]))', "", name)
            name = name.replace(f"{leaf.table} AS ", f"{own} AS ")
    return name
