"""The ages of a query's rows, for negation: a row is as old as the youngest element it is made of.

The left side of `EXCEPT ALL … BY` becomes a query with one more column, its rows' age (SEMANTICS,
section 3):

| a row of | is as old as |
| --- | --- |
| a SELECT | the greatest timestamp of its elements; a group's row, of the group's elements |
| DISTINCT, UNION | the youngest of the equal rows |
| INTERSECT | the youngest of the equal rows on both sides |
| INTERSECT ALL | the n-th youngest of each side make one row, as old as the younger of both |
| EXCEPT, EXCEPT ALL | the left row; EXCEPT ALL leaves the youngest |

What is made of no element is older than all that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp

from millpond.cql.tree.nodes import BY_ATTRIBUTES
from millpond.model.duckdb_words import quote_name
from millpond.model.time import BEGINNING
from millpond.planner.resolve.row_by_row import is_group_by_group

#: Key of a SELECT's `meta`: the timestamp columns of which the greatest is a row's age.
STAMPS = "age_stamps"
#: The name of the column of ages.
AGE = "__age"
#: Key of a negation's `meta`: the names of its left side's columns.
COLUMNS = "negation_columns"
#: What makes other rows of a query's.
_AROUND = ("with_", "limit", "offset")

#: How rows come out of set operations, from `__both`: the rows of both sides, each with its age
#: `a`, and `side` 0 or 1. Said of their columns: `keys`, and `shown` with their names.
_SHAPES = {
    "union all": "SELECT {shown}, a AS __age FROM __both",
    "union": "SELECT {shown}, max(a) AS __age FROM __both GROUP BY {keys}",
    "intersect": "SELECT {shown}, max(a) AS __age FROM __both GROUP BY {keys}"
    " HAVING min(side) = 0 AND max(side) = 1",
    "intersect all": "SELECT {shown}, max(a) AS __age FROM (SELECT *, row_number()"
    " OVER (PARTITION BY {keys}, side ORDER BY a DESC) AS n FROM __both) AS x"
    " GROUP BY {keys}, n HAVING min(side) = 0 AND max(side) = 1",
    "except": "SELECT {shown}, max(a) AS __age FROM __both GROUP BY {keys} HAVING max(side) = 0",
    "except all": "SELECT {shown}, a AS __age FROM (SELECT *, row_number()"
    " OVER (PARTITION BY {keys} ORDER BY side, a DESC) AS n, count(*) OVER (PARTITION BY {keys})"
    " - 2 * sum(side) OVER (PARTITION BY {keys}) AS many FROM __both) AS x WHERE n <= many",
}


def find_aged_parts(query: exp.Expr) -> Iterator[exp.Expr]:
    """Find what the ages of a query's rows are made of: its SELECTs and negations."""
    is_more = any(query.args.get(clause) for clause in _AROUND)
    if isinstance(query, exp.Subquery) and not is_more:
        yield from find_aged_parts(query.this)
    elif isinstance(query, exp.SetOperation) and not query.args.get(BY_ATTRIBUTES) and not is_more:
        yield from find_aged_parts(query.left)
        if not isinstance(query, exp.Except):  # a row of EXCEPT is the left side's
            yield from find_aged_parts(query.right)
    else:
        yield query


def write_aged(query: exp.Expr, names: Sequence[str]) -> exp.Query:
    """Write a query with its rows' ages as one more column, the last.

    Args:
        query: The query, which is not changed. Its parts (`find_aged_parts`) are SELECTs with
            `STAMPS`, and negations with `COLUMNS`.
        names: The names of its columns.
    """
    node = query.unnest()
    if isinstance(node, exp.Select):
        return _write_aged_select(node, names)
    assert isinstance(node, exp.SetOperation)
    if node.args.get(BY_ATTRIBUTES):
        return write_negation(node, with_age=True)
    keys = _list_columns(names)
    left, once = write_aged(node.left, names), bool(node.args.get("distinct"))
    right: exp.Expr = node.right.unnest().copy()
    second = f"SELECT {keys}, CAST({BEGINNING} AS BIGINT), 1 FROM __right AS r({keys})"
    if not isinstance(node, exp.Except):
        right = write_aged(node.right, names)
        second = f"SELECT *, 1 FROM __right AS r({keys}, a)"
    both = f"SELECT *, 0 FROM __left AS l({keys}, a) UNION ALL {second}"
    return _combine(f"{node.key}{'' if once else ' all'}", names, both, left, right)


