"""GROUP BY, aggregates and HAVING as nodes: a grouping, a group-by over it, a selection.

Keys and arguments of aggregates may be expressions. The grouping computes them itself, so that
queries over the same rows share it whatever they compute. The SELECT list and HAVING become
expressions over the group-by's row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millpond.operators.aggregation.aggregate import Aggregate
from millpond.operators.expire import announce_expirations
from millpond.operators.group_by import GroupBy, Grouping
from millpond.operators.windows.time_window import TimeWindow
from millpond.planner.dataflow.aggregate_calls import HUGEINT, CallReader
from millpond.planner.dataflow.column_types import type_names
from millpond.planner.dataflow.frame import Frame, Item, Unsupported, find_columns, select
from millpond.planner.dataflow.grouping_sets import expand_grouping_sets
from millpond.planner.resolve.placement import has_aggregate, is_aggregate
from millpond.planner.resolve.pushdown import split_conjuncts
from millpond.planner.resolve.row_order import leave_out_arrival

#: The name of the group-by's row, and the prefixes of its columns.
_ROW, _KEY, _VALUE = "__group", "k", "a"


@dataclass(frozen=True, eq=False)
class GroupedSelect:
    """A grouped SELECT over the row of its group-by, for one grouping set.

    Attributes:
        frame: The group-by's rows for which HAVING is true.
        items: The SELECT list over `frame`, each item with its name.
    """

    frame: Frame
    items: tuple[exp.Expr, ...]


def is_grouped(node: exp.Select) -> bool:
    """Whether a SELECT has a GROUP BY, or aggregates over all rows as one group.

    GROUP BY ALL over a SELECT list of constants counts as no clause, as in DuckDB.
    """
    clause = node.args.get("group")
    return bool(
        (clause is not None and (not clause.args.get("all") or _all(node)))
        or node.args.get("having")
        or any(has_aggregate(item) for item in node.expressions)
    )


def _all(node: exp.Select) -> list[exp.Expr]:
    """List the keys of GROUP BY ALL: items that read a column outside of aggregates."""
    items = [item.unalias() for item in node.expressions]
    return [item for item in items if item.find(exp.Column) and not has_aggregate(item)]


def plan_groups(node: exp.Select, frame: Frame) -> list[GroupedSelect]:
    """Plan the groups of a SELECT over the rows that its FROM and WHERE give.

    GROUPING SETS, ROLLUP and CUBE give several results: the SELECT is the union over all of them.

    Raises:
        Unsupported: an aggregate has no incremental form, or a key cannot be grouped by.
    """
    sets = expand_grouping_sets(node.args.get("group"))
    if sets is None:
        return [_Grouping(node, frame).plan()]
    every = list(dict.fromkeys(place for chosen in sets for place in chosen))
    return [_Grouping(node, frame, chosen, every).plan() for chosen in sets]


def read_whole_window(frame: Frame) -> Frame:
    """Have a frame of one window read all columns of it, under the names it has; else itself.

    So groupings of the same rows by the same keys are equal, whatever is aggregated. Columns that
    nobody reads cost nothing, because they are not filled.
    """
    window = frame.node
    if not isinstance(window, TimeWindow) or window.keep is None or len(frame.items) != 1:
        return frame
    if len(set(window.keep)) < len(window.keep):
        return frame
    (item,) = frame.items
    # No name in a query is that of a column that the query does not read.
    names = [f"\0{place}" for place in range(len(window.input.schema))]
    for name, place in zip(item.names, window.keep, strict=True):
        names[place] = name
    whole = replace(window, keep=None)
    return replace(frame, node=whole, items=(replace(item, names=tuple(names), hidden=0),))


def keys_and_having(node: exp.Select, frame: Frame) -> tuple[list[exp.Expr], exp.Expr | None]:
    """Return the keys of a plain GROUP BY, and HAVING, as expressions over the FROM clause's rows.

    Raises:
        Unsupported: a key is not an expression over rows.
    """
    if expand_grouping_sets(node.args.get("group")) is not None:
        raise Unsupported("grouping sets of such aggregates")
    grouping = _Grouping(node, frame)
    having = node.args.get("having")
    return grouping.keys, None if having is None else grouping.in_rows(having.this)


class _Grouping:
    """One grouping of a SELECT.

    `chosen` are the keys of one grouping set, None for a plain GROUP BY. `every` are the keys of
    all grouping sets: keys that are not in `chosen` are NULL.
    """

    def __init__(
        self,
        node: exp.Select,
        frame: Frame,
        chosen: Sequence[exp.Expr] | None = None,
        every: Sequence[exp.Expr] = (),
    ) -> None:
        self._node, self._frame = node, frame
        self._reader = CallReader(frame)
        self._aliases = {
            item.alias.lower(): item.unalias() for item in node.expressions if item.alias
        }
        self._keys = (
            self._read_keys()
            if chosen is None
            else self._check_and_dedupe([self._key(key) for key in chosen])
        )
        #: SQL of keys that only other grouping sets have -> their types; NULL in this set's rows.
        self._absent: dict[str, str] = {}
        here = {self._reader.sql(key) for key in self._keys}
        others = [
            k
            for k in self._check_and_dedupe([self._key(k) for k in every])
            if self._reader.sql(k) not in here
        ]
        types = self._reader.types_of([self._reader.column(key) for key in others])
        for key, name in zip(others, type_names(types), strict=True):
            self._absent[self._reader.sql(key)] = name
        #: SQL of each key -> its number; SQL of each aggregate -> its number.
        self._places = {self._reader.sql(key): place for place, key in enumerate(self._keys)}
        self._calls: dict[str, int] = {}
        self._aggregates: list[Aggregate] = []
        #: The aggregates as EXPLAIN shows them.
        self._shown: list[str] = []

    @property
    def keys(self) -> list[exp.Expr]:
        """Return the keys of the grouping."""
        return self._keys

    def in_rows(self, expression: exp.Expr) -> exp.Expr:
        """Replace names of the SELECT list by the expressions they name."""
        return self._with_aliases(expression)

    def plan(self) -> GroupedSelect:
        items = []
        for item in self._node.expressions:
            inner = item.unalias()
            if inner.is_star:
                raise Unsupported("* of groups")
            name = item.alias_or_name or inner.sql()
            items.append(exp.alias_(self._over_groups(inner), name, quoted=True))
        having = self._node.args.get("having")
        written = list(split_conjuncts(having.this if having is not None else None))
        conditions = [self._over_groups(self._with_aliases(c)) for c in written]
        key_types = self._reader.types_of([self._reader.column(key) for key in self._keys])
        by = tuple(self._reader.column(key) for key in self._keys)
        text = ", ".join(key.sql() for key in self._keys)
        grouping = Grouping(announce_expirations(self._frame.node), by, tuple(key_types), text)
        shown = ", ".join(self._shown)
        node = GroupBy(
            grouping, tuple(range(len(by))), tuple(self._aggregates), self._describe(text, shown)
        )
        names = [f"{_KEY}{i}" for i in range(len(by))]
        names += [f"{_VALUE}{i}" for i in range(len(self._aggregates))]
        frame = Frame(node, (Item(_ROW, tuple(names), 0),))
        chosen = select(node, [frame.sql(c) for c in conditions], written)
        return GroupedSelect(replace(frame, node=chosen), tuple(items))

    # -- keys --------------------------------------------------------------------------------------

    def _read_keys(self) -> list[exp.Expr]:
        clause = self._node.args.get("group")
        if clause is None:
            return []
        if clause.args.get("totals"):
            raise Unsupported("WITH TOTALS")
        if clause.args.get("all"):
            return self._check_and_dedupe(_all(self._node))
        return self._check_and_dedupe([self._key(e) for e in clause.expressions])

    def _key(self, key: exp.Expr) -> exp.Expr:
        while isinstance(key, exp.Paren):
            key = key.this
        if isinstance(key, exp.Tuple):
            raise Unsupported("GROUP BY a row of several values")
        if isinstance(key, exp.Literal) and key.is_int:
            place = int(key.this)
            if not 1 <= place <= len(self._node.expressions):
                raise Unsupported("GROUP BY a number that is no column's")
            return self._node.expressions[place - 1].unalias()
        return self._with_aliases(key)

    def _check_and_dedupe(self, keys: list[exp.Expr]) -> list[exp.Expr]:
        found: dict[str, exp.Expr] = {}
        for key in keys:
            if key.is_star or key.find(exp.Query) is not None or has_aggregate(key):
                raise Unsupported("GROUP BY something else than expressions of rows")
            found.setdefault(self._reader.sql(key), key)
        return list(found.values())

    def _with_aliases(self, expression: exp.Expr) -> exp.Expr:
        """Replace names of the SELECT list by the expressions they name.

        Raises:
            Unsupported: a name is also a column's, and the two differ.
        """
        holder = exp.Paren(this=expression.copy())
        for column in list(find_columns(holder)):
            named = None if column.table else self._aliases.get(column.name.lower())
            if named is None:
                continue
            if self._frame.find(column) is None:
                is_one = isinstance(named, exp.Column | exp.Func | exp.Filter | exp.WithinGroup)
                column.replace(named.copy() if is_one else exp.Paren(this=named.copy()))
            elif self._reader.sql(named) != self._reader.sql(column):
                raise Unsupported("a name of a column and of something in the SELECT list")
        return holder.this

    # -- expressions over groups -------------------------------------------------------------------

    def _over_groups(self, expression: exp.Expr) -> exp.Expr:
        """Rewrite an expression over keys and aggregates over the group-by's row."""
        holder = exp.Paren(this=expression.copy())
        self._replace(holder.this, is_whole=True)
        return holder.this

    def _replace(self, node: exp.Expr, is_whole: bool = False) -> None:
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Query | exp.Subquery):
            raise Unsupported("a subquery among aggregates")
        if isinstance(node, exp.Anonymous) and node.name.lower() in ("grouping", "grouping_id"):
            node.replace(exp.cast(exp.Literal.number(self._grouping_bits(node)), "BIGINT"))
            return
        if not has_aggregate(node):
            absent = self._absent.get(self._reader.sql(node)) if self._frame.covers(node) else None
            if absent is not None and not isinstance(node, exp.Literal):
                node.replace(exp.cast(exp.Null(), absent, dialect="duckdb"))
                return
            place = self._places.get(self._reader.sql(node)) if self._frame.covers(node) else None
            if place is not None and not isinstance(node, exp.Literal):
                node.replace(exp.column(f"{_KEY}{place}", table=_ROW))
                return
            if isinstance(node, exp.Column):
                raise Unsupported(f'"{node.name}", which is neither grouped by nor aggregated')
        elif _is_call(node):
            place = self._call(node)
            column: exp.Expr = exp.column(f"{_VALUE}{place}", table=_ROW)
            if not is_whole and self._aggregates[place].type == HUGEINT:
                column = exp.cast(column, "INT128")
            node.replace(column)
            return
        for child in list(node.iter_expressions()):
            self._replace(child)

    def _grouping_bits(self, node: exp.Anonymous) -> int:
        """Compute GROUPING: a bit for each argument, set if it is no key of this grouping set."""
        bits = 0
        for argument in node.expressions:
            sql = self._reader.sql(self._with_aliases(argument))
            if sql not in self._places and sql not in self._absent:
                raise Unsupported("GROUPING of what is not grouped by")
            bits = 2 * bits + (sql in self._absent)
        return bits

    def _call(self, node: exp.Expr) -> int:
        """Return the number of an aggregate in the group-by; equal aggregates have one number."""
        sql = self._reader.sql(node)
        place = self._calls.get(sql)
        if place is None:
            place = self._calls[sql] = len(self._aggregates)
            self._aggregates.append(self._reader.recognize(node, sql))
            self._shown.append(self._reader.sql(leave_out_arrival(node)))
        return place

    @staticmethod
    def _describe(keys: str, calls: str) -> str:
        return f"{keys or 'nothing'}{': ' + calls if calls else ''}"


def _is_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Filter | exp.WithinGroup) or is_aggregate(node)
