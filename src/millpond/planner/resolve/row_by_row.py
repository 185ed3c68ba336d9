"""How a SELECT makes its rows: one of each combination of its sources' rows, or one of a group."""

from __future__ import annotations

from sqlglot import exp

from millpond.planner.resolve.placement import find_set_call, has_aggregate
from millpond.planner.resolve.scope import SelectScope

#: The clauses that make other rows of the rows of a FROM clause or of its groups.
_CLAUSES = ("qualify", "limit", "offset", "windows")


def is_row_by_row(scope: SelectScope, *, distinct: bool = False) -> bool:
    """Whether a SELECT maps each row of its FROM clause to at most one row, row by row.

    With `distinct` it may leave out equal rows.
    """
    select = scope.select
    clauses = ("group", "having", *_CLAUSES, *(() if distinct else ("distinct",)))
    if any(map(select.args.get, clauses)):
        return False
    return not any(
        has_aggregate(item) or find_set_call(item) is not None for item in select.expressions
    )


def is_group_by_group(select: exp.Select) -> bool:
    """Whether a SELECT makes each row of a group of its sources' rows."""
    if select.args.get("group") or select.args.get("having"):
        return True
    return any(map(has_aggregate, select.expressions))


def is_row_by_group(scope: SelectScope, *, distinct: bool = False) -> bool:
    """Whether each row of a SELECT is made of the rows of one group, and of nothing else.

    With `distinct` it may leave out equal rows.
    """
    select = scope.select
    if any(map(select.args.get, (*_CLAUSES, *(() if distinct else ("distinct",))))):
        return False
    return is_group_by_group(select) and not any(
        item.find(exp.Window) is not None or find_set_call(item) is not None
        for item in select.expressions
    )
