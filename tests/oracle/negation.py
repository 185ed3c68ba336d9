"""`R1 EXCEPT ALL R2 BY (a, …)`, by counting: SEMANTICS section 3, last paragraph.

For each value of the attributes, with v1 rows in R1 and v2 in R2, the youngest max(v1 − v2, 0) of
R1's rows stay. A row is as old as the youngest element it is made of; among rows of one age, rows
later in canonical order are younger.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp
from tests.oracle.rows import normalize, sort_key
from tests.oracle.world import World

from millpond.cql import to_duckdb
from millpond.cql.tree.nodes import BY_ATTRIBUTES
from millpond.model.time import BEGINNING

#: The key of a SELECT's facts that says that it is DISTINCT, and of a negation's that it stands on
#: the left of another.
_DISTINCT, _INSIDE = "millpond.distinct", "millpond.inside"


def _negations(tree: exp.Expression) -> list[exp.SetOperation]:
    """Find the negations of a tree, inner negations first."""
    return [n for n in tree.find_all(exp.SetOperation) if n.args.get(BY_ATTRIBUTES)][::-1]


def ages(world: World, tree: exp.Expression) -> dict[int, tuple[str, ...]]:
    """Write the row's age into each negation's left SELECT, as its last column.

    Returns, by the occurrence's id, the timestamp column that each stream on the left needs.
    """
    needed: dict[int, tuple[str, ...]] = {}
    selects = [
        part for node in _negations(tree) for part in _parts(node.left) if not _mark_inside(part)
    ]
    for number, select in enumerate(selects):
        assert isinstance(select, exp.Select)
        tables = [select.args["from_"].this, *(j.this for j in select.args.get("joins") or [])]
        stamps = []
        for place, table in enumerate(tables):
            if table.name.lower().removesuffix("$rejects") in world.streams:
                stamps.append(f"age_{number}_{place}")
                needed[id(table)] = (stamps[-1],)
        for star in [s for item in select.expressions for s in item.find_all(exp.Star)]:
            if not isinstance(star.parent, exp.Count):
                of = star.parent.table if isinstance(star.parent, exp.Column) else None
                hidden = [
                    c
                    for t in tables
                    if of in (None, t.alias_or_name)
                    for c in needed.get(id(t), ())
                ]
                star.set("except_", [exp.to_identifier(c) for c in hidden])
        if select.args.get("distinct"):
            select.meta[_DISTINCT] = True
            select.set("distinct", None)
        age = f"greatest({', '.join(stamps)})" if stamps else str(BEGINNING)
        if select.args.get("group") or any(_has_aggregate(item) for item in select.expressions):
            # A group's youngest element; an aggregate of nothing is older than all elements.
            age = f"coalesce(max({age}), {BEGINNING})"
        select.select(f"{age} AS __age", copy=False, dialect="duckdb")
    return needed


def _parts(query: exp.Expr) -> list[exp.Expr]:
    """List the SELECTs and negations of a side of a negation or of a set operation."""
    node = query.unnest()
    if not isinstance(node, exp.SetOperation) or node.args.get(BY_ATTRIBUTES):
        return [node]
    right = [] if isinstance(node, exp.Except) else _parts(node.right)
    return [*_parts(node.left), *right]


def _mark_inside(part: exp.Expr) -> bool:
    """Mark a negation that stands on the left of another; say whether it is a negation."""
    if is_negation := isinstance(part, exp.SetOperation):
        part.meta[_INSIDE] = True
    return is_negation


def _has_aggregate(item: exp.Expr) -> bool:
    """Whether an item of a SELECT list aggregates the SELECT's own rows."""
    found = item.find_all(exp.AggFunc, exp.AnonymousAggFunc)
    return any(call.find_ancestor(exp.Select) is item.parent for call in found)


def replace_negations(
    connection: duckdb.DuckDBPyConnection, tree: exp.Expression
) -> exp.Expression:
    """Replace each negation in a tree over loaded tables by a table of the negation's rows."""
    for number, node in enumerate(_negations(tree)):
        by = [a.name.lower() for a in node.args[BY_ATTRIBUTES]]
        left = _find_aged_rows(connection, node.left)
        right = connection.sql(to_duckdb(node.right.unnest())).to_arrow_table()
        name = f"negation_{number}"
        connection.register(
            "__arrow",
            left.take(pa.array(_find_youngest(left, right, by), pa.int64())).drop_columns(
                [] if node.meta.get(_INSIDE) else ["__age"]
            ),
        )
        connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM __arrow")
        connection.unregister("__arrow")
        plain = exp.select("*").from_(name)
        for clause in ("with_", "order", "limit", "offset"):
            if node.args.get(clause):
                plain.set(clause, node.args[clause])
        if node is tree:
            return plain
        node.replace(
            exp.Subquery(this=plain) if isinstance(node.parent, exp.SetOperation) else plain
        )
    return tree


