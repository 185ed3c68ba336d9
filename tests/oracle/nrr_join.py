"""Joins with non-retroactive relations, as SEMANTICS section 3 has them, for DuckDB to compute.

A row of the join is made of stream elements and rows of the relation. The rows of the relation must
be its rows at the greatest timestamp of the elements. So the table of the relation has all its row
versions, with the intervals in which they held, and the join's condition asks that the greatest
timestamp lies in the interval.
"""

from __future__ import annotations

from sqlglot import exp
from tests.oracle.world import World

from millpond.model.schema import Field, Schema


def join_nrrs(world: World, tree: exp.Expression) -> dict[int, tuple[str, ...]]:
    """Write the conditions into a tree; return the columns that each occurrence needs for them.

    The columns are by the id of the occurrence: for a stream the column of its elements'
    timestamps, for a non-retroactive relation the begin and end of each row's interval.
    """
    needed: dict[int, tuple[str, ...]] = {}
    for number, select in enumerate(list(tree.find_all(exp.Select))):
        joins = select.args.get("joins") or []
        tables = _items(select)
        names = [t.name.lower() if isinstance(t, exp.Table) else "" for t in tables]
        for place, name in enumerate(names):
            relation = world.relations.get(name)
            if relation is None or not relation.definition.non_retroactive:
                continue
            join = joins[place - 1] if place else None
            optional = join is not None and (join.side == "LEFT" or join.kind in ("SEMI", "ANTI"))
            stamps = _stamp(world, needed, tables[:place] if optional else tables)
            inner, around = select, select.find_ancestor(exp.Select)
            while not stamps and around is not None:
                # In a subquery: the elements of the row that it is evaluated for. A query in FROM
                # is evaluated for the items before it, one in ON for the join's item too.
                above = _items(around)
                holds = [any(n is inner for n in item.walk()) for item in above]
                if any(holds):
                    above = above[: holds.index(True)]
                else:
                    ons = [j.args.get("on") for j in around.args.get("joins") or []]
                    for found, on in enumerate(ons):
                        if on is not None and any(n is inner for n in on.walk()):
                            above = above[: found + 2]
                stamps = _stamp(world, needed, above)
                inner, around = around, around.find_ancestor(exp.Select)
            if not stamps:
                if _stands_apart(world, tables[place]):
                    continue
                if any(o.name.lower() in world.streams for o in tree.find_all(exp.Table)):
                    raise ValueError("a non-retroactive relation without a stream beside it")
                continue
            begin, end = f"begin_{number}_{place}", f"end_{number}_{place}"
            needed[id(tables[place])] = (begin, end)
            moment = f"greatest({', '.join(stamps)})"
            condition = f"{begin} <= {moment} AND {moment} < {end}"
            if optional and join is not None:
                join.on(condition, copy=False, dialect="duckdb")
            else:
                select.where(condition, copy=False, dialect="duckdb")
    for select in tree.find_all(exp.Select):
        extra = {t.alias_or_name: needed.get(id(t), ()) for t in _items(select)}
        for star in [s for item in select.expressions for s in item.find_all(exp.Star)]:
            if isinstance(star.parent, exp.Count):
                continue
            of = star.parent.table if isinstance(star.parent, exp.Column) else None
            hidden = [c for name, own in extra.items() if of in (None, name) for c in own]
            if hidden:
                star.set("except_", [exp.to_identifier(c) for c in hidden])
    for query in tree.find_all(exp.Subquery):
        if id(query) in needed:
            # Its rows are elements: it hands on when the youngest of each row came.
            youngest = ", ".join(_stamp(world, needed, _items(query.this)))
            query.this.select(
                f"greatest({youngest}) AS {needed[id(query)][0]}", copy=False, dialect="duckdb"
            )
    return needed


def _stamp(world: World, needed: dict[int, tuple[str, ...]], items: list[exp.Expr]) -> list[str]:
    """Name a column of timestamps for each item whose rows are elements; list these columns."""
    stamps: list[str] = []
    for item in items:
        if isinstance(item, exp.Table):
            made = item.name.lower().removesuffix("$rejects") in world.streams
        else:
            made = _is_made_row_by_row(item) and bool(_stamp(world, needed, _items(item.this)))
        if made:
            stamps += needed.setdefault(id(item), (f"at_{len(needed)}",))
    return stamps


def _is_made_row_by_row(item: exp.Expr) -> bool:
    """Whether an item of FROM is a plain SELECT, each of whose rows is made of one of its FROM."""
    query = item.this
    if not isinstance(item, exp.Subquery) or not isinstance(query, exp.Select):
        return False
    clauses = ("group", "having", "distinct", "qualify", "limit", "offset", "windows")
    if any(query.args.get(clause) for clause in clauses):
        return False
    return not any(c.find(exp.AggFunc) or c.find(exp.Window) for c in query.expressions)


def _stands_apart(world: World, table: exp.Expr) -> bool:
    """Whether a relation meets no element: every SELECT around it reads nothing else in FROM.

    Then there is no join, and what holds is what it is at the instant.
    """
    if table.find_ancestor(exp.CTE):
        return False
    select = table.find_ancestor(exp.Select)
    inner: exp.Expr = table
    while select is not None:
        others = list(select.find_all(exp.Table))
        mine = [t for t in others if not _is_apart(t, inner, select)]
        names = {t.name.lower() for t in mine if t is not table}
        if select.args.get("from_") and not names <= set(world.relations):
            return False
        inner, select = select, select.find_ancestor(exp.Select)
    return True


def _is_apart(table: exp.Table, inner: exp.Expr, select: exp.Select) -> bool:
    """Whether a table of a SELECT stands with `inner` below one item of its FROM clause."""
    for item in _items(select):
        tables = [id(n) for n in item.walk()]
        if id(inner) in tables and id(table) in tables:
            return item is not inner
    return False


def _items(select: exp.Select) -> list[exp.Expr]:
    """List the items of a SELECT's FROM clause."""
    clause = select.args.get("from_")
    joins = select.args.get("joins") or []
    return [clause.this, *(join.this for join in joins)] if clause is not None else []


def add_instants(schema: Schema, *names: str) -> Schema:
    """Add columns of instants at the end of a schema."""
    return Schema((*schema.fields, *(Field(name, "BIGINT") for name in names)))
