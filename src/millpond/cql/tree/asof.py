"""ASOF JOIN: which rows of the right side the join cannot tell apart."""

from __future__ import annotations

from sqlglot import exp

_INEQUALITIES = (exp.GT, exp.GTE, exp.LT, exp.LTE)


def find_asof_keys(join: exp.Expr) -> list[exp.Expr] | None:
    """Find the expressions over the right side that an ASOF JOIN compares.

    The join cannot tell rows apart in which these are equal. None if the condition is not made of
    equalities and one inequality, each between an expression over the left side and one over the
    right.
    """
    name = join.this.alias_or_name
    if using := join.args.get("using"):
        return [exp.column(column.name, table=name, quoted=True) for column in using]
    keys: list[exp.Expr] = []
    inequalities = 0
    stack = [join.args["on"]]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.And):
            stack += [node.expression, node.this]
            continue
        if isinstance(node, exp.Paren):
            stack.append(node.this)
            continue
        if not isinstance(node, (exp.EQ, *_INEQUALITIES)):
            return None
        inequalities += isinstance(node, _INEQUALITIES)
        sides = [_tables(side) for side in (node.this, node.expression)]
        own = [tables == {name.lower()} for tables in sides]
        others = [bool(tables) and not tables & {name.lower(), ""} for tables in sides]
        if own[0] and others[1]:
            keys.append(node.this)
        elif own[1] and others[0]:
            keys.append(node.expression)
        else:
            return None
    return keys if name and inequalities == 1 else None


def _tables(side: exp.Expr) -> set[str]:
    return {column.table.lower() for column in side.find_all(exp.Column)}
