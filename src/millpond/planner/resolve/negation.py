"""`R1 EXCEPT ALL R2 BY (a, …)`: the update-pattern paper's negation, in SQL over slices.

For each value of the attributes with v1 rows in R1 and v2 rows in R2, the answer has the youngest
max(v1 − v2, 0) of R1's rows (SEMANTICS, section 3; Update patterns, 2.1). A row's age is that of
the youngest element it is made of; of rows with equal ages, the row whose values sort later counts
as younger. So R1 must select from streams (and relations), row by row or in groups, and its
streams' slices have their elements' timestamps as one more column that no text can name, as in
`nrr_join.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp

from millpond.cql.tree.nodes import BY_ATTRIBUTES
from millpond.errors import MillpondError
from millpond.model.duckdb_words import quote_name
from millpond.model.time import BEGINNING
from millpond.planner.resolve.error_places import mark
from millpond.planner.resolve.names import did_you_mean, join_names, spell
from millpond.planner.resolve.nrr_join import HIDDEN, timestamp_column
from millpond.planner.resolve.placement import find_set_call
from millpond.planner.resolve.row_by_row import (
    is_group_by_group,
    is_row_by_group,
    is_row_by_row,
)
from millpond.planner.resolve.scope import Body, SelectScope

#: Keys of a set operation's `meta`: the timestamp columns of which the greatest is a left row's
#: age; the names of the left's columns.
STAMPS, COLUMNS = "negation_stamps", "negation_columns"


def find_negations(tree: exp.Expr) -> Iterator[exp.SetOperation]:
    """Find the negations in a query, inner negations first."""
    found = [n for n in tree.find_all(exp.SetOperation, bfs=True) if n.args.get(BY_ATTRIBUTES)]
    yield from reversed(found)


def check_attributes(node: exp.SetOperation, sides: Sequence[Body], text: str) -> None:
    """Check that both sides have the attributes; spell the attributes as the left side does.

    Raises:
        MillpondError: CQL-202, a side lacks an attribute.
    """
    for attribute in node.args[BY_ATTRIBUTES]:
        for body, which in zip(sides, ("left", "right"), strict=True):
            names = [c for c in body.columns if c]
            found = next((c for c in names if c.lower() == attribute.name.lower()), None)
            if found is None:
                raise MillpondError(
                    "CQL-202",
                    f'no column "{attribute.name}" on the {which} side of EXCEPT ALL',
                    detail="BY names columns both sides have; "
                    f"the {which} has: {join_names(names)}.",
                    hint=did_you_mean(attribute.name, names),
                    text=text,
                    span=mark(attribute, text),
                )
            if which == "left":
                spell(attribute, found)


def group_distinct_rows(tree: exp.Expr) -> None:
    """Write DISTINCT on the left of negations as GROUP BY, where it selects row by row.

    Both give each row once, and a group's row is as old as the youngest of the group.
    """
    for node in find_negations(tree):
        left = node.left.unnest()
        distinct = left.args.get("distinct")
        if not isinstance(left, exp.Select) or distinct is None or distinct.args.get("on"):
            continue
        values = [item.unalias() for item in left.expressions]
        if is_group_by_group(left) or any(
            value.is_star or value.find(exp.Window) or find_set_call(value) for value in values
        ):
            continue
        left.set("distinct", None)
        # A constant does not tell groups apart, and a number would be the place of a column.
        keys = [v.copy() for v in values if v.find(exp.Column)]
        if keys:
            left.set("group", exp.Group(expressions=keys))


def prepare_negations(tree: exp.Expr, scopes: Sequence[SelectScope], text: str) -> None:
    """Add the timestamp column to the streams of every negation's left side.

    Raises:
        MillpondError: CQL-301, where the left side selects neither row by row nor in groups.
    """
    by_select = {id(scope.select): scope for scope in scopes}
    for node in find_negations(tree):
        left = node.left.unnest()
        scope = by_select.get(id(left))
        leaves = [s.leaf for s in scope.sources] if scope is not None else []
        streams = [f for f in leaves if f is not None and f.is_stream]
        is_made_of_elements = streams and None not in leaves
        is_made_of_them = scope is not None and (is_row_by_row(scope) or is_row_by_group(scope))
        if scope is None or not is_made_of_elements or not is_made_of_them:
            raise MillpondError(
                "CQL-301",
                "EXCEPT ALL … BY of such a query is not available yet",
                detail="Its left side selects from streams, row by row or with GROUP BY, for a "
                "row is as old as the youngest element it is made of.",
                hint="Name the columns of DISTINCT, or write EXCEPT ALL without BY, which takes "
                "any query.",
                text=text,
                span=mark(node.left, text),
            )
        for stream in streams:
            stream.hidden = (timestamp_column(stream),)
        node.meta[STAMPS] = [timestamp_column(f) for f in streams]
        hidden = scope.select.meta.setdefault(HIDDEN, {})
        for source in scope.sources:
            if source.leaf is not None and source.leaf.hidden:
                hidden[source.name.lower()] = source.leaf.hidden


def name_columns(tree: exp.Expr, columns: Callable[[exp.Expr], list[str]]) -> None:
    """Note the names of the left sides' columns, which only DuckDB knows for certain."""
    for node in find_negations(tree):
        node.meta[COLUMNS] = columns(node.left)


