"""Window functions that order rows by the time at which they come, over rows that never leave.

Of such a SELECT nothing is ever answered anew (`operators/running_frames.py`). It has to be so of
all its window functions: their partitions are ordered by the column that holds the timestamps of
the stream's elements, or not at all where only places in the order of arrival count, and no frame
reaches behind the current row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.cql.tree.function_calls import name_call
from millpond.model.durations import parse_duration
from millpond.operators.aggregation.frames import RowFrame
from millpond.operators.running_frames import (
    By,
    EarlierValue,
    FramedAggregate,
    RowNumber,
    RunningFrames,
    WindowCall,
)
from millpond.planner.dataflow.aggregate_calls import HUGEINT, CallReader
from millpond.planner.dataflow.column_types import type_names
from millpond.planner.dataflow.frame import Frame, Item, NamedNode, Unsupported, project, select
from millpond.planner.dataflow.recompute_groups import ListedItem

#: The qualifier of the values' columns while the SELECT list is planned, and their names' prefix.
_VALUES, _VALUE = "__over", "w"
#: Frames that begin so far before a row, or further, are left to re-evaluation.
_MOST = 1 << 60


def run_frames(frame: Frame, items: Sequence[ListedItem], qualify: exp.Expr | None) -> NamedNode:
    """Plan a SELECT with window functions over the rows that its FROM and WHERE give.

    Args:
        frame: The rows.
        items: The SELECT's columns: names, and expressions over the frame.
        qualify: The condition of QUALIFY, over the frame.

    Raises:
        Unsupported: rows may leave, or a window function needs rows that come later.
    """
    times = frame.node.find_times()
    if times is None:
        raise Unsupported("window functions over rows that leave")
    calls = _Calls(frame, times)
    listed = [(name, calls.over_values(item)) for name, item in items]
    condition = None if qualify is None else calls.over_values(qualify)
    over = calls.plan()
    if condition is not None:
        assert isinstance(condition, exp.Expr)
        over = replace(over, node=select(over.node, [over.sql(condition)], [condition]))
    reader = CallReader(over)
    columns = [item if isinstance(item, int) else reader.column(item) for _, item in listed]
    return NamedNode(project(over.node, columns), tuple(name for name, _ in items))


class _Calls:
    """The window functions of one SELECT."""

    def __init__(self, frame: Frame, times: frozenset[int]) -> None:
        self._frame, self._times = frame, times
        self._reader = CallReader(frame)
        self._width = len(frame.node.schema)
        #: SQL of the columns that are computed for the functions, behind those of the frame.
        self._computed: list[str] = []
        #: The functions, by their SQL over the frame.
        self._calls: dict[str, WindowCall] = {}
        self._texts: list[str] = []

    def over_values(self, item: exp.Expr | int) -> exp.Expr | int:
        """Rewrite an expression over the frame's columns and the values of window functions."""
        if isinstance(item, int):
            return item
        if item.find(exp.Query) is not None:
            raise Unsupported("a subquery among window functions or aggregates")
        holder = exp.Paren(this=item.copy())
        for window in list(holder.find_all(exp.Window)):
            call = self._call(window)
            column: exp.Expr = exp.column(f"{_VALUE}{call}", table=_VALUES)
            whole = window.parent is holder
            if not whole and list(self._calls.values())[call].type == HUGEINT:
                column = exp.cast(column, "INT128")
            window.replace(column)
        return holder.this

    def plan(self) -> Frame:
        """Plan the frame's rows with the values of all functions that were read."""
        below = project(self._frame.node, [*range(self._width), *self._computed])
        calls = tuple(self._calls.values())
        node = RunningFrames(below, self._width, calls, ", ".join(self._texts))
        names = tuple(f"{_VALUE}{number}" for number in range(len(calls)))
        return replace(
            self._frame,
            node=node,
            items=(*self._frame.items, Item(_VALUES, names, self._width, hidden=len(names))),
        )

    def _call(self, window: exp.Window) -> int:
        """Return the number of a window function; equal functions have one number."""
        sql = self._frame.sql(window)
        if sql not in self._calls:
            self._calls[sql] = self._read(window, sql)
            self._texts.append(self._write(window))
        return list(self._calls).index(sql)

    def _read(self, window: exp.Window, sql: str) -> WindowCall:
        if window.args.get("alias") or window.args.get("window"):
            raise Unsupported("window functions")
        by: By = tuple(self._place(e) for e in window.args.get("partition_by") or [])
        spec = window.args.get("spec")
        is_ordered, equal_too = self._read_order(window)
        frame = _read_frame(spec, is_ordered=is_ordered)
        inner = window.this
        name = name_call(inner)
        arguments = list(inner.expressions)
        if name in ("rank", "dense_rank") and is_ordered and not arguments:
            return RowNumber(by, pa.int64(), name)
        if not equal_too and (frame is None or not frame.of_time):
            raise Unsupported("window functions over equal rows in no order")
        if name == "row_number" and not arguments:
            return RowNumber(by, pa.int64(), name)
        if name == "lag":
            return self._lag(by, arguments)
        if frame is None:
            raise Unsupported("window functions with rows that come later")
        if name in ("first_value", "first"):
            if len(arguments) != 1 or frame.start is not None or frame.end or not equal_too:
                raise Unsupported("window functions")
            column, type_ = self._value(arguments[0])
            return EarlierValue(by, type_, column, None)
        aggregate = self._reader.recognize(inner, self._frame.sql(inner))
        argument = aggregate.argument
        if argument.chosen is not None and isinstance(argument.column, str):
            # DuckDB computes the argument of a window function where FILTER is false, too.
            raise Unsupported("FILTER of what is computed")
        placed = replace(
            argument,
            column=self._to_place(argument.column),
            chosen=self._to_place(argument.chosen),
        )
        return FramedAggregate(by, aggregate.type, frame, replace(aggregate, argument=placed))

    def _write(self, window: exp.Window) -> str:
        """Write a window function as the query has it."""
        shown = window.copy()
        if order := shown.args.get("order"):
            written = [term for term in order.expressions if not self._is_hidden(term)]
            shown.set("order", exp.Order(expressions=written) if written else None)
        return to_duckdb(shown)

    def _lag(self, by: By, arguments: list[exp.Expr]) -> WindowCall:
        """Read `lag(value [, rows [, otherwise]])`."""
        if not 1 <= len(arguments) <= 3:
            raise Unsupported("lag")
        column, type_ = self._value(arguments[0])
        rows = _read_count(arguments[1]) if len(arguments) > 1 else 1
        if not 1 <= rows < _MOST:
            raise Unsupported("lag")
        otherwise = None
        if len(arguments) > 2:
            (name,) = type_names([type_])
            given = self._reader.sql(arguments[2])
            otherwise = self._to_place(f"CAST({given} AS {name})")
        return EarlierValue(by, type_, column, rows, otherwise)

    def _value(self, expression: exp.Expr) -> tuple[int, pa.DataType]:
        """Find the place and the type of an argument."""
        column = self._reader.column(self._check(expression))
        (type_,) = self._reader.types_of([column])
        if type_ == HUGEINT and isinstance(column, str):
            raise Unsupported("window functions")
        place = self._to_place(column)
        assert place is not None
        return place, type_

    def _place(self, expression: exp.Expr) -> int:
        place = self._to_place(self._reader.column(self._check(expression)))
        assert place is not None
        return place

    def _to_place(self, column: int | str | None) -> int | None:
        """Find the place of a column; what has to be computed becomes a column."""
        if not isinstance(column, str):
            return column
        if column not in self._computed:
            self._computed.append(column)
        return self._width + self._computed.index(column)

    def _read_order(self, window: exp.Window) -> tuple[bool, bool]:
        """Read whether a window function has an ORDER BY; and whether equal rows have an order.

        Raises:
            Unsupported: it orders rows by something else than their time.
        """
        order = window.args.get("order")
        terms = [] if order is None else list(order.expressions)
        written = [term for term in terms if not self._is_hidden(term)]
        if not written:
            return False, bool(terms)
        if len(written) == 1:
            (term,) = written
            value = term.this if isinstance(term, exp.Ordered) else term
            ascending = not (isinstance(term, exp.Ordered) and term.args.get("desc"))
            if ascending and self._reader.column(self._check(value)) in self._times:
                return True, len(terms) > 1
        raise Unsupported("window functions in another order than that of time")

    def _is_hidden(self, term: exp.Expr) -> bool:
        """Whether a term of ORDER BY is one that `order_equal_rows` added."""
        hidden = (name for i in self._frame.items for name in i.names[len(i.shown) :])
        return isinstance(term.this, exp.Column) and term.this.name in hidden

    @staticmethod
    def _check(expression: exp.Expr) -> exp.Expr:
        if isinstance(expression, exp.IgnoreNulls | exp.RespectNulls | exp.Order | exp.Distinct):
            raise Unsupported("window functions")
        return expression


