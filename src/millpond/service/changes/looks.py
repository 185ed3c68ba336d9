"""Which queries are followed in parts, and what a task has to know of them."""

from __future__ import annotations

from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.engine.joins.keys import axis_of
from millpond.engine.promising.look import PRIORITY, STEP, Look, LookedStream, factors_over
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.model.windows import Now, Range, Unbounded
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.bind.preference import PartialShape
from millpond.planner.joins import make_joined_tree
from millpond.planner.residual import make_residual_tree
from millpond.service.queries.prepared import leaf_factors, stream_of
from millpond.state.version import Version
from millpond.synopses.summaries.zones import Grid

#: The column of a result that has the priority of the region it was found in.
_PRIORITY = "priority"


def step_length(bound: BoundQuery) -> int:
    """The length of a step, in microseconds, of a query that is followed in parts; 0 of others."""
    preference = bound.preference
    if preference is None or preference.budget is None:
        return 0
    zoned = max(estimate.leaf for estimate in preference.estimates)
    summary = next(e.estimate.summary for e in preference.estimates if e.leaf == zoned)
    return Grid.of(summary.granularity, summary.rate, summary.depth).line


def with_priority(output: Schema) -> Schema:
    """The columns of a followed part: the answer's, and the priority under a name that is free."""
    name, number = _PRIORITY, 2
    while output.find(name) is not None:
        name, number = f"{_PRIORITY}_{number}", number + 1
    return Schema((*output.fields, Field(name, "DOUBLE")))


def make_look(version: Version, bound: BoundQuery) -> Look | None:
    """What a query with a budget looks at; None of other queries.

    Raises:
        MillpondError: CQL-224, its changes cannot be followed in parts.
    """
    preference, shape = bound.preference, bound.partial
    if preference is None or preference.budget is None or isinstance(shape, str):
        return None
    if shape.kind == "aggregate":
        raise _error(
            bound, "an aggregate is not followed in parts",
            "Leave out BUDGET here, and INVOKE it with one: each answer is an estimate.",
        )  # fmt: skip
    if bound.to_stream not in (None, "istream"):
        raise _error(
            bound, f"a part of {bound.to_stream.upper()} cannot be followed",
            "A part is of the rows that come: leave out BUDGET, or write ISTREAM.",
        )  # fmt: skip
    windows = [leaf.window for leaf in bound.streams]
    if not all(
        isinstance(w, Unbounded | Now) or (isinstance(w, Range) and w.slide is None)
        for w in windows
    ):
        raise _error(
            bound, "a query with this window is not followed in parts",
            "Write [RANGE …] without SLIDE, or leave out BUDGET.",
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
    columns = with_priority(bound.output).names
    return Look(
        shape.kind, tuple(streams), preference, 1.0, _write_sql(bound, shape), columns,
        step_length(bound), shape.aggregates,
    )  # fmt: skip


def _write_sql(bound: BoundQuery, shape: PartialShape) -> str:
    """The query over its leaves' tables, with the priority and the step behind its columns."""
    select: exp.Expr
    if shape.kind == "join":
        tables = frozenset(leaf.table for leaf in bound.streams)
        select = make_joined_tree(bound.tree, bound.literals, tables)
    else:
        select = make_residual_tree(bound.tree, bound.literals)
    assert isinstance(select, exp.Select)
    first = next(t.alias for t in select.find_all(exp.Table) if t.name == bound.streams[0].table)
    added = [exp.to_identifier(name) for name in (PRIORITY, STEP)]
    for item in select.expressions:
        of, star = (item.table, item.this) if isinstance(item, exp.Column) else ("", item)
        if isinstance(star, exp.Star) and of in ("", first):
            star.set("except_", [*(star.args.get("except_") or ()), *added])
    select.set("expressions", [*select.expressions, *map(exp.column, (PRIORITY, STEP))])
    return to_duckdb(select)


def _error(bound: BoundQuery, primary: str, hint: str) -> MillpondError:
    return MillpondError("CQL-224", primary, hint=hint, text=bound.text)
