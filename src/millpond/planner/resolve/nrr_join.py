"""Joins with non-retroactive relations: each element joins the relation's rows of its instant.

SEMANTICS, section 3 (Update patterns, 4.1 and 4.2): a row made of stream elements joins the
relation's rows as they were at the greatest timestamp among them, and keeps them as long as it
lives. In SQL over slices that is an ordinary join with all of the relation's versions,

    begin ≤ greatest(ts, …) < end,

For this, the slices of the joined streams have their elements' timestamps as one more column, and
the relation's slice has the interval of each row. No text can name these hidden columns, and `*`
leaves them out. A query in FROM that makes its rows of elements, one by one, hands the greatest
timestamp of each on.

What is joined with no stream, on a side of UNION say, is the relation as it is at the instant.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from millpond.cql.tree.places import span_of
from millpond.errors import MillpondError
from millpond.planner.resolve.pushdown import split_conjuncts
from millpond.planner.resolve.row_by_row import is_group_by_group, is_row_by_row
from millpond.planner.resolve.scope import Leaf, SelectScope, Source

#: Key of a SELECT's or join's `meta`: the conditions that are added to it.
CONDITIONS = "attached_conditions"
#: Key of a SELECT's `meta`: hidden columns by the name of the FROM item that has them.
HIDDEN = "attached_columns"
#: Key of a SELECT's `meta`: the timestamp columns whose greatest it has as one more column, and the
#: name of that column.
STAMP = "attached_stamp"
#: Key of a condition's `meta`: what people are told in its place.
SAID = "attached_said"


def timestamp_column(leaf: Leaf) -> str:
    return f"__ts_{leaf.table}"


def sequence_column(leaf: Leaf) -> str:
    return f"__seq_{leaf.table}"


def interval_columns(leaf: Leaf) -> tuple[str, str]:
    return f"__begin_{leaf.table}", f"__end_{leaf.table}"


def mark_nrr_joins(scopes: Iterable[SelectScope], leaves: Iterable[Leaf], text: str) -> None:
    """Mark the SELECTs that join non-retroactive relations; add hidden columns to their leaves.

    In a subquery of WHERE, of ON or of the SELECT list, and in a query in FROM behind streams,
    where no stream stands beside it, a relation is attached to the row that the subquery is
    evaluated for.

    Raises:
        MillpondError: CQL-301, where such a relation is not joined with a stream.
    """
    every = list(leaves)
    if not any(leaf.is_stream for leaf in every):
        return  # alone it is a relation like any other
    found: set[int] = set()
    relations = {id(leaf.node) for leaf in every if not leaf.is_stream}
    for scope in scopes:
        for source in scope.sources:
            if source.leaf is not None and is_nrr(source.leaf):
                if _is_joined(source.leaf.node, relations):
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


def _is_joined(node: exp.Expr, relations: set[int]) -> bool:
    """Whether rows of an occurrence are combined with what may be made of elements.

    Other sides of UNION do not combine rows with it, nor does what stands beside it in a SELECT
    without FROM. Entries of WITH may be read anywhere: what is in one counts as combined.

    Args:
        node: The occurrence of a relation.
        relations: The ids of all occurrences of relations in the query.
    """
    inside, found = node, False
    while (around := inside.parent) is not None:
        if isinstance(around, exp.CTE):
            return True
        if not isinstance(around, exp.SetOperation):
            tables = [
                table
                for part in around.iter_expressions()
                if part is not inside
                for table in part.find_all(exp.Table)
            ]
            tables += [around] if isinstance(around, exp.Table) else []
            found = found or any(id(table) not in relations for table in tables)
        if isinstance(around, exp.Select):
            if found and around.args.get("from_"):
                return True
            found = False
        inside = around
    return False


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
    stamps = _stamp(scope, beside)
    if not stamps:
        stamps = _find_stamps_around(scope, leaf, text)
    place: exp.Expr = join if is_optional and join is not None else scope.select
    _attach(leaf, stamps, place)
    hide_columns(scope)


def _stamp(scope: SelectScope, sources: Iterable[Source]) -> list[str]:
    """Give the sources that are made of elements a column of timestamps; list these columns."""
    stamps: list[str] = []
    for source in sources:
        if source.leaf is not None:
            if source.leaf.is_stream:
                stamp = timestamp_column(source.leaf)
                if stamp not in source.leaf.hidden:
                    source.leaf.hidden = (stamp,)
                stamps.append(stamp)
        elif inner := _find_query_of_elements(scope, source):
            if STAMP not in inner.select.meta and (below := _stamp(inner, inner.sources)):
                inner.select.meta[STAMP] = (below, f"{below[0]}_out")
            if STAMP in inner.select.meta:
                stamps.append(inner.select.meta[STAMP][1])
    hide_columns(scope)
    return stamps


def _find_query_of_elements(scope: SelectScope, source: Source) -> SelectScope | None:
    """Find the SELECT of an item of FROM, not of WITH, that makes each row of a row of its own."""
    inner = source.body.select if source.body is not None else None
    if inner is None or not is_row_by_row(inner):
        return None
    items = [scope.select.args["from_"].this, *(j.this for j in scope.select.args.get("joins", []))]
    written = any(isinstance(i, exp.Subquery) and i.unnest() is inner.select for i in items)
    return inner if written else None


def _attach(leaf: Leaf, stamps: list[str], place: exp.Expr) -> None:
    """Note at a SELECT or a join that a relation's rows are those of the youngest element."""
    leaf.hidden = interval_columns(leaf)
    begin, end = leaf.hidden
    youngest = f"greatest({', '.join(stamps)})"
    sql = f"{begin} <= {youngest} AND {youngest} < {end}"
    place.meta.setdefault(CONDITIONS, []).append(sql)


