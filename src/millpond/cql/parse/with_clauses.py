"""WITH before a query in brackets that has a WITH of its own.

The brackets are no query of their own, so both clauses become one, in the order of the text. An
outer entry whose name an inner entry has too is hidden, and gets another name. So a name means the
entry of the nearest WITH to every reader of the query.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp


def put_with_before(outer: exp.With, body: exp.Expr) -> exp.Expr:
    """Put the clause `outer` before the query `body`, without the brackets around `body`."""
    query = body
    while isinstance(query, exp.Subquery) and query.is_wrapper:
        query = query.this
    inner = query.args.get("with_")
    if inner is not None:
        _rename_hidden_entries(outer, inner)
        outer.set("expressions", [*outer.expressions, *inner.expressions])
        if inner.args.get("recursive"):
            outer.set("recursive", True)
    query.set("with_", outer)
    return query


def _rename_hidden_entries(outer: exp.With, inner: exp.With) -> None:
    """Give new names to the entries of the outer clause that the inner clause hides."""
    trees = (outer, inner.root())
    taken = {i.name.lower() for tree in trees for i in tree.find_all(exp.Identifier)}
    hiding = [entry.alias.lower() for entry in inner.expressions]
    for place, entry in enumerate(outer.expressions):
        name = entry.alias.lower()
        if name not in hiding:
            continue
        readers = [*outer.expressions[place + 1 :], *inner.expressions[: hiding.index(name) + 1]]
        fresh = next(f for n in range(1, len(taken) + 2) if (f := f"{name}_{n}") not in taken)
        taken.add(fresh)
        for reader in readers:
            for table in _list_reads(reader, name):
                _read_as(table, fresh)
        entry.args["alias"].set("this", exp.to_identifier(fresh, quoted=True))


def _list_reads(reader: exp.Expr, name: str) -> Iterator[exp.Table]:
    """Find the tables below a node that read an entry, by its name, of a WITH around the node."""
    for table in list(reader.find_all(exp.Table)):
        if table.name.lower() == name and not _is_hidden(table, reader, name):
            yield table


def _is_hidden(table: exp.Table, reader: exp.Expr, name: str) -> bool:
    """Whether a WITH between a node and a table below it defines the name for the table."""
    inside: exp.Expr = table
    entry: exp.Expr | None = None
    while inside is not reader and (around := inside.parent) is not None:
        clause = around.args.get("with_")
        if isinstance(around, exp.CTE):
            entry = around
        elif clause is not None:
            for known in clause.expressions:
                if known is entry:
                    break
                if known.alias.lower() == name:
                    return True
            entry = None
        inside = around
    return False


def _read_as(table: exp.Table, name: str) -> None:
    """Make a table read an entry's new name, with the old name as its alias."""
    alias = table.args.get("alias")
    if alias is None:
        table.set("alias", exp.TableAlias(this=table.this.copy()))
    elif alias.args.get("this") is None:
        alias.set("this", table.this.copy())
    table.set("this", exp.to_identifier(name, quoted=True))