def write_age(node: exp.SetOperation, left: exp.Select) -> exp.Expr:
    """Write the age of a negation's left row: the timestamp of the youngest element it is made of.

    A row that is made of no element, as an aggregate of nothing is, is older than all others.
    """
    stamps = [exp.column(name) for name in node.meta[STAMPS]]
    age: exp.Expr = stamps[0]
    if len(stamps) > 1:
        age = exp.Greatest(this=stamps[0], expressions=stamps[1:])
    if not is_group_by_group(left):
        return age
    oldest = exp.cast(exp.Literal.number(BEGINNING), "BIGINT")
    return exp.Coalesce(this=exp.Max(this=age), expressions=[oldest])


def spell_out_negations(tree: exp.Expr) -> exp.Expr:
    """Replace the negations in a tree over slices by ordinary SQL."""
    for node in find_negations(tree):
        plain = _as_sql(node)
        if node is tree:
            return plain
        node.replace(
            exp.Subquery(this=plain) if isinstance(node.parent, exp.SetOperation) else plain
        )
    return tree


def _as_sql(node: exp.SetOperation) -> exp.Expr:
    names: list[str] = node.meta[COLUMNS]
    by = [a.name.lower() for a in node.args[BY_ATTRIBUTES]]
    places = [next(i for i, n in enumerate(names) if n.lower() == a) for a in by]
    age = f"c{len(names)}"
    keys = ", ".join(f"c{p}" for p in places)
    values = "".join(f", c{i} DESC NULLS FIRST" for i in range(len(names)))
    shown = ", ".join(f"c{i} AS {quote_name(name)}" for i, name in enumerate(names))
    given = ", ".join(f"c{i}" for i in range(len(names) + 1))
    grouped = ", ".join(f"__r.{quote_name(a)} AS b{i}" for i, a in enumerate(by))
    numbers = ", ".join(str(i + 1) for i in range(len(by)))
    equal = " AND ".join(f"__o.c{p} IS NOT DISTINCT FROM __m.b{i}" for i, p in enumerate(places))
    plain: exp.Expr = exp.maybe_parse(
        f"SELECT {shown} FROM (SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY {age} DESC"
        f"{values}) AS __rank, count(*) OVER (PARTITION BY {keys}) AS __many"
        f" FROM __left AS __l({given})) AS __o"
        f" LEFT JOIN (SELECT {grouped}, count(*) AS __less FROM __right AS __r"
        f" GROUP BY {numbers}) AS __m ON {equal}"
        f" WHERE __rank <= __many - coalesce(__less, 0)",
        dialect="duckdb",
    )
    left = node.left.unnest().copy()
    assert isinstance(left, exp.Select)
    left.append("expressions", exp.alias_(write_age(node, left), "__age"))
    for name, query in (("__left", left), ("__right", node.right.unnest().copy())):
        table = next(t for t in plain.find_all(exp.Table) if t.name == name)
        table.replace(exp.Subquery(this=query, alias=table.args["alias"].copy()))
    for clause in ("with_", "order", "limit", "offset"):
        if node.args.get(clause):
            plain.set(clause, node.args[clause].copy())
    return plain
