"""Aggregates that queries call, as the aggregates that operators follow.

A call of an aggregate is read the same way whether it is of a group or of a window function's
frame.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module

import duckdb
import pyarrow as pa
from sqlglot import exp

from millpond.operators.aggregation import aggregates as catalogue
from millpond.operators.aggregation.aggregate import Aggregate, AggregateCall
from millpond.operators.aggregation.measures import Argument
from millpond.planner.dataflow.column_types import find_expression_types
from millpond.planner.dataflow.frame import Frame, Unsupported
from millpond.planner.resolve.placement import find_aggregate
from millpond.planner.resolve.row_order import split_order
from millpond.synopses.order_keys import can_be_ordered
from millpond.synopses.valued_orders import OrderTerm

#: The Arrow type of DuckDB's HUGEINT, which DuckDB would read back as a DECIMAL.
HUGEINT = pa.decimal128(38, 0)


class CallReader:
    """Reads expressions over the rows of a frame, and aggregates of them."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def recognize(self, node: exp.Expr, sql: str) -> Aggregate:
        """Make the aggregate of a call; `sql` is the call as SQL over the rows.

        Raises:
            Unsupported: it has no incremental form.
        """
        shown = node.sql()
        chosen: exp.Expr | None = None
        if isinstance(node, exp.Filter):
            chosen, node = node.expression.this, node.this
        descending, ordered = False, None
        if isinstance(node, exp.WithinGroup):
            (ordered,) = node.expression.expressions
            descending, node = bool(ordered.args.get("desc")), node.this
        function = find_aggregate(node)
        if function is None:
            raise Unsupported(shown)
        name = function.synonym_of or function.name
        arguments = [
            a for a in (node.args.get("this"), *node.expressions) if isinstance(a, exp.Expr)
        ]
        if ordered is not None:
            arguments = [ordered.this, *arguments]
        once = bool(arguments) and isinstance(arguments[0], exp.Distinct)
        if once:
            (*arguments,) = arguments[0].expressions
        if name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            arguments = []
        share: float | None = None
        if len(arguments) == 2 and not once and name.startswith("quantile"):
            share = _number(arguments.pop())
        stamps: tuple[int, ...] = ()
        order: list[exp.Expr] = []
        if arguments and isinstance(arguments[-1], exp.Order):
            parts = split_order(arguments[-1])
            columns = None if parts is None or ordered else self._find_stamps(parts[1])
            if parts is None or columns is None:
                raise Unsupported(shown)
            order, stamps = parts[0], columns
            arguments[-1] = arguments[-1].this
        second = arguments.pop() if len(arguments) == 2 and stamps else None
        if len(arguments) > 1 or any(
            isinstance(a, exp.Order | exp.Distinct | exp.Star) or a.find(exp.Query)
            for a in (*arguments, *filter(None, [second]), *(term.this for term in order))
        ):
            raise Unsupported(shown)
        if chosen is not None and chosen.find(exp.Query) is not None:
            raise Unsupported(shown)
        argument, of = self._argument(arguments, chosen, once)
        if once and (of is None or not can_be_ordered(of)):
            raise Unsupported(shown)
        by = None if second is None else self._argument([second], chosen, False)[0]
        (gives,) = self.types_of([sql])
        text = second.this if isinstance(second, exp.Literal) and second.is_string else None
        terms = self._read_terms(order, chosen)
        call = AggregateCall(name, argument, of, gives, share, descending, by, text, terms, stamps)
        recognize = find_recognizers().get(name)
        found = None if recognize is None else recognize(call)
        if found is None:
            raise Unsupported(shown)
        return found

    def _find_stamps(self, terms: list[exp.Expr]) -> tuple[int, ...] | None:
        """Find the columns of timestamp and arrival."""
        places = [self._frame.find(term.this) for term in terms]
        found = tuple(place for place in places if place is not None)
        return found if len(found) == len(places) else None

    def _read_terms(
        self, order: list[exp.Expr], chosen: exp.Expr | None
    ) -> tuple[tuple[int | str, OrderTerm], ...]:
        """Read the terms of a call's own ORDER BY.

        Raises:
            Unsupported: the values of a term have no order here.
        """
        found = []
        for term in order:
            argument, of = self._argument([term.this], chosen, False)
            if of is None or not can_be_ordered(of):
                raise Unsupported(term.sql())
            assert argument.column is not None
            nulls_first = bool(term.args.get("nulls_first"))
            found.append((argument.column, OrderTerm(of, bool(term.args.get("desc")), nulls_first)))
        return tuple(found)

    def _argument(
        self, arguments: list[exp.Expr], chosen: exp.Expr | None, once: bool
    ) -> tuple[Argument, pa.DataType | None]:
        column: int | str | None = None
        filtered = self._filter(chosen)
        if arguments:
            column = self.column(arguments[0])
            if isinstance(column, str) and filtered is not None:
                # The argument is not computed for rows that FILTER removes: it may fail on them.
                column = f"CASE WHEN {_as_sql(filtered)} THEN ({column}) END"
        of = None if column is None else self.types_of([column])[0]
        return Argument(column, of, filtered, once), of

    def _filter(self, chosen: exp.Expr | None) -> int | str | None:
        if chosen is None:
            return None
        column = self.column(chosen)
        if isinstance(column, int) and pa.types.is_boolean(self.types_of([column])[0]):
            return column
        return f"CAST(({_as_sql(column)}) AS BOOLEAN)"

    def column(self, expression: exp.Expr) -> int | str:
        """Find the place of the column that an expression is, or write it as SQL over the rows."""
        while isinstance(expression, exp.Paren):
            expression = expression.this
        if isinstance(expression, exp.Column):
            place = self._frame.find(expression)
            if place is not None:
                return place
        return self.sql(expression)

    def sql(self, expression: exp.Expr) -> str:
        """Write an expression as SQL over the rows."""
        while isinstance(expression, exp.Paren):
            expression = expression.this
        return self._frame.sql(expression)

    def types_of(self, columns: Sequence[int | str]) -> list[pa.DataType]:
        """Find the types of columns, given by place or as SQL."""
        schema = self._frame.node.schema
        try:
            computed = iter(
                find_expression_types([c for c in columns if isinstance(c, str)], schema)
            )
        except duckdb.Error as error:
            raise Unsupported("an aggregate") from error
        return [schema.field(c).type if isinstance(c, int) else next(computed) for c in columns]


@cache
def find_recognizers() -> dict[str, Callable[[AggregateCall], Aggregate | None]]:
    """Find, by function name, the recognizers that turn a call into an aggregate.

    The recognizer is `recognize` in the file of `operators.aggregation.aggregates` of that name.
    """
    found = {}
    for module in pkgutil.iter_modules(catalogue.__path__):
        aggregates = import_module(f"{catalogue.__name__}.{module.name}")
        found.update(dict.fromkeys(aggregates.NAMES, aggregates.recognize))
    return found


def _number(expression: exp.Expr) -> float | None:
    """Return the value of a constant number; None for any other expression."""
    while isinstance(expression, exp.Paren | exp.Cast):
        expression = expression.this
    if isinstance(expression, exp.Literal) and not expression.is_string:
        return float(expression.this)
    return None


def _as_sql(column: int | str) -> str:
    return f"c{column}" if isinstance(column, int) else f"({column})"
