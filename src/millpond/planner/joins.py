"""Joins of streams: which factors link them, so that SteMs can find the pairs.

If the outermost FROM clause of a query lists streams, joined by inner joins only, the query is a
join of these streams. A factor `left op right` of its WHERE and ON links two streams if each side
reads one stream. The engine decides by the types whether a SteM serves a factor. All conjuncts,
these factors too, stay in the residual, which DuckDB evaluates over the joined slice: the rows that
the SteMs found to join, side by side (`write_joined_sql`). So SteMs may find too many rows, but
must not miss any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb
from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.planner.check.typecheck import TypeCheck
from millpond.planner.residual import LEAF, make_residual_tree, with_literals
from millpond.planner.resolve.from_clause import is_more_than_a_projection, strip_qualifiers
from millpond.planner.resolve.names import spell
from millpond.planner.resolve.pushdown import split_conjuncts, split_where
from millpond.planner.resolve.scope import Leaf, Resolution, SelectScope, Source


@dataclass(frozen=True, eq=False)
class JoinSide:
    """One side of a factor: an expression over one stream's bare, quoted columns.

    Attributes:
        leaf: The stream's place among the query's stream leaves.
        shape: The expression, with the template's constants.
        type: Its type, by DuckDB.
    """

    leaf: int
    shape: exp.Expr
    type: str

    def expression(self, literals: Mapping[int, str]) -> exp.Expr:
        """Fill a query's own constants into the expression."""
        found = with_literals(self.shape, literals)
        assert found is not None
        return found


@dataclass(frozen=True, eq=False)
class JoinFactor:
    """`left op right`, with op one of =, <, <=, >, >=."""

    left: JoinSide
    op: str
    right: JoinSide


@dataclass(frozen=True, eq=False)
class JoinShape:
    """What links the streams of a query's outermost FROM clause.

    Attributes:
        leaves: The streams' places among the query's stream leaves, in the order of FROM.
        factors: The factors that link two of the streams.
        projection: For every column of the answer (place among `leaves`, column), if the query
            only chooses columns of the pairs for which the factors, and the conjuncts that were
            pushed to the streams, are TRUE. None otherwise.
    """

    leaves: tuple[int, ...]
    factors: tuple[JoinFactor, ...]
    projection: tuple[tuple[int, str], ...] | None = None


def find_join(
    body: exp.Expr, scopes: list[SelectScope], streams: list[Leaf], check: TypeCheck
) -> JoinShape | None:
    """Find the join of a query's outermost SELECT; None if SteMs could not serve it.

    Args:
        body: The query.
        scopes: The query's SELECTs, resolved.
        streams: The query's stream leaves in order.
        check: Gives the types of expressions.
    """
    scope = next((s for s in scopes if s.select is body), None)
    if any(leaf.hidden for leaf in streams):
        return None
    if scope is None or not isinstance(body, exp.Select) or not _is_plain(body, scope):
        return None
    place = {id(leaf): number for number, leaf in enumerate(streams)}
    joined = [s.leaf for s in scope.sources if s.leaf is not None and s.leaf.is_stream]
    if len(joined) < 2:
        return None
    found: list[JoinFactor] = []
    predicates, accounted = list(_conjuncts(body)), sum(len(leaf.pushed) for leaf in joined)
    for predicate in predicates:
        known, compared = len(found), list(list_comparisons(predicate))
        for left, op, right in compared:
            sides = [_side(side, scope, place, check) for side in (left, right)]
            if sides[0] is not None and sides[1] is not None and sides[0].leaf != sides[1].leaf:
                found.append(JoinFactor(sides[0], op, sides[1]))
        accounted += bool(compared) and len(found) - known == len(compared)
    if not found:
        return None
    projection = None
    if accounted == len(predicates) and len(joined) == len(scope.sources) and len(scopes) == 1:
        projection = _projection(body, scope, joined)
    return JoinShape(tuple(place[id(leaf)] for leaf in joined), tuple(found), projection)


def _projection(
    select: exp.Select, scope: SelectScope, joined: list[Leaf]
) -> tuple[tuple[int, str], ...] | None:
    """Find `JoinShape.projection`."""
    if is_more_than_a_projection(select):
        return None
    number = {id(leaf): place for place, leaf in enumerate(joined)}
    chosen: list[tuple[int, str]] = []
    for item in select.expressions:
        inner = item.unalias()
        if inner.is_star:
            star = inner.this if isinstance(inner, exp.Column) else inner
            if any(star.args.values()):
                return None
            named = scope.find_source(inner.table) if isinstance(inner, exp.Column) else None
            for source in scope.sources if named is None else [named]:
                assert source.leaf is not None
                place = number[id(source.leaf)]
                chosen += [(place, name) for name in source.leaf.definition.schema.names]
            continue
        resolution = scope.resolved.get(id(inner)) if isinstance(inner, exp.Column) else None
        if resolution is None or resolution.source is None or resolution.merged:
            return None
        leaf, at = resolution.source.leaf, resolution.source.place(resolution.column)
        if leaf is None or at is None or resolution.outer:
            return None
        chosen.append((number[id(leaf)], leaf.definition.schema.names[at]))
    return tuple(chosen)


