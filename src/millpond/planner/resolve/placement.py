"""Where aggregates and window functions may stand."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from millpond.cql.tree.function_calls import name_call
from millpond.errors import MillpondError
from millpond.model.functions import Function, Kind, find_function
from millpond.planner.resolve.error_places import mark


@dataclass(frozen=True)
class Placement:
    """The clause an expression stands in, and what is allowed there.

    Attributes:
        clause: The clause's name, for errors.
        aggregates: Whether an aggregate may stand here.
        aliases_first: Whether a name means an alias of the SELECT list before a column.
        over: Whether the next function in the tree is called OVER a window, so is no aggregate.
    """

    clause: str
    aggregates: bool = True
    aliases_first: bool = False
    over: bool = False

    def inside(self, node: exp.Expr) -> Placement:
        """Return the placement of a node's children."""
        if isinstance(node, exp.Window):
            return replace(self, over=True)
        if isinstance(node, _WRAPPERS):
            return self
        if is_aggregate(node):
            if self.over:
                return replace(self, over=False)
            return replace(self, clause="an aggregate", aggregates=False, over=False)
        return replace(self, over=False) if self.over else self


#: Nodes that may stand between OVER and its function.
_WRAPPERS = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)


def find_aggregate(node: exp.Expr) -> Function | None:
    """Find the aggregate that a node calls (of one group, or as a window function), if any."""
    if not isinstance(node, exp.Anonymous | exp.AggFunc):
        return None
    function = find_function(name_call(node))
    return function if function is not None and function.kind is Kind.AGGREGATE else None


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node calls an aggregate (of one group, or as a window function)."""
    return find_aggregate(node) is not None


def find_set_call(node: exp.Expr) -> exp.Expr | None:
    """Find a call inside an expression that gives several rows for one, if there is any."""
    for call in node.find_all(exp.Anonymous):
        function = find_function(call.name)
        if function is not None and function.kind is Kind.SET:
            return call
    return None


def has_aggregate(node: exp.Expr) -> bool:
    """Whether an expression contains an aggregate or window function of its own SELECT."""
    own = node.walk(prune=lambda n: isinstance(n, exp.Query))
    return any(is_aggregate(n) or isinstance(n, exp.Window) for n in own)


def check_placement(node: exp.Expr, place: Placement, text: str) -> None:
    """Refuse an aggregate or window function where none is allowed.

    Raises:
        MillpondError: CQL-206, at the call.
    """
    if place.aggregates:
        return
    if isinstance(node, exp.Window) and not isinstance(node.this, exp.Identifier):
        raise MillpondError(
            "CQL-206",
            f"window function in {place.clause}",
            detail="A window function is computed after WHERE, GROUP BY and aggregates.",
            hint="Compute it in a subquery, or filter with QUALIFY.",
            text=text,
            span=mark(node, text),
        )
    if not is_aggregate(node) or place.over:
        return
    nested = place.clause == "an aggregate"
    raise MillpondError(
        "CQL-206",
        "aggregate inside an aggregate" if nested else f"aggregate in {place.clause}",
        detail="An aggregate is computed over rows, and gives one row a group."
        if nested
        else f"{place.clause} is evaluated row by row, before anything is aggregated.",
        hint=_hint(place.clause),
        text=text,
        span=mark(node, text),
    )


def _hint(clause: str) -> str:
    if clause == "WHERE":
        return "Filter groups with HAVING."
    return "Compute the aggregate in a subquery."
