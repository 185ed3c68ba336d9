"""Whether a SELECT gives one row for each combination of its sources' rows."""

from __future__ import annotations

from millpond.planner.resolve.placement import find_set_call, has_aggregate
from millpond.planner.resolve.scope import Scope


def is_row_by_row(scope: Scope) -> bool:
    """Whether a SELECT maps each row of its FROM clause to at most one row, row by row."""
    select = scope.select
    if any(
        select.args.get(k)
        for k in ("group", "having", "qualify", "distinct", "limit", "offset", "windows")
    ):
        return False
    return not any(
        has_aggregate(item) or find_set_call(item) is not None for item in select.expressions
    )
