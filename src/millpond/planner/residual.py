"""The texts of a bound query: its residual in DuckDB's SQL, and its canonical CQL."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from millpond.cql.print.dialect import print_query, to_duckdb
from millpond.cql.tree import nodes
from millpond.planner.resolve.negation import spell_out_negations
from millpond.planner.resolve.nrr_join import add_nrr_conditions

#: Key of a table's `meta`: the name of its slice.
LEAF = "leaf"


def with_literals(tree: exp.Expr | None, literals: Mapping[int, str]) -> exp.Expr | None:
    """Return the tree, or a copy with a query's own constants if they differ.

    The copying is written out here, because sqlglot's own is three times slower and every
    registered query needs it. Places are not copied: they refer to the template's text.
    """
    if tree is None or not literals:
        return tree
    try:
        return _rebuild(tree, literals)
    except RecursionError:
        copied = tree.copy()
        replace_literals(copied, literals)
        return copied


def _rebuild(node: exp.Expr, literals: Mapping[int, str]) -> exp.Expr:
    fresh = type(node)()
    args = fresh.args
    for key, value in node.args.items():
        if isinstance(value, exp.Expr):
            child = _rebuild(value, literals)
            child.parent, child.arg_key = fresh, key
            args[key] = child
        elif type(value) is list:
            items: list[object] = []
            for index, item in enumerate(value):
                if isinstance(item, exp.Expr):
                    item = _rebuild(item, literals)
                    item.parent, item.arg_key, item.index = fresh, key, index
                items.append(item)
            args[key] = items
        else:
            args[key] = value
    if type(node) is exp.Literal and node._meta:
        text = literals.get(node._meta.get("start", -1))
        if text is not None:
            args["this"] = text
    return fresh


def replace_literals(tree: exp.Expr, literals: Mapping[int, str]) -> None:
    """Write constants into a tree; a literal is identified by its place in the text."""
    for node in tree.walk():
        if isinstance(node, exp.Literal):
            meta = node._meta
            text = literals.get(meta["start"]) if meta and "start" in meta else None
            if text is not None:
                node.args["this"] = text


def write_canonical_cql(tree: exp.Expr, literals: Mapping[int, str]) -> str:
    """Print the query's CQL from its tree."""
    if literals:
        tree = tree.copy()
        replace_literals(tree, literals)
    return print_query(tree)


def write_residual_sql(tree: exp.Expr, literals: Mapping[int, str]) -> str:
    """Write the query's SQL over the tables of its leaves."""
    return to_duckdb(make_residual_tree(tree, literals))


def make_residual_tree(tree: exp.Expr, literals: Mapping[int, str]) -> exp.Expr:
    """Copy the query with slices instead of streams and relations, and without windows."""
    query = tree.this if isinstance(tree, nodes.RelationToStream) else tree
    copied = query.copy()
    if literals:
        replace_literals(copied, literals)
    return to_slices(copied)


def to_slices(tree: exp.Expr) -> exp.Expr:
    """Replace streams and relations in a tree by slices, and remove windows.

    The tree is changed in place.
    """
    for node in list(tree.walk()):
        if isinstance(node, exp.Table):
            _to_slice(node)
        elif isinstance(node, exp.Subquery):
            node.args.pop(nodes.STREAM_SAMPLE, None)
        elif isinstance(node, exp.Select):
            node.args.pop(nodes.PERIOD, None)
            add_nrr_conditions(node)
    return spell_out_negations(tree)


def _to_slice(table: exp.Table) -> None:
    leaf = table.meta.get(LEAF)
    if leaf is None:
        return
    if not table.args.get("alias"):
        table.set("alias", exp.TableAlias(this=table.this.copy()))
    elif table.args["alias"].args.get("this") is None:
        table.args["alias"].set("this", table.this.copy())
    table.set("this", exp.Identifier(this=leaf, quoted=False))
    table.args.pop(nodes.WINDOW, None)
    table.args.pop(nodes.STREAM_SAMPLE, None)