@dataclass(frozen=True)
class _Bound:
    """An end of a frame: so many rows, or microseconds, before the row; None: unbounded."""

    before: int | None


def _read_frame(spec: exp.WindowSpec | None, *, is_ordered: bool) -> RowFrame | None:
    """Read the frame of a window function; None if rows that come later may be in it.

    Raises:
        Unsupported: the frame is of another kind.
    """
    if spec is None:
        return RowFrame(None, of_time=True) if is_ordered else None
    if spec.args.get("exclude"):
        raise Unsupported("EXCLUDE")
    kind = spec.text("kind").upper()
    if kind not in ("ROWS", "RANGE") or (kind == "RANGE" and not is_ordered):
        raise Unsupported("frames")
    start = _read_bound(spec.args.get("start"), spec.text("start_side"), kind)
    end = _read_bound(spec.args.get("end") or "CURRENT ROW", spec.text("end_side"), kind)
    if start is None or end is None or end.before is None:
        return None
    if kind == "RANGE":
        return RowFrame(start.before, of_time=True) if end.before == 0 else None
    if start.before is not None and start.before < end.before:
        return None
    return RowFrame(start.before, end.before)


def _read_bound(bound: exp.Expr | str | None, side: str, kind: str) -> _Bound | None:
    """Read an end of a frame; None if it is none before the row."""
    if bound == "CURRENT ROW":
        return _Bound(0)
    if side.upper() != "PRECEDING" or bound is None:
        return None
    if bound == "UNBOUNDED":
        return _Bound(None)
    if not isinstance(bound, exp.Expr):
        return None
    before = _read_count(bound) if kind == "ROWS" else _read_length(bound)
    return _Bound(before) if 0 <= before < _MOST else None


def _read_count(expression: exp.Expr) -> int:
    """Return a constant number of rows; -1 for anything else."""
    if isinstance(expression, exp.Literal) and expression.is_int:
        return int(expression.this)
    return -1


def _read_length(expression: exp.Expr) -> int:
    """Return a constant length of time, in microseconds; -1 for anything else."""
    if not isinstance(expression, exp.Interval) or not isinstance(expression.this, exp.Literal):
        return -1
    unit = expression.args.get("unit")
    try:
        return parse_duration(f"{expression.this.name} {unit.name if unit is not None else ''}")
    except ValueError:
        return -1