def _is_plain(select: exp.Select, scope: SelectScope) -> bool:
    """Whether FROM lists streams, then relations, joined by inner joins that merge no columns."""
    kinds = [s.leaf.is_stream if s.leaf is not None else None for s in scope.sources]
    if len(kinds) < 2 or None in kinds or kinds != sorted(kinds, key=bool, reverse=True):
        return False
    joins = select.args.get("joins") or []
    tables = [select.args["from_"].this, *(j.this for j in joins)]
    return all(isinstance(t, exp.Table) and not t.args.get("joins") for t in tables) and all(
        not j.side and not j.method and not j.args.get("using") and j.kind in ("", "INNER", "CROSS")
        for j in joins
    )


def _conjuncts(select: exp.Select) -> Iterator[exp.Expr]:
    """List the conjuncts of WHERE and ON."""
    yield from split_where(select)
    for join in select.args.get("joins") or []:
        yield from split_conjuncts(join.args.get("on"))


def list_comparisons(conjunct: exp.Expr) -> Iterator[tuple[exp.Expr, str, exp.Expr]]:
    """List the comparisons of a conjunct as (left, op, right)."""
    node = conjunct.unnest()
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        yield node.this, ">=", node.args["low"]
        yield node.this, "<=", node.args["high"]
    elif type(node) in _OPS:
        yield node.this, _OPS[type(node)], node.expression


_OPS: dict[type, str] = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
#: What an operator is with its sides exchanged.
MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}


def split_shift(expression: exp.Expr, *, of_time: bool) -> tuple[exp.Expr, int]:
    """Split `value ± constant` into the value and what is added to it: a whole number, or µs."""
    if isinstance(expression, exp.Add | exp.Sub):
        amount = _amount(expression.expression, of_time)
        if amount is not None:
            sign = 1 if isinstance(expression, exp.Add) else -1
            return expression.this, sign * amount
    return expression, 0


def _amount(node: exp.Expr, of_time: bool) -> int | None:
    if of_time and isinstance(node, exp.Interval):
        unit = node.args.get("unit")
        scale = _UNITS.get(unit.name.upper().removesuffix("S")) if unit is not None else None
        text = node.this.name if isinstance(node.this, exp.Literal) else ""
        return int(text) * scale if scale is not None and text.isdigit() else None
    if not of_time and isinstance(node, exp.Literal) and not node.is_string:
        return int(node.name) if node.name.isdigit() else None
    return None


def _side(
    side: exp.Expr, scope: SelectScope, place: dict[int, int], check: TypeCheck
) -> JoinSide | None:
    """Make a side of a factor, if it reads one stream of this FROM clause and nothing else."""
    if side.find(exp.Query) is not None:
        return None
    columns = list(side.find_all(exp.Column))
    resolved = [scope.resolved.get(id(c)) for c in columns]
    source = _one_source(resolved, scope)
    if source is None or source.leaf is None or not source.leaf.is_stream:
        return None
    names = source.leaf.definition.schema.names
    shape = strip_qualifiers(side)
    for column, resolution in zip(list(shape.find_all(exp.Column)), resolved, strict=True):
        assert resolution is not None
        declared = source.place(resolution.column)
        if declared is None:
            return None
        spell(column.this, names[declared])
        column.this.set("quoted", True)
    try:
        ((_, type_),) = check.columns(f"SELECT ({to_duckdb(shape)}\n) FROM {source.leaf.table}")
    except duckdb.Error:
        return None
    return JoinSide(place[id(source.leaf)], shape, type_)


def _one_source(resolved: list[Resolution | None], scope: SelectScope) -> Source | None:
    source: Source | None = None
    for resolution in resolved:
        if resolution is None or resolution.outer or resolution.merged or not resolution.column:
            return None
        if resolution.source is None or resolution.source not in scope.sources:
            return None
        if source is not None and resolution.source is not source:
            return None
        source = resolution.source
    return source


def write_joined_sql(tree: exp.Expr, literals: Mapping[int, str], leaves: frozenset[str]) -> str:
    """Write the query's SQL over the joined slice (`make_joined_tree`)."""
    return to_duckdb(make_joined_tree(tree, literals, leaves))


def make_joined_tree(
    tree: exp.Expr, literals: Mapping[int, str], leaves: frozenset[str]
) -> exp.Select:
    """Copy the query so that it reads the joined slice.

    Row i of the tables of all `leaves` together is row i of the joined slice, so the tables are
    joined by position, and the conditions of their ONs move to WHERE.

    Args:
        tree: The query's tree.
        literals: The query's constants.
        leaves: The names of the slices that are joined.
    """
    select = make_residual_tree(tree, literals)
    assert isinstance(select, exp.Select)
    conditions = []
    where = select.args.get("where")
    if where is not None:
        conditions.append(where.this)
    for join in select.args["joins"]:
        if (on := join.args.pop("on", None)) is not None:
            conditions.append(on)
        join.args.pop("kind", None)
        if join.this.meta.get(LEAF) in leaves:
            join.set("method", "POSITIONAL")
        else:
            join.set("kind", "CROSS")
    if conditions:
        select.set("where", exp.Where(this=exp.and_(*conditions, copy=False)))
    return select
