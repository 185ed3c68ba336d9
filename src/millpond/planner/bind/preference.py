"""Preferences: what a query wants to see first, and whether it can be answered in parts at all.

Promising tuples, sections 2 and 4: a query with a preference is a join of two streams by equality
(4.1), a selection from one (4.2) or an aggregate of one (4.3). The preference is an expression of
estimates; each is about a value in a region, so the preference gives every region a priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
from sqlglot import exp

from millpond.catalog.objects import StreamDef
from millpond.cql.print.dialect import to_duckdb
from millpond.cql.tree.nodes import PREFERENCE, Preference, SummaryEstimate
from millpond.cql.tree.places import span_of
from millpond.errors import MillpondError
from millpond.model.budget import Budget
from millpond.model.windows import Rows
from millpond.planner.check.typecheck import TypeCheck
from millpond.planner.joins import JoinShape
from millpond.planner.resolve.columns import resolve_column
from millpond.planner.resolve.error_places import mark
from millpond.planner.resolve.estimates import NamedEstimate, find_estimate
from millpond.planner.resolve.names import Names
from millpond.planner.resolve.row_by_row import is_row_by_row
from millpond.planner.resolve.scope import Leaf, SelectScope

#: Types a priority may have.
_WHOLE = (
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
)
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE")
#: Aggregates that are estimated from a part of the rows; of others a part says nothing.
ESTIMATED = ("count", "sum", "avg", "median")


@dataclass(frozen=True)
class PartialShape:
    """How a query can be answered in parts.

    Attributes:
        kind: 'selection', 'join' or 'aggregate'.
        keys: Of a join, the column of each of the two streams that must be equal.
        aggregates: Of an aggregate, the function of each column of the answer.
        summed: Of an aggregate, the stream's column that each column of the answer is the SUM of;
            None where it is something else.
    """

    kind: str
    keys: tuple[str, str] | None = None
    aggregates: tuple[str, ...] = ()
    summed: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class RegionEstimate:
    """An estimate of a preference: about the value of a stream's attribute in the region ranked."""

    leaf: int
    estimate: NamedEstimate


@dataclass(frozen=True)
class BoundPreference:
    """A preference whose names are resolved.

    Attributes:
        order: 'asc', 'desc' or 'weighted'.
        sql: The priority in DuckDB's SQL, over the columns e0, e1, … (the estimates, in order) and
            v0, v1 (the value of each stream's attribute).
        estimates: The estimates.
        attributes: The ranked attribute of each stream leaf; None for one without estimates.
        fade: What the priority is multiplied by with every older granularity.
        budget: What each element that arrives allows a followed query to look at.
        text: The clause, for people.
    """

    order: str
    sql: str
    estimates: tuple[RegionEstimate, ...]
    attributes: tuple[str | None, ...]
    fade: float
    budget: Budget | None
    text: str


def find_partial_shape(
    body: exp.Expr, scope: SelectScope | None, streams: Sequence[Leaf], join: JoinShape | None
) -> PartialShape | str:
    """Find how a query can be answered in parts; if it cannot, say why."""
    if not isinstance(body, exp.Select) or scope is None:
        return "it is no plain SELECT"
    if any(node is not body for node in body.find_all(exp.Query)):
        return "it has a subquery"
    if [s.leaf for s in scope.sources] != list(streams) or not 1 <= len(streams) <= 2:
        return "its FROM clause is not one stream or two"
    if any(isinstance(s.window, Rows) or s.sample is not None for s in streams):
        return "it has a ROWS window or a SAMPLE"
    if any(isinstance(s.definition, StreamDef) and s.definition.is_pseudo for s in streams):
        return "it reads what a stream rejected or shed"
    if any(body.args.get(k) for k in ("order", "limit", "offset", "distinct", "group", "qualify")):
        return "it has ORDER BY, LIMIT, DISTINCT, GROUP BY or QUALIFY"
    if is_row_by_row(scope):
        if len(streams) == 1:
            return PartialShape("selection")
        if any(j.args.get("using") or j.method == "NATURAL" for j in body.args.get("joins") or ()):
            return "its streams are joined with USING or NATURAL, and not with ON a = b"
        keys = _find_keys(join) if join is not None and join.leaves == (0, 1) else None
        return PartialShape("join", keys) if keys else "its streams are not joined by a = b"
    if len(streams) == 1 and (aggregates := _find_aggregates(body)):
        summed = tuple(_find_summed(item.unalias(), scope) for item in body.expressions)
        return PartialShape("aggregate", aggregates=aggregates, summed=summed)
    return f"it is no selection, no join and no {', '.join(ESTIMATED).upper()} of one stream"


