"""Queries in FROM that are streams: `(ISTREAM(SELECT …)) [RANGE 1 MINUTE] AS t SAMPLE(10)`.

STREAM (section 2.2) applies windows and samples to "a stream produced by a subquery". Such a query
is a derived stream without a name of its own: the pond makes one for all queries that have it, and
the FROM item becomes the derived stream, under a name that is a hash of the query's text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from sqlglot import exp

from millpond.catalog.objects import Definition, StreamDef
from millpond.cql.print.dialect import print_query
from millpond.cql.tree import nodes
from millpond.cql.tree.places import place, span_of
from millpond.errors import MillpondError
from millpond.planner.resolve.names import TEXT_EPOCH, Names, see_definition
from millpond.planner.resolve.placement import find_set_call, has_aggregate

#: What the names of streams begin with that subqueries stand for.
PREFIX = "stream$"
_MORE_THAN_CHOOSING = (
    "with_", "group", "having", "qualify", "windows", "distinct", "order", "limit", "offset",
)  # fmt: skip


class InnerStreamMissing(MillpondError):
    """A query reads a subquery that is a stream, and the pond has not made that stream.

    Attributes:
        query: The subquery's CQL.
        text_epoch: The epoch at which it was given; None: now.
    """

    def __init__(
        self, query: str, name: str, subquery: exp.Expr, text: str, text_epoch: int | None
    ) -> None:
        super().__init__(
            "CQL-301",
            "a subquery that is a stream is not available here yet",
            detail="Its elements are computed once a query over it is registered or asked.",
            hint="CREATE QUERY name AS it first, or CREATE STREAM name AS the subquery.",
            text=text,
            span=span_of(subquery),
        )
        self.query = query
        self.name = name
        self.text_epoch = text_epoch


def name_inner_streams(tree: exp.Expr, text: str, catalog: Names) -> dict[str, Definition]:
    """Replace the subqueries that are streams by the names of their streams, in the tree itself.

    Returns:
        What the names of the streams depend on: the streams that the subqueries read, by name.

    Raises:
        InnerStreamMissing: the pond has no such stream yet.
    """
    used: dict[str, Definition] = {}
    for subquery in list(_find_inner_streams(tree)):
        inner = print_query(subquery.this)
        newest, text_epoch = _find_newest_column(subquery, catalog, used)
        name = name_of(inner, newest)
        if not isinstance(catalog.find(name), StreamDef):
            raise InnerStreamMissing(inner, name, subquery, text, text_epoch)
        identifier = exp.Identifier(this=name, quoted=True)
        if (span := span_of(subquery)) is not None:
            place(identifier, span)
        table = exp.Table(this=identifier)
        for key in ("alias", "joins", nodes.WINDOW, nodes.STREAM_SAMPLE):
            if (given := subquery.args.get(key)) is not None:
                table.set(key, given)
        subquery.replace(table)
    return used


def name_of(query: str, newest_column: int = 0) -> str:
    """Name the stream of a subquery: equal queries over equal columns have one stream."""
    columns = f" of {newest_column}" if newest_column else ""
    return PREFIX + hashlib.sha256(f"{query}{columns}".encode()).hexdigest()[:16]


def _find_newest_column(
    subquery: exp.Expr, catalog: Names, used: dict[str, Definition]
) -> tuple[int, int | None]:
    """Find when the newest column that a subquery can see was added, and when it was given."""
    newest, text_epoch = 0, None
    for table in subquery.find_all(exp.Table):
        text_epoch = table.meta.get(TEXT_EPOCH)
        name = ".".join(part.name for part in table.parts)
        found = catalog.find(name)
        seen = see_definition(table, found)
        if isinstance(found, StreamDef) and isinstance(seen, StreamDef):
            used[name] = found
            newest = max(newest, *(field.added for field in seen.schema.fields))
    return newest, text_epoch


def _find_inner_streams(node: exp.Expr) -> Iterator[exp.Subquery]:
    """Find the outermost subqueries that are streams."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Subquery) and _is_stream(node):
            yield node
        else:
            waiting.extend(node.iter_expressions())


def _is_stream(subquery: exp.Subquery) -> bool:
    if isinstance(subquery.this, nodes.RelationToStream) or subquery.args.get(nodes.WINDOW):
        return True
    sampled = subquery.args.get(nodes.STREAM_SAMPLE) is not None
    return sampled and not _is_sampled_below(subquery.this)


def _is_sampled_below(query: exp.Expr) -> bool:
    """Whether a sample of a query is a sample of its one stream.

    That is so of a selection, whose rows are one element's each, unless a window counts elements.
    """
    if not isinstance(query, exp.Select) or any(map(query.args.get, _MORE_THAN_CHOOSING)):
        return False
    clause = query.args.get("from_")
    table = clause.this if clause is not None else None
    if not isinstance(table, exp.Table) or query.args.get("joins") or table.args.get("joins"):
        return False
    window = table.args.get(nodes.WINDOW)
    if table.args.get(nodes.STREAM_SAMPLE) or (window and window.args["kind"] == "rows"):
        return False
    return not any(has_aggregate(i) or find_set_call(i) is not None for i in query.expressions)
