"""`R1 EXCEPT ALL R2 BY (a, …)`: the update-pattern paper's negation, in SQL over slices.

For each value of the attributes with v1 rows in R1 and v2 rows in R2, the answer has the youngest
max(v1 − v2, 0) of R1's rows (SEMANTICS, section 3; Update patterns, 2.1). A row's age is that of
the youngest element it is made of; of rows with equal ages, the row whose values sort later counts
as younger. So R1 must select from streams (and relations), row by row or in groups, and its
streams' slices have their elements' timestamps as one more column that no text can name, as in
`nrr_join.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp

from millpond.cql.tree.nodes import BY_ATTRIBUTES
from millpond.errors import MillpondError
from millpond.planner.resolve.ages import COLUMNS, STAMPS, find_aged_parts, write_negation
from millpond.planner.resolve.error_places import mark
from millpond.planner.resolve.names import did_you_mean, join_names, spell
from millpond.planner.resolve.nrr_join import HIDDEN, timestamp_column
from millpond.planner.resolve.row_by_row import is_row_by_group, is_row_by_row
from millpond.planner.resolve.scope import Body, SelectScope


def find_negations(tree: exp.Expr, *, outermost: bool = False) -> Iterator[exp.SetOperation]:
    """Find the negations in a query, inner negations first, or with `outermost` last."""
    found = [n for n in tree.find_all(exp.SetOperation, bfs=True) if n.args.get(BY_ATTRIBUTES)]
    yield from found if outermost else reversed(found)


def check_attributes(node: exp.SetOperation, sides: Sequence[Body], text: str) -> None:
    """Check that both sides have the attributes; spell the attributes as the left side does.

    Raises:
        MillpondError: CQL-202, a side lacks an attribute.
    """
    for attribute in node.args[BY_ATTRIBUTES]:
        for body, which in zip(sides, ("left", "right"), strict=True):
            names = [c for c in body.columns if c]
            found = next((c for c in names if c.lower() == attribute.name.lower()), None)
            if found is None:
                raise MillpondError(
                    "CQL-202",
                    f'no column "{attribute.name}" on the {which} side of EXCEPT ALL',
                    detail="BY names columns both sides have; "
                    f"the {which} has: {join_names(names)}.",
                    hint=did_you_mean(attribute.name, names),
                    text=text,
                    span=mark(attribute, text),
                )
            if which == "left":
                spell(attribute, found)


def prepare_negations(tree: exp.Expr, scopes: Sequence[SelectScope], text: str) -> None:
    """Add the timestamp column to the streams of every negation's left side.

    Raises:
        MillpondError: CQL-301, where the rows of the left side have no age.
    """
    by_select = {id(scope.select): scope for scope in scopes}
    for node in find_negations(tree):
        for part in find_aged_parts(node.left):
            if part.args.get(BY_ATTRIBUTES):
                continue  # a negation of its own
            scope = by_select.get(id(part))
            if scope is None or not _is_made_of_elements(scope):
                raise MillpondError(
                    "CQL-301",
                    "EXCEPT ALL … BY of such a query is not available yet",
                    detail="Its left side selects from streams and relations, row by row or with "
                    "GROUP BY, for a row is as old as the youngest element it is made of.",
                    hint="Write EXCEPT ALL without BY, which takes any query.",
                    text=text,
                    span=mark(node.left, text),
                )
            _add_stamps(scope)


def _is_made_of_elements(scope: SelectScope) -> bool:
    """Whether each row of a SELECT is made of elements of its FROM clause, or of groups of them."""
    distinct = scope.select.args.get("distinct")
    if not scope.sources or any(source.leaf is None for source in scope.sources):
        return False
    if distinct is not None and distinct.args.get("on"):
        return False
    return is_row_by_row(scope, distinct=True) or is_row_by_group(scope, distinct=True)


def _add_stamps(scope: SelectScope) -> None:
    """Add the timestamp column to the streams of a SELECT's FROM clause."""
    streams = [s.leaf for s in scope.sources if s.leaf is not None and s.leaf.is_stream]
    for stream in streams:
        stream.hidden = (timestamp_column(stream),)
    scope.select.meta[STAMPS] = [timestamp_column(f) for f in streams]
    hidden = scope.select.meta.setdefault(HIDDEN, {})
    for source in scope.sources:
        if source.leaf is not None and source.leaf.hidden:
            hidden[source.name.lower()] = source.leaf.hidden


def name_columns(tree: exp.Expr, columns: Callable[[exp.Expr], list[str]]) -> None:
    """Note the names of the left sides' columns, which only DuckDB knows for certain."""
    for node in find_negations(tree):
        node.meta[COLUMNS] = columns(node.left)


def spell_out_negations(tree: exp.Expr) -> exp.Expr:
    """Replace the negations in a tree over slices by ordinary SQL."""
    # From outside to inside: the negations on the left of a negation are replaced with it.
    while (node := next(find_negations(tree, outermost=True), None)) is not None:
        plain = write_negation(node)
        if node is tree:
            tree = plain
            continue
        node.replace(
            exp.Subquery(this=plain) if isinstance(node.parent, exp.SetOperation) else plain
        )
    return tree
