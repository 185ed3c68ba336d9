"""Conditions on subqueries: EXISTS, IN, ANY and ALL as semijoins and antijoins.

    WHERE EXISTS (…)       rows that have a partner             L SEMI R
    WHERE x NOT IN (…)     rows for which x IN (…) is false     (L ANTI equal) ANTI unknown
    WHERE x > ALL (…)      rows for which every x > v is true   L ANTI (x > v IS NOT TRUE)

Outside of WHERE's conjuncts such a predicate becomes a mark (`mark_join`). Any other subquery is a
scalar subquery (`scalar_subqueries`). A subquery may read columns of the query around it only in
conjuncts of its own WHERE.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millpond.planner.approximate.filters import FILTERED
from millpond.planner.dataflow.frame import (
    Frame,
    Item,
    Unsupported,
    expand_star,
    find_columns,
    frame_of,
    project,
    select,
)
from millpond.planner.dataflow.from_clause import apply_ready
from millpond.planner.dataflow.from_items import Items
from millpond.planner.dataflow.join_items import join_items
from millpond.planner.dataflow.joins import Condition, antijoin, semijoin, split_condition
from millpond.planner.dataflow.mark_join import Case, Cases, add_marks
from millpond.planner.dataflow.nrr_join import refuse_attached
from millpond.planner.dataflow.scalar_subqueries import replace_scalars
from millpond.planner.resolve.placement import has_aggregate
from millpond.planner.resolve.pushdown import split_where

#: The name of the one item of a frame that has a subquery's answer, and not its FROM clause's rows.
_ANSWER = "__answer"


class Subqueries:
    """Replaces the subqueries in one query's conditions and expressions by operators."""

    def __init__(self, items: Items) -> None:
        self._items = items

    def apply_condition(self, conjunct: exp.Expr, frame: Frame) -> Frame:
        """Select the rows for which a conjunct that contains subqueries is true.

        Raises:
            Unsupported: a subquery reads the query around it in a way that no join can replace.
        """
        negated, inside = False, conjunct
        while isinstance(inside, exp.Not | exp.Paren):
            negated ^= isinstance(inside, exp.Not)
            inside = inside.this
        if isinstance(inside.args.get("expression"), exp.Any | exp.All):
            return self._apply_quantified(inside, negated, frame)
        if not isinstance(inside, exp.Exists) and inside.args.get("query") is None:
            plain, frame = self.replace_subqueries(conjunct, frame)
            return replace(frame, node=select(frame.node, [frame.sql(plain)], [conjunct]))
        (found, *others), _ = self._cases(inside, frame)
        filtered = inside.meta.get(FILTERED)
        if not negated:
            return replace(frame, node=semijoin(found.on(frame), filtered))
        if filtered is not None and not others:
            return replace(frame, node=antijoin(found.on(frame), filtered))
        # The rows for which it is false are those left: it is neither true nor unknown for them.
        for case in (found, *others):
            frame = replace(frame, node=antijoin(case.on(frame)))
        return frame

    def replace_subqueries(self, expression: exp.Expr, frame: Frame) -> tuple[exp.Expr, Frame]:
        """Replace an expression's subqueries by columns; return it and a frame with the columns.

        Raises:
            Unsupported: as `apply_condition`.
        """
        plain, frame = add_marks(expression, frame, self._cases)
        return replace_scalars(plain, frame, self._items.plan, self._knows)

    def _cases(self, node: exp.Expr, frame: Frame) -> Cases:
        """List the cases of EXISTS, IN or a quantified comparison over a frame's rows."""
        if isinstance(node, exp.Exists):
            right, outside = self._plan_inside(node.this, frame)
            return (Case(True, lambda f: split_condition(f, right, outside)),), False
        if node.this.find(exp.Query) is not None:
            raise Unsupported("a subquery in a condition")
        if isinstance(word := node.args.get("expression"), exp.Any | exp.All):
            return self._quantified_cases(node, word, frame)
        if isinstance(node.this, exp.Tuple):
            raise Unsupported("IN of several columns")
        return self._member_cases(node, frame), False

    def _member_cases(self, node: exp.Expr, frame: Frame) -> tuple[Case, ...]:
        """List the cases of IN: NULL if no value is equal, but the value or a member is NULL."""
        right, outside = self._plan_inside(node.args["query"], frame)
        members = _with_member(right, _value(node.args["query"], right))
        nulls = members.select([exp.Is(this=_member(), expression=exp.Null())])
        every = _with_member(right, "true")

        def equal(f: Frame) -> Condition:
            wanted, known_as = _rename_columns(node.this, f)
            same = exp.EQ(this=wanted, expression=_member())
            return split_condition(known_as, members, [*outside, same])

        def missing(f: Frame) -> Condition:
            wanted, known_as = _rename_columns(
                exp.Is(this=node.this.copy(), expression=exp.Null()), f
            )
            always = exp.EQ(this=exp.Paren(this=wanted), expression=_member())
            return split_condition(known_as, every, [*outside, always])

        return (
            Case(True, equal),
            Case(None, lambda f: split_condition(f, nulls, outside)),
            Case(None, missing),
        )

    def _quantified_cases(self, node: exp.Expr, word: exp.Any | exp.All, frame: Frame) -> Cases:
        """List the cases of ANY or ALL: a value decides it, a value makes it NULL, or neither."""
        members, outside = self._members(word.this, frame)
        decides = isinstance(word, exp.Any)

        def compare(f: Frame, truth: exp.Expr) -> Condition:
            wanted, known_as = _rename_columns(node.this, f)
            comparison = exp.Paren(this=type(node)(this=wanted, expression=_member()))
            return split_condition(
                known_as, members, [*outside, exp.Is(this=comparison, expression=truth)]
            )

        return (
            Case(decides, lambda f: compare(f, exp.Boolean(this=decides))),
            Case(None, lambda f: compare(f, exp.Null())),
        ), not decides

    def _apply_quantified(self, node: exp.Expr, negated: bool, frame: Frame) -> Frame:
        """Select the rows for which `x op ANY (…)` or `x op ALL (…)` is true.

        With NOT (`negated`), the rows for which it is false: ALL where some value makes the
        comparison false, ANY where every value does.
        """
        word = node.args["expression"]
        if node.this.find(exp.Query) is not None:
            raise Unsupported("a subquery in a condition")
        given, outside = self._members(word.this, frame)
        wanted, known_as = _rename_columns(node.this, frame)
        compared: exp.Expr = type(node)(this=wanted, expression=_member())
        exists = isinstance(word, exp.Any) != negated
        if negated or not exists:
            # NULL is neither true nor false. ALL needs that no value makes the comparison "not
            # true", NOT ANY that none makes it "not false", NOT ALL that some value makes it false.
            least = exp.Boolean(this=not negated)
            compare = exp.NullSafeEQ if exists else exp.NullSafeNEQ
            compared = compare(this=exp.Paren(this=compared), expression=least)
        matched = split_condition(known_as, given, [*outside, compared])
        return replace(frame, node=(semijoin if exists else antijoin)(matched))

    def _knows(self, select: exp.Select, expression: exp.Expr) -> bool:
        """Whether a SELECT's own FROM clause has all columns of an expression."""
        return self._from(select).covers(expression)

    def _members(self, query: exp.Expr, around: Frame) -> tuple[Frame, list[exp.Expr]]:
        """Do as `_plan_inside`; the rows have the subquery's value as the column `_member`."""
        rows, outside = self._plan_inside(query, around)
        return _with_member(rows, _value(query, rows)), outside

    def _plan_inside(self, query: exp.Expr, around: Frame) -> tuple[Frame, list[exp.Expr]]:
        """Plan a subquery's FROM and WHERE; return its rows and the conjuncts that read outside.

        Where the rows are not made row by row, plan its whole answer, as the item `_ANSWER`.
        """
        node = query
        while isinstance(node, exp.Subquery) and not node.args.get("limit"):
            node = node.this
        is_simple = isinstance(node, exp.Select) and not any(
            node.args.get(k) for k in ("group", "having", "qualify", "limit", "offset", "with_")
        )
        if not is_simple or any(
            has_aggregate(i) or i.find(exp.Window) is not None for i in node.expressions
        ):
            return frame_of(self._items.plan(query), _ANSWER), []
        assert isinstance(node, exp.Select)
        outside: list[exp.Expr] = []
        frame = self._from(node)
        for conjunct in split_where(node):
            if conjunct.find(exp.Query) is not None:
                frame = self.apply_condition(conjunct, frame)
            elif frame.covers(conjunct):
                frame = apply_ready(frame, [conjunct])
            elif any(
                frame.find(c) is None and around.find(c) is None for c in find_columns(conjunct)
            ):
                raise Unsupported("a condition that reads a query further out")
            else:
                outside.append(conjunct)
        return frame, outside

    def _from(self, select: exp.Select) -> Frame:
        """Join the items of a SELECT's FROM clause, without its WHERE."""
        refuse_attached(select)
        return join_items(select, self._items, [])