def hide_columns(scope: SelectScope) -> None:
    """Note the hidden columns that `*` leaves out in a SELECT."""
    hidden = scope.select.meta.setdefault(HIDDEN, {})
    for item in scope.sources:
        if item.leaf is not None and item.leaf.hidden:
            hidden[item.name.lower()] = item.leaf.hidden
        elif (inner := _find_query_of_elements(scope, item)) and STAMP in inner.select.meta:
            hidden[item.name.lower()] = (inner.select.meta[STAMP][1],)


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
    stamps = _stamp(scope, _find_sources_of(scope, before))
    if not stamps or any(each.side in ("RIGHT", "FULL") for each in joins):
        raise _refusal(leaf, text, "on the right of such a SEMI or ANTI JOIN")
    _refuse_using(leaf, join, text)
    _attach(leaf, stamps, join)
    hide_columns(scope)


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


def _find_sources_of(scope: SelectScope, items: list[exp.Expr]) -> list[Source]:
    """Find the sources that stand in a FROM clause as these items."""
    found = []
    for source in scope.sources:
        node: exp.Expr | None = source.leaf.node if source.leaf is not None else None
        if node is None and source.body is not None and source.body.select is not None:
            select = source.body.select.select
            node = next(
                (i for i in items if isinstance(i, exp.Subquery) and i.unnest() is select), None
            )
        if any(node is item for item in items):
            found.append(source)
    return found


def _find_stamps_around(scope: SelectScope, leaf: Leaf, text: str) -> list[str]:
    """Stamp the elements for whose rows a subquery with a relation is evaluated, one by one.

    Raises:
        MillpondError: CQL-301, there are none, or the subquery is evaluated for groups of rows.
    """
    inner, around = scope, scope.parent
    while around is not None:
        clause: exp.Expr = inner.select
        while clause.parent is not None and clause.parent is not around.select:
            clause = clause.parent
        sources = around.sources
        if clause.parent is None:
            break
        if isinstance(clause, exp.Join):
            sources = _find_sources_before(around, clause, inner.select)
        elif clause.arg_key != "where" and (
            clause.arg_key != "expressions" or is_group_by_group(around.select)
        ):
            break
        if stamps := _stamp(around, sources):
            return stamps
        inner, around = around, around.parent
    raise _refusal(leaf, text, "with no stream beside it in its FROM clause")


def _find_sources_before(scope: SelectScope, join: exp.Join, query: exp.Expr) -> list[Source]:
    """Find the sources for whose rows a query in a join is evaluated: in its ON, or its item.

    There are none where later items of FROM make the rows younger, or a row may be of one side.
    """
    joins = scope.select.args["joins"]
    place = next(number for number, each in enumerate(joins) if each is join)
    in_on = not any(node is query for node in join.this.walk())
    items = [scope.select.args["from_"].this, *(each.this for each in joins[: place + in_on])]
    before = _find_sources_of(scope, items)
    later = _find_sources_of(scope, [each.this for each in joins[place + 1 :]])
    if join.side not in ("", "LEFT") or join.method or (later and not join.side):
        return []
    return [] if any(each.side in ("RIGHT", "FULL") for each in joins) else before


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
    if STAMP in select.meta:
        below, name = select.meta[STAMP]
        youngest = _parse_condition(f"greatest({', '.join(below)})")
        select.append("expressions", exp.alias_(youngest, name))


def list_conditions(node: exp.Expr) -> list[exp.Expr]:
    """List the conditions that are added to a SELECT or to a join: conjuncts, as trees."""
    found: list[exp.Expr] = []
    for text in node.meta.get(CONDITIONS) or []:
        begin, end = split_conjuncts(_parse_condition(text))
        begin.meta[SAID], end.meta[SAID] = "", "as of the instant of the youngest element"
        found += [begin, end]
    return found


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
