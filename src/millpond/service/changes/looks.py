"""Which queries are followed in parts, and what a task has to know of them."""

from __future__ import annotations

from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.engine.joins.keys import axis_of
from millpond.engine.promising.look import PRIORITY, QUERY, STEP, Look, LookedStream, factors_over
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.model.windows import Now, Range, Unbounded
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.bind.preference import PartialShape
from millpond.planner.joins import make_joined_tree
from millpond.planner.residual import make_residual_tree
from millpond.planner.resolve.from_clause import strip_qualifiers
from millpond.planner.resolve.pushdown import split_conjuncts, split_where
from millpond.service.changes.estimate_sql import write_estimate_sql
from millpond.service.queries.prepared import leaf_factors, stream_of
from millpond.state.version import Version
from millpond.synopses.summaries.zones import Grid

#: The column of a result that has the priority of the region it was found in.
_PRIORITY = "priority"
#: Of an estimate, the column that says which share of the window's elements has been looked at.
_SHARE = "share"


def step_length(bound: BoundQuery) -> int:
    """The length of a step, in microseconds, of a query that is followed in parts; 0 of others."""
    preference = bound.preference
    if preference is None or preference.budget is None:
        return 0
    zoned = max(estimate.leaf for estimate in preference.estimates)
    summary = next(e.estimate.summary for e in preference.estimates if e.leaf == zoned)
    return Grid.of(summary.granularity, summary.rate, summary.depth).line


def columns_of_part(output: Schema, kind: str) -> Schema:
    """The columns of a followed part: the answer's, and the priority; of aggregates the share, too.

    Names that the answer has already get a number.
    """
    for wanted in (_PRIORITY, _SHARE) if kind == "aggregate" else (_PRIORITY,):
        name, number = wanted, 2
        while output.find(name) is not None:
            name, number = f"{wanted}_{number}", number + 1
        output = Schema((*output.fields, Field(name, "DOUBLE")))
    return output


def make_look(version: Version, bound: BoundQuery) -> Look | None:
    """What a query with a budget looks at; None of other queries.

    Raises:
        MillpondError: CQL-224, its changes cannot be followed in parts.
    """
    preference, shape = bound.preference, bound.partial
    if preference is None or preference.budget is None or isinstance(shape, str):
        return None
    if bound.to_stream not in (None, "istream"):
        raise _error(
            bound, f"a part of {bound.to_stream.upper()} cannot be followed",
            "A part is of the rows that come: leave out BUDGET, or write ISTREAM.",
        )  # fmt: skip
    windows = [leaf.window for leaf in bound.streams]
    if shape.kind != "aggregate" and not all(
        isinstance(w, Unbounded | Now) or (isinstance(w, Range) and w.slide is None)
        for w in windows
    ):
        raise _error(
            bound, f"a {shape.kind} with SLIDE or BEGIN … END is not followed in parts",
            "Write [RANGE …] without SLIDE, or leave out BUDGET.",
        )  # fmt: skip
    if "median" in shape.aggregates and not isinstance(windows[0], Range | Now):
        raise _error(
            bound, "a median over everything is not followed in parts",
            "Write [RANGE …]: a median keeps the values in its window.",
        )  # fmt: skip
    streams = []
    for number, leaf in enumerate(bound.streams):
        stream = stream_of(version, leaf)
        key = shape.keys[number] if shape.keys else preference.attributes[number]
        assert key is not None
        allowed = None
        if shape.kind != "join":
            allowed = factors_over(leaf.predicate, key, stream.schema)
        streams.append(
            LookedStream(
                stream.name, stream.schema, leaf.table, leaf.columns, leaf.window,
                leaf_factors(leaf, stream), key, allowed,
            )
        )  # fmt: skip
    types = [s.schema.find(s.key) for s in streams]
    if axis_of(*(f.type if f else "" for f in (types[0], types[-1]))) is None:
        raise _error(bound, "these columns cannot be looked up in each other", "Cast one of them.")
    columns = columns_of_part(bound.output, shape.kind).names
    line = step_length(bound)
    if shape.kind != "aggregate":
        sql = _write_sql(bound, shape)
        return Look(shape.kind, tuple(streams), preference, 1.0, sql, columns, line)
    select = make_residual_tree(bound.tree, bound.literals)
    assert isinstance(select, exp.Select)
    estimate = write_estimate_sql(_without_pushed(select), bound.output.fields)
    known = tuple(n for n, column in enumerate(shape.summed) if column == streams[0].key)
    return Look(
        shape.kind, tuple(streams), preference, 1.0, "", columns, line, shape.aggregates, estimate,
        known,
    )  # fmt: skip


def _write_sql(bound: BoundQuery, shape: PartialShape) -> str:
    """The query over its leaves' tables, with priority, step and query behind its columns."""
    select: exp.Expr
    if shape.kind == "join":
        tables = frozenset(leaf.table for leaf in bound.streams)
        select = make_joined_tree(bound.tree, bound.literals, tables)
        _remove_matched(select, bound)
    else:
        select = make_residual_tree(bound.tree, bound.literals)
        assert isinstance(select, exp.Select)
        _without_pushed(select)
    assert isinstance(select, exp.Select)
    first = next(t.alias for t in select.find_all(exp.Table) if t.name == bound.streams[0].table)
    added = [exp.to_identifier(name) for name in (PRIORITY, STEP, QUERY)]
    for item in select.expressions:
        of, star = (item.table, item.this) if isinstance(item, exp.Column) else ("", item)
        if isinstance(star, exp.Star) and of in ("", first):
            star.set("except_", [*(star.args.get("except_") or ()), *added])
    select.set("expressions", [*select.expressions, *map(exp.column, (PRIORITY, STEP, QUERY))])
    return to_duckdb(select)


def _without_pushed(select: exp.Select) -> exp.Select:
    """Remove conditions that the leaf's predicate has, so that more queries have equal SQL."""
    where = select.args.get("where")
    if where is not None and all(c.find(exp.Column) for c in split_conjuncts(where.this)):
        select.set("where", None)
    return select


def _remove_matched(select: exp.Select, bound: BoundQuery) -> None:
    """Remove a join's conditions on one stream alone that its leaf's predicate has."""
    aliases = {t.name: t.alias for t in select.find_all(exp.Table)}
    matched = {
        (alias, _write_alike(conjunct))
        for leaf in bound.streams
        for conjunct in split_conjuncts(leaf.pushed)
        for alias in ("", aliases[leaf.table].lower())
    }
    kept = []
    for conjunct in split_where(select):
        of = {column.table.lower() for column in conjunct.find_all(exp.Column)}
        is_matched = len(of) == 1 and (*of, _write_alike(conjunct)) in matched
        kept += [] if is_matched else [conjunct]
    select.set("where", exp.Where(this=exp.and_(*kept)) if kept else None)


def _write_alike(conjunct: exp.Expr) -> str:
    """Write a condition as all write it that have it over equal columns."""
    bare = strip_qualifiers(conjunct)
    for column in bare.find_all(exp.Column):
        column.set("this", exp.to_identifier(column.name.lower(), quoted=True))
    return bare.sql("duckdb")


def _error(bound: BoundQuery, primary: str, hint: str) -> MillpondError:
    return MillpondError("CQL-224", primary, hint=hint, text=bound.text)
