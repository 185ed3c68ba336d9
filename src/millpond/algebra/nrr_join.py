"""Joins with non-retroactive relations, as SEMANTICS section 3 has them, for DuckDB to compute.

A row of the join is made of stream elements and rows of the relation. The rows of the relation must
be its rows at the greatest timestamp of the elements. So the table of the relation has all its row
versions, with the intervals in which they held, and the join's condition asks that the greatest
timestamp lies in the interval.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.algebra.world import World
from millpond.model.schema import Field, Schema


def join_nrrs(world: World, tree: exp.Expression) -> dict[int, tuple[str, ...]]:
    """Write the conditions into a tree; return the columns that each occurrence needs for them.

    The columns are by the id of the occurrence: for a stream the column of its elements'
    timestamps, for a non-retroactive relation the begin and end of each row's interval.
    """
    needed: dict[int, tuple[str, ...]] = {}
    for number, select in enumerate(tree.find_all(exp.Select)):
        joins = select.args.get("joins") or []
        tables = _items(select)
        names = [t.name.lower() if isinstance(t, exp.Table) else "" for t in tables]
        for place, name in enumerate(names):
            relation = world.relations.get(name)
            if relation is None or not relation.definition.non_retroactive:
                continue
            join = joins[place - 1] if place else None
            optional = join is not None and (join.side == "LEFT" or join.kind in ("SEMI", "ANTI"))
            stamps = []
            for other, beside in enumerate(names[:place] if optional else names):
                if beside.removesuffix("$rejects") in world.streams:
                    stamps.append(f"at_{number}_{other}")
                    needed[id(tables[other])] = (stamps[-1],)
            around = select.find_ancestor(exp.Select)
            while not stamps and around is not None:
                # In a subquery: the elements of the row that it is evaluated for.
                for other, table in enumerate(_items(around)):
                    name = table.name.lower() if isinstance(table, exp.Table) else ""
                    if name.removesuffix("$rejects") in world.streams:
                        known = needed.get(id(table)) or (f"at_{number}_{place}_{other}",)
                        needed[id(table)] = known
                        stamps.append(known[0])
                around = around.find_ancestor(exp.Select)
            if not stamps:
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
    return needed


def _items(select: exp.Select) -> list[exp.Expr]:
    """List the items of a SELECT's FROM clause."""
    clause = select.args.get("from_")
    joins = select.args.get("joins") or []
    return [clause.this, *(join.this for join in joins)] if clause is not None else []


def add_instants(schema: Schema, *names: str) -> Schema:
    """Add columns of instants at the end of a schema."""
    return Schema((*schema.fields, *(Field(name, "BIGINT") for name in names)))