def _find_aged_rows(connection: duckdb.DuckDBPyConnection, query: exp.Expr) -> pa.Table:
    """Compute the rows of a query on the left of a negation, with their ages in the last column."""
    node = query.unnest()
    if not isinstance(node, exp.SetOperation):
        rows = connection.sql(to_duckdb(node)).to_arrow_table()
        return _combine("union", rows, rows.slice(0, 0)) if node.meta.get(_DISTINCT) else rows
    left = _find_aged_rows(connection, node.left)
    if isinstance(node, exp.Except):
        right = connection.sql(to_duckdb(node.right.unnest())).to_arrow_table()
        right = right.append_column("__age", pa.nulls(len(right), pa.int64()))
    else:
        right = _find_aged_rows(connection, node.right)
    connection.register("__l", left)
    connection.register("__r", right)
    # DuckDB finds the types that both sides have in common.
    both = connection.sql("SELECT * FROM __l UNION ALL SELECT * FROM __r").to_arrow_table()
    connection.unregister("__l")
    connection.unregister("__r")
    how = node.key if node.args.get("distinct") else f"{node.key} all"
    return _combine(how, both.slice(0, len(left)), both.slice(len(left)))


def _combine(how: str, left: pa.Table, right: pa.Table) -> pa.Table:
    """Combine rows with ages: of equal rows the youngest, of ALL the youngest ones."""
    both = pa.concat_tables([left, right])
    stamps = both["__age"].to_pylist()
    ages: dict[tuple[Any, ...], tuple[list[int], list[int]]] = {}
    first: dict[tuple[Any, ...], int] = {}
    for place, key in enumerate(_keys(both, None)):
        first.setdefault(key, place)
        ages.setdefault(key, ([], []))[place >= len(left)].append(stamps[place])
    found: list[tuple[int, int]] = []
    for key, (ours, theirs) in ages.items():
        if how == "except" or how == "except all":
            ours.sort(reverse=True)
            kept = ours[: max(len(ours) - len(theirs), 0)]
            kept = kept if how == "except all" else [] if theirs else ours[:1]
        elif how == "intersect" or how == "intersect all":
            kept = [max(p) for p in zip(sorted(ours)[::-1], sorted(theirs)[::-1], strict=False)]
            kept = kept if how == "intersect all" else [max(ours + theirs)] if kept else []
        else:
            kept = ours + theirs if how == "union all" else [max(ours + theirs)]
        found += [(first[key], age) for age in kept]
    rows = both.take(pa.array([place for place, _ in found], pa.int64()))
    return rows.drop_columns("__age").append_column(
        "__age", pa.array([age for _, age in found], pa.int64())
    )


def _find_youngest(left: pa.Table, right: pa.Table, by: list[str]) -> list[int]:
    """Find the places of the left rows that stay."""
    fewer = Counter(_keys(right, by))
    groups: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    for place, key in enumerate(_keys(left, by)):
        groups[key].append(place)
    stamps = left["__age"].to_pylist()
    rows = [
        tuple(map(normalize, row))
        for row in zip(*(c.to_pylist() for c in left.drop_columns("__age").columns), strict=True)
    ]
    kept: list[int] = []
    for key, places in groups.items():
        places.sort(key=lambda place: (stamps[place], sort_key(rows[place])))
        kept += places[fewer[key] :]
    return sorted(kept)


def _keys(table: pa.Table, by: list[str] | None) -> list[tuple[Any, ...]]:
    """Read each row's values of the attributes; of None, of all columns but the last."""
    names = [n.lower() for n in table.column_names]
    places = range(len(names) - 1) if by is None else [names.index(a) for a in by]
    columns = [table.column(place).to_pylist() for place in places]
    return [tuple(map(normalize, key)) for key in zip(*columns, strict=True)]