def _write_aged_select(select: exp.Select, names: Sequence[str]) -> exp.Query:
    """Write a SELECT with its rows' ages: the greatest of its elements' timestamps."""
    oldest = exp.cast(exp.Literal.number(BEGINNING), "BIGINT")
    stamps: list[exp.Expr] = [exp.column(name) for name in select.meta[STAMPS]]
    age = exp.Greatest(this=stamps[0], expressions=stamps[1:]) if len(stamps) > 1 else None
    youngest: exp.Expr = age or (stamps[0] if stamps else oldest)
    if is_group_by_group(select):  # the group of no rows is made of no element
        youngest = exp.Coalesce(this=exp.Max(this=youngest), expressions=[oldest.copy()])
    aged = select.copy()
    aged.set("distinct", None)
    aged.set("order", None)
    aged.append("expressions", exp.alias_(youngest, AGE))
    if not select.args.get("distinct"):
        return aged
    both = f"SELECT *, 0 FROM __left AS l({_list_columns(names)}, a)"
    return _combine("union", names, both, aged)


def _combine(shape: str, names: Sequence[str], both: str, *sides: exp.Expr) -> exp.Query:
    """Write a query of `_SHAPES`, with `both` as `__both` and the sides as `__left`, `__right`."""
    keys = _list_columns(names)
    shown = ", ".join(f"c{place} AS {quote_name(name)}" for place, name in enumerate(names))
    text = _SHAPES[shape].format(keys=keys, shown=shown)
    plain = _parse(text.replace("__both", f"({both}) AS u({keys}, a, side)"))
    return _replace_tables(plain, dict(zip(("__left", "__right"), sides, strict=False)))


def write_negation(node: exp.SetOperation, *, with_age: bool = False) -> exp.Query:
    """Write a negation as ordinary SQL, `with_age` with its rows' ages as the last column."""
    names: list[str] = node.meta[COLUMNS]
    by = [a.name.lower() for a in node.args[BY_ATTRIBUTES]]
    places = [next(i for i, n in enumerate(names) if n.lower() == a) for a in by]
    age = f"c{len(names)}"
    keys = ", ".join(f"c{p}" for p in places)
    values = "".join(f", c{i} DESC NULLS FIRST" for i in range(len(names)))
    shown = ", ".join(f"c{i} AS {quote_name(name)}" for i, name in enumerate(names))
    grouped = ", ".join(f"__r.{quote_name(a)} AS b{i}" for i, a in enumerate(by))
    numbers = ", ".join(str(i + 1) for i in range(len(by)))
    equal = " AND ".join(f"__o.c{p} IS NOT DISTINCT FROM __m.b{i}" for i, p in enumerate(places))
    plain = _parse(
        f"SELECT {shown}{f', {age} AS {AGE}' if with_age else ''} FROM (SELECT *, row_number()"
        f" OVER (PARTITION BY {keys} ORDER BY {age} DESC{values}) AS __rank,"
        f" count(*) OVER (PARTITION BY {keys}) AS __many"
        f" FROM __left AS __l({_list_columns(names)}, {age})) AS __o"
        f" LEFT JOIN (SELECT {grouped}, count(*) AS __less FROM __right AS __r"
        f" GROUP BY {numbers}) AS __m ON {equal}"
        f" WHERE __rank <= __many - coalesce(__less, 0)"
    )
    sides = {"__left": write_aged(node.left, names), "__right": node.right.unnest().copy()}
    _replace_tables(plain, sides)
    for clause in ("with_", "order", "limit", "offset"):
        if node.args.get(clause):
            plain.set(clause, node.args[clause].copy())
    return plain


def _list_columns(names: Sequence[str]) -> str:
    return ", ".join(f"c{place}" for place in range(len(names)))


def _replace_tables(plain: exp.Query, queries: Mapping[str, exp.Expr]) -> exp.Query:
    """Replace tables, by their names, by queries."""
    for table in list(plain.find_all(exp.Table)):
        if (query := queries.get(table.name)) is not None:
            table.replace(exp.Subquery(this=query, alias=table.args["alias"].copy()))
    return plain


def _parse(text: str) -> exp.Query:
    """Parse a query that this module wrote, so in DuckDB's own dialect."""
    parsed: exp.Expr = exp.maybe_parse(text, dialect="duckdb")
    assert isinstance(parsed, exp.Query)
    return parsed
