"""Views: the name of a derived relation is replaced by the relation's query.

CREATE RELATION r AS q gives q a name. At every instant r holds q's answer (SEMANTICS, section 3:
snapshot reducibility), so a query over r equals the query with q as a subquery in r's place. Equal
parts of the plans of several queries over r are computed once, as equal parts of any plans are.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.catalog.objects import RelationDef
from millpond.cql.print.dialect import parse_query
from millpond.cql.tree import nodes
from millpond.errors import MillpondError
from millpond.planner.resolve.leaves import sampled_relation_error, windowed_relation_error
from millpond.planner.resolve.names import Names, mark_text

#: Key of the `meta` of a subquery that replaced a view's name. Such a subquery cannot read names of
#: the query around it, and a BEGIN … END around it does not apply to its streams.
VIEW = "view"


def expand_views(tree: exp.Expr, text: str, catalog: Names) -> dict[str, RelationDef]:
    """Replace views by their queries in the tree itself; return the views by their names.

    Raises:
        MillpondError: CQL-204 for a window of a view, CQL-216 for a sample of a view.
    """
    used: dict[str, RelationDef] = {}
    waiting = list(tree.find_all(exp.Table))
    while waiting:
        table = waiting.pop()
        name = ".".join(part.name for part in table.parts)
        found = catalog.find(name)
        if not isinstance(found, RelationDef) or found.view is None or is_cte(table):
            continue
        used[name] = found
        waiting += _expand(table, found, text).find_all(exp.Table)
    return used


def _expand(table: exp.Table, view: RelationDef, text: str) -> exp.Expr:
    """Replace one occurrence of a view; return the query that replaces it."""
    if (window := table.args.get(nodes.WINDOW)) is not None:
        raise windowed_relation_error(view.name, window, text)
    if (sample := table.args.get(nodes.STREAM_SAMPLE)) is not None:
        raise sampled_relation_error(view.name, sample, text)
    assert view.view is not None
    body = parse_query(view.view)
    mark_text(body, view.text_epoch)
    for node in body.walk():
        # Places refer to the view's own text: in this query's text they would be wrong.
        for key in ("start", "end", "line", "col"):
            node.meta.pop(key, None)
    given = table.args.get("alias")
    names = [c.name for c in given.args.get("columns") or []] if given is not None else []
    columns = [*names, *view.schema.names[len(names) :]]
    known_as = given.this if given is not None and given.this is not None else None
    alias = exp.TableAlias(
        this=known_as.copy() if known_as is not None else exp.to_identifier(view.name, quoted=True),
        columns=[exp.to_identifier(column, quoted=True) for column in columns],
    )
    subquery = exp.Subquery(this=body, alias=alias)
    subquery.meta[VIEW] = True
    if joins := table.args.get("joins"):
        subquery.set("joins", joins)
    table.replace(subquery)
    return body


def is_cte(table: exp.Table) -> bool:
    """Whether a table's name means an entry of a WITH that is visible there."""
    if len(table.parts) != 1:
        return False
    name = table.name.lower()
    inside: exp.Expr = table
    own: exp.Expr | None = None
    while True:
        if inside.meta.get(VIEW):
            return False  # a view's query cannot see what is around it
        outer = inside.parent
        if outer is None:
            return False
        if isinstance(outer, exp.CTE):
            own = outer
        clause = outer.args.get("with_") if not isinstance(outer, exp.With) else None
        if clause is not None:
            visible = list(clause.expressions)
            if any(own is entry for entry in visible):  # a CTE sees the CTEs before it
                visible = visible[: next(i for i, entry in enumerate(visible) if entry is own)]
            if any(entry.alias.lower() == name for entry in visible):
                return True
            own = None
        inside = outer


def refuse_stream_valued(to_stream: str | None, text: str, name: str) -> None:
    """Raise CQL-216 when a derived relation's query gives a stream."""
    if to_stream is not None:
        raise MillpondError(
            "CQL-216",
            f'the query of relation "{name}" gives a stream',
            detail=f"{to_stream.upper()} makes a stream of a relation.",
            hint=f"Leave it out, or CREATE STREAM {name} AS it.",
            text=text,
        )
