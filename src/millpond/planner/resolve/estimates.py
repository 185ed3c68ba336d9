"""Estimates in a query's tree: `SUMMARY(name).ESTIMATE.…` becomes a function DuckDB knows by name.

The function's values come from the summary as it is when the query is answered. So an estimate is
no part of a predicate that elements are matched with as they arrive: it may stand in a SELECT list
and in what is computed from that, and in a preference.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millpond.catalog.objects import FunctionDef, StreamDef, SummaryDef
from millpond.cql.print.dialect import print_query
from millpond.cql.tree.nodes import Preference, StreamWindow, SummaryEstimate
from millpond.cql.tree.places import span_of
from millpond.errors import MillpondError
from millpond.planner.resolve.error_places import mark
from millpond.planner.resolve.names import Names, did_you_mean

#: The beginning of the names that estimates have in DuckDB.
ESTIMATE = "__estimate_"


@dataclass(frozen=True)
class NamedEstimate:
    """An estimate a query calls.

    Attributes:
        summary: The summary.
        kind: The question, a key of `ESTIMATES`.
        values: How many values it is asked about.
        type: The attribute's type.
    """

    summary: SummaryDef
    kind: str
    values: int
    type: str

    @property
    def inside(self) -> str:
        """The name of the function in DuckDB: equal for equal names and signatures."""
        words = "".join(c if c.isalnum() else "_" for c in self.type.lower())
        name = self.summary.name.lower().encode().hex()
        return f"{ESTIMATE}{self.kind}_{self.values}_{words}_{name}"

    @property
    def signature(self) -> FunctionDef:
        """The function's arguments and result, for checking types."""
        inside, arguments = self.inside, (self.type,) * self.values
        return FunctionDef(0, inside, inside, arguments, "DOUBLE", None, 0.0, b"")


def name_estimates(tree: exp.Expr, text: str, catalog: Names) -> dict[str, NamedEstimate]:
    """Find the estimates of a query, and write into each the name of its function.

    Those of its preference are about regions, and no part of the residual.

    Returns:
        The estimates by these names.

    Raises:
        MillpondError: CQL-201, there is no such summary; CQL-224, the summary cannot answer the
            question, or the estimate stands where none may.
    """
    found: dict[str, NamedEstimate] = {}
    for node in tree.find_all(SummaryEstimate):
        if node.find_ancestor(Preference) is not None:
            continue
        _check_place(node, text)
        estimate = find_estimate(node, text, catalog)
        node.set("inside", estimate.inside)
        found[estimate.inside] = estimate
        _name_column(node)
    return found


def _name_column(node: exp.Expr) -> None:
    """Name a column of a SELECT list that an estimate stands in, if the query does not name it."""
    item = node
    while item.parent is not None and not isinstance(item.parent, exp.Select):
        item = item.parent
    if item.parent is not None and item.arg_key == "expressions" and not item.alias:
        named = exp.Alias(alias=exp.to_identifier(print_query(item), quoted=True))
        item.replace(named)
        named.set("this", item)


def show_estimate(inside: str) -> str:
    """The name of an estimate's function as people write it; any other name as it is.

    >>> show_estimate("__estimate_count_1_integer_736b")
    'SUMMARY(sk).ESTIMATE.COUNT'
    """
    if not inside.startswith(ESTIMATE):
        return inside
    kind, _, rest = inside.removeprefix(ESTIMATE).partition("_")
    summary = bytes.fromhex(rest.rpartition("_")[2]).decode()
    return f"SUMMARY({summary}).ESTIMATE.{kind.upper()}"


def find_estimate(node: SummaryEstimate, text: str, catalog: Names) -> NamedEstimate:
    """Find what an estimate is asked of. Raises as `name_estimates`."""
    summary = catalog.summary(node.name)
    if summary is None:
        raise MillpondError(
            "CQL-201",
            f'no summary "{node.name}"',
            hint=did_you_mean(node.name, catalog.summaries())
            or "CREATE SUMMARY name ON stream (attribute) WITH GRANULARITY … makes one.",
            text=text,
            span=span_of(node.this),
        )
    kind, values = str(node.args["kind"]), len(node.expressions)
    if values == 2 and summary.kind == "count sketch":
        raise MillpondError(
            "CQL-224",
            f'summary "{summary.name}" answers about single values only',
            detail="A count sketch knows no order.",
            hint="Create a summary USING HISTOGRAM or USING SAMPLE for ranges.",
            text=text,
            span=span_of(node),
        )
    stream = catalog.find(summary.stream)
    field = stream.schema.find(summary.attribute) if isinstance(stream, StreamDef) else None
    if field is None:
        raise MillpondError("CQL-201", f'no stream "{summary.stream}" any more')
    return NamedEstimate(summary, kind, values, field.type)


def _check_place(node: exp.Expr, text: str) -> None:
    above = node.parent
    while above is not None and not isinstance(above, exp.Query):
        clause = None
        if isinstance(above, exp.Where | exp.Group):
            clause = above.key.upper().replace("GROUP", "GROUP BY")
        elif isinstance(above, exp.Join):
            clause = "ON"
        elif isinstance(above, StreamWindow):
            clause = "a window"
        elif isinstance(above, SummaryEstimate):
            clause = "another estimate"
        if clause is not None:
            raise MillpondError(
                "CQL-224",
                f"an estimate in {clause}",
                detail="Elements are matched when they arrive, and estimates change with time.",
                hint="Put the estimate into the SELECT list of a query in brackets, and compare "
                "it outside.",
                text=text,
                span=mark(node, text) or span_of(node),
            )
        above = above.parent
