"""Windows behind a query in brackets that is a stream itself: a selection from one stream.

The result of such a query is a stream, because its rows never leave, and each row is one element
with the element's timestamp. So the window becomes the stream's, over the elements that the query
selects.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.cql.tree.nodes import PERIOD, STREAM_SAMPLE, WINDOW, StreamWindow

#: Clauses of a SELECT that computes each of its rows from one row.
_ROW_BY_ROW = ("expressions", "from_", "where", "kind")


def move_window(window: StreamWindow, query: exp.Expr) -> bool:
    """Move a window behind a query to the query's stream; return whether the query is a stream."""
    select = query.unnest() if isinstance(query, exp.Subquery) else query
    if not isinstance(select, exp.Select) or not _is_selection(select):
        return False
    if window.args.get("where") is not None:
        return False
    table, where = select.args["from_"].this, select.args.get("where")
    if window.args["kind"] == "rows":
        by = [_find_column(select, column) for column in window.args.get("by") or ()]
        if None in by:
            return False
        window.set("by", by)
        if where is not None:  # the window counts the selected elements
            window.set("where", where.this)
            select.set("where", None)
    table.set(WINDOW, window)
    return True


def _is_selection(select: exp.Select) -> bool:
    """Whether a SELECT selects elements of one stream and computes each row from one element."""
    clause = select.args.get("from_")
    table = clause.this if clause is not None else None
    if not isinstance(table, exp.Table) or table.args.get("joins"):
        return False
    if any(value for key, value in select.args.items() if key not in _ROW_BY_ROW):
        return False
    if table.args.get(WINDOW) or table.args.get(STREAM_SAMPLE) or select.args.get(PERIOD):
        return False
    parts = [*select.expressions, *filter(None, [select.args.get("where")])]
    others = (exp.AggFunc, exp.AnonymousAggFunc, exp.Window, exp.Query)
    return not any(
        part.find(*others) is not None
        or any(call.name.lower() == "unnest" for call in part.find_all(exp.Anonymous))
        for part in parts
    )


def _find_column(select: exp.Select, wanted: exp.Identifier) -> exp.Identifier | None:
    """Find the stream's column that a column of the query renames."""
    for item in select.expressions:
        value = item.unalias()
        if item.alias_or_name.lower() == wanted.name.lower() and isinstance(value, exp.Column):
            found: exp.Identifier = value.this.copy()
            return found
    starred = any(item.is_star for item in select.expressions)
    return wanted if starred else None
