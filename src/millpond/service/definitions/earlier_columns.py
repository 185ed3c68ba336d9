"""Writes out which columns a text knows, where its streams have got others since.

A query reads the columns that its streams had when its text was given. Given now, the text may be
another query: `SELECT *` has more columns, and a name may mean an added column. So each stream that
has got columns becomes a subquery of those that the text knows, under the same name.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.catalog.objects import StreamDef
from millpond.cql.print.dialect import parse_query
from millpond.cql.print.printer import print_name
from millpond.cql.tree.nodes import RelationToStream
from millpond.state.version import Version

_JOINING = ("joins", "pivots", "laterals")


def keep_columns(query: exp.Expression, version: Version, text_epoch: int | None) -> exp.Expression:
    """Give a query whose text, given now, reads the columns that there were at an epoch.

    Args:
        query: The tree of the text; it is not changed.
        version: Where the streams are looked up.
        text_epoch: The epoch at which the text was given; None: now.
    """
    if text_epoch is None:
        return query
    kept = query.copy()
    for table, stream in list(_find_streams(kept, version)):
        columns = stream.schema.as_of(text_epoch)
        if columns is not stream.schema:
            _restrict(table, columns.names)
    return kept


def _find_streams(query: exp.Expression, version: Version) -> Iterator[tuple[exp.Table, StreamDef]]:
    for table in query.find_all(exp.Table):
        found = version.find(table.name)
        if isinstance(found, StreamDef) and found.schema.added and not _is_cte(table):
            yield table, found


def _is_cte(table: exp.Table) -> bool:
    """Whether a name in FROM is one that WITH gives."""
    within: exp.Expr | None = table
    cte: exp.Expr | None = None
    while within is not None:
        given = within.args.get("with_")
        if given is not None:
            names = [c.alias.lower() for c in given.expressions]
            place = next((i for i, c in enumerate(given.expressions) if c is cte), len(names))
            if table.name.lower() in names[:place]:
                return True
        if isinstance(within, exp.CTE):
            cte = within
        within = within.parent
    return False


def _restrict(table: exp.Table, names: tuple[str, ...]) -> None:
    """Put a subquery of some columns of a stream in the stream's place; or name them for `*`."""
    select = table.parent.parent if isinstance(table.parent, exp.From) else None
    if isinstance(select, exp.Select) and _reads_it_alone(select):
        if not any(_find_stars(item) for item in select.expressions):
            return
        if select.expressions == [exp.Star()]:
            select.set("expressions", parse_query(f"SELECT {_list(names)} FROM s").expressions)
            return
    outer = {key: table.args.get(key) for key in ("alias", *_JOINING) if table.args.get(key)}
    alias = outer.pop("alias", None) or exp.TableAlias(this=table.this.copy())
    made = parse_query(f"SELECT * FROM (SELECT {_list(names)} FROM s) AS s")
    subquery = made.find(exp.Subquery)
    assert subquery is not None
    table.replace(subquery)
    table.set("alias", None)
    for key, value in outer.items():
        table.set(key, None)
        subquery.set(key, value)
    subquery.set("alias", alias)
    inner = subquery.find(exp.Table)
    assert inner is not None
    inner.replace(table)


def _reads_it_alone(select: exp.Select) -> bool:
    """Whether a SELECT is the whole query and reads one table: each name is one of its columns."""
    is_whole = select.parent is None or isinstance(select.parent, RelationToStream)
    others = (q for q in select.find_all(exp.Query, exp.Join) if q is not select)
    return is_whole and next(others, None) is None


def _find_stars(item: exp.Expr) -> list[exp.Star]:
    return [s for s in item.find_all(exp.Star) if not isinstance(s.parent, exp.Count)]


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(map(print_name, names))
