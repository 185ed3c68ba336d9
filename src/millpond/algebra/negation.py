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

from millpond.algebra.rows import normalize, sort_key
from millpond.algebra.world import World
from millpond.cql import to_duckdb
from millpond.cql.tree.nodes import BY_ATTRIBUTES
from millpond.model.time import BEGINNING

#: The key of a negation's facts that says that its left side is DISTINCT.
_DISTINCT = "millpond.distinct"


def _negations(tree: exp.Expression) -> list[exp.SetOperation]:
    """Find the negations of a tree, inner negations first."""
    return [n for n in tree.find_all(exp.SetOperation) if n.args.get(BY_ATTRIBUTES)][::-1]


def ages(world: World, tree: exp.Expression) -> dict[int, tuple[str, ...]]:
    """Write the row's age into each negation's left SELECT, as its last column.

    Returns, by the occurrence's id, the timestamp column that each stream on the left needs.
    """
    needed: dict[int, tuple[str, ...]] = {}
    for number, node in enumerate(_negations(tree)):
        select = node.left.unnest()
        assert isinstance(select, exp.Select)
        joins = select.args.get("joins") or []
        stamps = []
        for place, table in enumerate([select.args["from_"].this, *(j.this for j in joins)]):
            if table.name.lower().removesuffix("$rejects") in world.streams:
                stamps.append(f"age_{number}_{place}")
                needed[id(table)] = (stamps[-1],)
        for star in [s for item in select.expressions for s in item.find_all(exp.Star)]:
            if not isinstance(star.parent, exp.Count):
                of = star.parent.table if isinstance(star.parent, exp.Column) else None
                tables = [select.args["from_"].this, *(j.this for j in joins)]
                hidden = [
                    c
                    for t in tables
                    if of in (None, t.alias_or_name)
                    for c in needed.get(id(t), ())
                ]
                star.set("except_", [exp.to_identifier(c) for c in hidden])
        if select.args.get("distinct"):
            node.meta[_DISTINCT] = True
            select.set("distinct", None)
        age = f"greatest({', '.join(stamps)})"
        if select.args.get("group") or any(_has_aggregate(item) for item in select.expressions):
            # A group's youngest element; an aggregate of nothing is older than all elements.
            age = f"coalesce(max({age}), {BEGINNING})"
        select.select(f"{age} AS __age", copy=False, dialect="duckdb")
    return needed


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
        left = connection.sql(to_duckdb(node.left.unnest())).to_arrow_table()
        if node.meta.get(_DISTINCT):
            left = _keep_youngest_of_equal(left)
        right = connection.sql(to_duckdb(node.right.unnest())).to_arrow_table()
        name = f"negation_{number}"
        connection.register(
            "__arrow",
            left.take(pa.array(_find_youngest(left, right, by), pa.int64())).drop_columns("__age"),
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


def _keep_youngest_of_equal(left: pa.Table) -> pa.Table:
    """Keep of equal rows the youngest one: DISTINCT."""
    youngest: dict[tuple[Any, ...], int] = {}
    stamps = left["__age"].to_pylist()
    for place, key in enumerate(_keys(left, [n.lower() for n in left.column_names[:-1]])):
        if key not in youngest or stamps[youngest[key]] < stamps[place]:
            youngest[key] = place
    return left.take(pa.array(sorted(youngest.values()), pa.int64()))


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


def _keys(table: pa.Table, by: list[str]) -> list[tuple[Any, ...]]:
    """Read each row's values of the attributes."""
    names = [n.lower() for n in table.column_names]
    columns = [table.column(names.index(attribute)).to_pylist() for attribute in by]
    return [tuple(map(normalize, key)) for key in zip(*columns, strict=True)]