def _value(query: exp.Expr, frame: Frame) -> str | int:
    """Return a subquery's one column: SQL over a frame of `_plan_inside`, or a place in it."""
    node = query
    while isinstance(node, exp.Subquery):
        node = node.this
    is_answer = [item.name for item in frame.items] == [_ANSWER]
    if isinstance(node, exp.Select) and not is_answer:
        (item,) = node.expressions
        value = item.unalias()
        if value.is_star:
            ((_, place),) = expand_star(value, frame)
            return place
        if value.find(exp.Query) is not None:
            raise Unsupported("a subquery in the SELECT list")
        return frame.sql(value)
    return 0


def _member() -> exp.Column:
    """Return the column that holds a subquery's value beside its FROM clause's columns."""
    return exp.column("__value", table="__member")


def _with_member(rows: Frame, value: str | int) -> Frame:
    """Add a value, given by place or as SQL, to the rows as the column `_member`."""
    places = range(len(rows.node.schema))
    given = Frame(project(rows.node, [*places, value]), rows.items)
    return replace(given, items=(*given.items, Item("__member", ("__value",), len(places))))


def _rename_columns(expression: exp.Expr, frame: Frame) -> tuple[exp.Expr, Frame]:
    """Give a frame's columns names that are unique; return the expression and frame with them."""
    holder = exp.Paren(this=expression.copy())
    for column in list(find_columns(holder)):
        place = frame.find(column)
        if place is None:
            raise Unsupported("a value that reads a query further out")
        column.replace(exp.column(f"__{place}", table="__around"))
    names = tuple(f"__{place}" for place in range(len(frame.node.schema)))
    return holder.this, replace(frame, items=(*frame.items, Item("__around", names, 0)))
