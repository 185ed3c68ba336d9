"""Joins with non-retroactive relations: each element joins the relation's rows of its instant.

SEMANTICS, section 3 (Update patterns, 4.1 and 4.2): a row made of stream elements joins the
relation's rows as they were at the greatest timestamp among them, and keeps them as long as it
lives. In SQL over slices that is an ordinary join with all of the relation's versions,

    begin ≤ greatest(ts, …) < end,

For this, the slices of the joined streams have their elements' timestamps as one more column, and
the relation's slice has the interval of each row. No text can name these hidden columns, and `*`
leaves them out.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from millpond.cql.tree.places import span_of
from millpond.errors import MillpondError
from millpond.planner.resolve.row_by_row import is_group_by_group
from millpond.planner.resolve.scope import Leaf, SelectScope, Source

#: Key of a SELECT's or join's `meta`: the conditions that are added to it.
CONDITIONS = "attached_conditions"
#: Key of a SELECT's `meta`: hidden columns by the name of the FROM item that has them.
HIDDEN = "attached_columns"


def timestamp_column(leaf: Leaf) -> str:
    return f"__ts_{leaf.table}"


def interval_columns(leaf: Leaf) -> tuple[str, str]:
    return f"__begin_{leaf.table}", f"__end_{leaf.table}"


def mark_nrr_joins(scopes: Iterable[SelectScope], leaves: Iterable[Leaf], text: str) -> None:
    """Mark the SELECTs that join non-retroactive relations; add hidden columns to their leaves.

    In a subquery of WHERE or of the SELECT list, where no stream stands beside it, a relation is
    attached to the row that the subquery is evaluated for.

    Raises:
        MillpondError: CQL-301, where such a relation is not joined with a stream.
    """
    every = list(leaves)
    if not any(leaf.is_stream for leaf in every):
        return  # alone it is a relation like any other
    found: set[int] = set()
    for scope in scopes:
        for source in scope.sources:
            if source.leaf is not None and is_nrr(source.leaf):
                _mark_nrr_join(scope, source, text)
                found.add(id(source.leaf))
    by_select = {id(scope.select): scope for scope in scopes}
    for leaf in every:
        if is_nrr(leaf) and id(leaf) not in found:
            # Clauses after a SEMI or ANTI JOIN cannot read its right side, which no scope has.
            _mark_semijoin(leaf, by_select, text)


def is_nrr(leaf: Leaf) -> bool:
    """Whether a leaf is a non-retroactive relation."""
    return not leaf.is_stream and bool(getattr(leaf.definition, "non_retroactive", False))


def _mark_nrr_join(scope: SelectScope, source: Source, text: str) -> None:
    leaf = source.leaf
    assert leaf is not None
    join = next((s.join for s in source.steps if not s.left), None)
    sides = {s.join.side for s in source.steps}
    if sides & {"RIGHT", "FULL"}:
        raise _refusal(leaf, text, "below a RIGHT or FULL JOIN")
    if any(s.join.method == "ASOF" for s in source.steps):
        raise _refusal(leaf, text, "below an ASOF JOIN")
    is_optional = join is not None and join.side == "LEFT"
    if is_optional and join is not None:
        _refuse_using(leaf, join, text)
    beside = scope.sources[: scope.sources.index(source)] if is_optional else scope.sources
    streams = _list_streams(beside)
    owner = scope
    if not streams:
        owner, streams = _find_streams_around(scope, leaf, text)
    place: exp.Expr = join if is_optional and join is not None else scope.select
    _attach(leaf, streams, place)
    for each in (scope, owner):
        _hide_columns(each)


def _list_streams(sources: Iterable[Source]) -> list[Leaf]:
    return [s.leaf for s in sources if s.leaf is not None and s.leaf.is_stream]


def _attach(leaf: Leaf, streams: list[Leaf], place: exp.Expr) -> None:
    """Note at a SELECT or a join that a relation's rows are those of the streams' youngest."""
    for stream in streams:
        stream.hidden = (timestamp_column(stream),)
    leaf.hidden = interval_columns(leaf)
    stamps = ", ".join(timestamp_column(s) for s in streams)
    begin, end = leaf.hidden
    sql = f"{begin} <= greatest({stamps}) AND greatest({stamps}) < {end}"
    place.meta.setdefault(CONDITIONS, []).append(sql)


def _hide_columns(scope: SelectScope) -> None:
    """Note the hidden columns that `*` leaves out in a SELECT."""
    hidden = scope.select.meta.setdefault(HIDDEN, {})
    for item in scope.sources:
        if item.leaf is not None and item.leaf.hidden:
            hidden[item.name.lower()] = item.leaf.hidden


def _mark_semijoin(leaf: Leaf, by_select: dict[int, SelectScope], text: str) -> None:
    """Attach a relation on the right of a SEMI or ANTI JOIN to the streams before it."""
    join = leaf.node.parent
    select = join.parent if isinstance(join, exp.Join) else None
    scope = by_select.get(id(select))
    if scope is None or not isinstance(join, exp.Join) or not isinstance(select, exp.Select):
        raise _refusal(leaf, text, "in such a join")
    joins = select.args["joins"]
    place = next(number for number, each in enumerate(joins) if each is join)
    before = [select.args["from_"].this, *(each.this for each in joins[:place])]
    streams = [s for s in _list_streams(scope.sources) if any(s.node is node for node in before)]
    if not streams or any(each.side in ("RIGHT", "FULL") for each in joins):
        raise _refusal(leaf, text, "on the right of such a SEMI or ANTI JOIN")
    _refuse_using(leaf, join, text)
    _attach(leaf, streams, join)
    _hide_columns(scope)


def _refuse_using(leaf: Leaf, join: exp.Join, text: str) -> None:
    """Refuse a join whose condition cannot be added to: USING and NATURAL are conditions alone.

    Raises:
        MillpondError: CQL-301.
    """
    if join.args.get("using") or join.method == "NATURAL":
        raise MillpondError(
            "CQL-301",
            f'the non-retroactive relation "{leaf.definition.name}" joined with USING or NATURAL '
            "is not available yet here",
            detail="Such a join, if LEFT, SEMI or ANTI, takes no condition on the row's instant.",
            hint="Write ON: ... ON stream.column = relation.column.",
            text=text,
            span=span_of(leaf.node.this),
        )


def _find_streams_around(
    scope: SelectScope, leaf: Leaf, text: str
) -> tuple[SelectScope, list[Leaf]]:
    """Find the streams whose rows a subquery with a relation is evaluated for, one by one.

    Raises:
        MillpondError: CQL-301, there are none, or the subquery is evaluated for groups of rows.
    """
    inner, around = scope, scope.parent
    while around is not None:
        clause: exp.Expr = inner.select
        while clause.parent is not None and clause.parent is not around.select:
            clause = clause.parent
        by_row = clause.arg_key == "where" or (
            clause.arg_key == "expressions" and not is_group_by_group(around.select)
        )
        if clause.parent is None or not by_row:
            break
        if streams := _list_streams(around.sources):
            return around, streams
        inner, around = around, around.parent
    raise _refusal(leaf, text, "with no stream beside it in its FROM clause")


def _refusal(leaf: Leaf, text: str, where: str) -> MillpondError:
    return MillpondError(
        "CQL-301",
        f'the non-retroactive relation "{leaf.definition.name}" {where} is not available yet',
        detail="Its rows are attached to stream elements, each to those of its own instant.",
        hint="Join it where the stream is, or declare it without NON RETROACTIVE.",
        text=text,
        span=span_of(leaf.node.this),
    )


def add_nrr_conditions(select: exp.Select) -> None:
    """Write the conditions into a SELECT over slices, and leave hidden columns out of `*`."""
    for join in select.args.get("joins") or []:
        _add(join, "on", join.meta.get(CONDITIONS))
    if select.meta.get(CONDITIONS):
        where = select.args.get("where")
        parts: list[exp.Expr] = [exp.Paren(this=where.this)] if where is not None else []
        parts += [_parse_condition(c) for c in select.meta[CONDITIONS]]
        select.set("where", exp.Where(this=exp.and_(*parts, copy=False)))
    hidden = select.meta.get(HIDDEN)
    if hidden:
        for item in select.expressions:
            inner = item.unalias()
            if isinstance(inner, exp.Star):
                _leave_out(inner, [c for columns in hidden.values() for c in columns])
            elif isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
                _leave_out(inner.this, hidden.get(inner.args["table"].name.lower(), ()))


def _add(node: exp.Expr, key: str, conditions: list[str] | None) -> None:
    if conditions:
        own = node.args.get(key)
        parts = [exp.Paren(this=own)] if own is not None else []
        node.set(key, exp.and_(*parts, *map(_parse_condition, conditions), copy=False))


def _leave_out(star: exp.Expr, columns: Iterable[str]) -> None:
    names = [exp.to_identifier(c) for c in columns]
    if names:
        star.set("except_", names)


def _parse_condition(condition: str) -> exp.Expr:
    """Parse a condition that this module wrote, so in DuckDB's own dialect."""
    return exp.maybe_parse(condition, dialect="duckdb")