def _find_keys(join: JoinShape | None) -> tuple[str, str] | None:
    for factor in join.factors if join is not None else ():
        sides = sorted((factor.left, factor.right), key=lambda side: side.leaf)
        shapes = [side.shape.unnest() for side in sides]
        if factor.op == "=" and all(isinstance(shape, exp.Column) for shape in shapes):
            return shapes[0].name, shapes[1].name
    return None


def _find_aggregates(body: exp.Select) -> tuple[str, ...] | None:
    if body.args.get("having"):
        return None
    found = []
    for item in body.expressions:
        call = item.unalias()
        name = call.name.lower() if isinstance(call, exp.AnonymousAggFunc) else str(call.key)
        if name not in ESTIMATED or call.find(exp.Distinct, exp.Filter) is not None:
            return None
        found.append(name)
    return tuple(found)


def _find_summed(call: exp.Expr, scope: SelectScope) -> str | None:
    """The stream's column that a call is the SUM of; None of other calls."""
    column = call.this.unnest() if isinstance(call, exp.Sum) else None
    found = scope.resolved.get(id(column)) if isinstance(column, exp.Column) else None
    if found is None or found.source is None or found.source.leaf is None:
        return None
    place = found.source.place(found.column)
    return None if place is None else found.source.leaf.definition.schema.names[place]


def bind_preference(
    body: exp.Expr, scope: SelectScope | None, streams: Sequence[Leaf], text: str, catalog: Names
) -> BoundPreference | None:
    """Resolve a query's preference; None if it has none.

    Raises:
        MillpondError: CQL-201, 202, 203 or 224, at the wrong part of the preference.
    """
    node = body.args.get(PREFERENCE)
    if node is None:
        return None
    assert isinstance(node, Preference)
    if scope is None:
        raise _error("a preference over no streams", node, text)
    estimates: list[RegionEstimate] = []
    attributes: list[str | None] = [None] * len(streams)
    named_columns: list[exp.Column] = []
    ranked: exp.Expr = exp.Paren(this=node.this.copy())
    originals = list(node.this.find_all(SummaryEstimate, bfs=False))
    copies = list(ranked.find_all(SummaryEstimate, bfs=False))
    if not originals:
        raise _error(
            "a preference without an estimate", node, text,
            hint="Write WITH PREFERENCE DESC SUMMARY(name).ESTIMATE.COUNT(column).",
        )  # fmt: skip
    for number, (original, copied) in enumerate(zip(originals, copies, strict=True)):
        leaf, named = _read_estimate(original, scope, streams, text, catalog)
        others = [e.estimate.summary for e in estimates if e.leaf == leaf]
        if others and others[0] != named.summary:
            raise _error(
                "a preference with two summaries of one stream", original, text,
                detail="A stream's regions are the zones of one summary.",
            )  # fmt: skip
        attributes[leaf] = named.summary.attribute
        estimates.append(RegionEstimate(leaf, named))
        named_columns.append(exp.column(f"e{number}"))
        copied.replace(named_columns[-1])
    wanted = [c for c in node.this.find_all(exp.Column, bfs=False) if not _is_asked(c)]
    made = {id(column) for column in named_columns}
    places = [c for c in ranked.find_all(exp.Column, bfs=False) if id(c) not in made]
    for column, place in zip(wanted, places, strict=True):
        leaf, name = _resolve(column, scope, streams, text)
        if attributes[leaf] != name:
            raise _error(
                f'"{column.name}" is no attribute of a summary of this preference', column, text,
                detail="A region has one value of the summary's attribute, and elements with any "
                "values of others.",
            )  # fmt: skip
        place.replace(exp.column(f"v{leaf}"))
    return BoundPreference(
        order=str(node.args["order"]),
        sql=to_duckdb(ranked),
        estimates=tuple(estimates),
        attributes=tuple(attributes),
        fade=float(node.args["fade"]),
        budget=node.args.get("budget"),
        text=text[span.start : span.end] if (span := span_of(node)) else "",
    )


def _is_asked(column: exp.Expr) -> bool:
    """Whether a column is what an estimate is asked about."""
    return isinstance(column.parent, SummaryEstimate)


def _read_estimate(
    node: SummaryEstimate, scope: SelectScope, streams: Sequence[Leaf], text: str, catalog: Names
) -> tuple[int, NamedEstimate]:
    named = find_estimate(node, text, catalog)
    value = node.expressions[0].unnest() if named.values == 1 else None
    if not isinstance(value, exp.Column):
        raise _error(
            "an estimate of a preference is of one column", node, text,
            hint="Write SUMMARY(name).ESTIMATE.COUNT(column).",
        )  # fmt: skip
    leaf, column = _resolve(value, scope, streams, text)
    own = streams[leaf].definition
    summary = named.summary
    if own.id != summary.stream_id or column != summary.attribute:
        raise _error(
            f'summary "{summary.name}" is not of "{own.name}" ({column})', node, text,
            detail=f'It is of "{summary.stream}" ({summary.attribute}).',
            hint="SHOW SUMMARIES lists the summaries there are.",
        )  # fmt: skip
    return leaf, named


def _resolve(
    column: exp.Column, scope: SelectScope, streams: Sequence[Leaf], text: str
) -> tuple[int, str]:
    """The stream leaf and the declared name of a column of a preference."""
    resolve_column(column, scope, text, aliases_first=False)
    found = scope.resolved[id(column)]
    leaf = found.source.leaf if found.source is not None else None
    if leaf is None or found.source is None or all(leaf is not s for s in streams):
        raise _error(f'"{column.name}" is no column of a stream', column, text)
    place = found.source.place(found.column)
    assert place is not None
    number = next(n for n, s in enumerate(streams) if s is leaf)
    return number, leaf.definition.schema.names[place]


def check_preference(
    preference: BoundPreference,
    shape: PartialShape | str,
    streams: Sequence[Leaf],
    body: exp.Expr,
    check: TypeCheck,
    text: str,
) -> None:
    """Check that a preference is a number, of a query that can be answered in parts.

    Raises:
        MillpondError: CQL-205 or 224, at the preference.
    """
    node = body.args[PREFERENCE]
    if isinstance(shape, str):
        raise _error(
            "this query takes no preference", node, text,
            detail=f"It cannot be answered in parts: {shape}.",
            hint="Selections from one stream, joins of two by a = b, and COUNT, SUM, AVG and "
            "MEDIAN of one take preferences.",
        )  # fmt: skip
    if shape.keys is not None and any(
        name not in (None, key) for name, key in zip(preference.attributes, shape.keys, strict=True)
    ):
        raise _error(
            "a summary that is not of the join's key", node, text,
            detail="A join looks up values of its key, so the regions ranked are of its key.",
        )  # fmt: skip
    if shape.keys is not None:
        fields = [s.definition.schema.find(k) for s, k in zip(streams, shape.keys, strict=True)]
        types = [field.type for field in fields if field is not None]
        if len({type_ in _WHOLE for type_ in types}) > 1:
            raise _error(
                f"{types[0]} and {types[1]} cannot be looked up in each other", node, text,
                hint="Declare the columns of the join with one type.",
            )  # fmt: skip
    columns = [f"0::DOUBLE AS e{n}" for n in range(len(preference.estimates))]
    for number, name in enumerate(preference.attributes):
        if name is not None:
            field = streams[number].definition.schema.find(name)
            columns.append(f"NULL::{getattr(field, 'type', '')} AS v{number}")
    try:
        ((_, type_),) = check.columns(f"SELECT {preference.sql} FROM (SELECT {', '.join(columns)})")
    except duckdb.Error as error:
        detail = str(error).split("\n", 1)[0]
        raise _error("the preference cannot be computed", node, text, detail=detail) from None
    if type_ not in _NUMBERS and not type_.startswith("DECIMAL"):
        raise MillpondError(
            "CQL-205", f"PREFERENCE needs a number, and this is {type_}", text=text,
            span=span_of(node),
        )  # fmt: skip


def _error(
    primary: str,
    node: exp.Expr,
    text: str,
    *,
    detail: str | None = None,
    hint: str | None = None,
) -> MillpondError:
    span = span_of(node) if isinstance(node, Preference) else mark(node, text)
    return MillpondError("CQL-224", primary, detail=detail, hint=hint, text=text, span=span)
