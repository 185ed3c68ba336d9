"""The rows of a FROM clause while a dataflow is planned: a node, and its columns' names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import duckdb
import pyarrow as pa
from sqlglot import exp

from millpond.cql.print.dialect import to_duckdb
from millpond.operators.project import Project, Unnest
from millpond.operators.protocol.node import Node
from millpond.operators.select import Select
from millpond.planner.dataflow.column_types import find_expression_types


class Unsupported(Exception):
    """There is no incremental operator for a part of a query; the message says which."""


@dataclass(frozen=True, eq=False)
class NamedNode:
    """A node and the names of its columns."""

    node: Node
    names: tuple[str, ...]


#: Plans a query that reads nothing around it.
Plans = Callable[[exp.Expr], NamedNode]


@dataclass(frozen=True, eq=False)
class Item:
    """One item of a FROM clause: its columns' qualifier, their names, the first one's place.

    `known` are predicates that all its rows satisfy, as SQL over bare columns. `*` leaves out the
    last `hidden` columns.
    """

    name: str
    names: tuple[str, ...]
    start: int
    known: frozenset[str] = frozenset()
    hidden: int = 0

    @property
    def shown(self) -> tuple[str, ...]:
        """List the names of the columns `*` stands for."""
        return self.names[: len(self.names) - self.hidden]

    def place(self, column: str) -> int | None:
        lower = column.lower()
        for number, name in enumerate(self.names):
            if name.lower() == lower:
                return self.start + number
        return None


@dataclass(frozen=True, eq=False)
class Frame:
    """The joined items of a FROM clause.

    Attributes:
        node: The joined rows: the items' columns one after the other.
        items: The items.
        merged: Lower-case names of columns joined by USING; each means the first item's column.
    """

    node: Node
    items: tuple[Item, ...] = ()
    merged: frozenset[str] = field(default_factory=frozenset)

    def find(self, column: exp.Column) -> int | None:
        """Find the place of the column that a reference means; None if the frame lacks it."""
        if len(column.parts) > 2:
            raise Unsupported("a field of a struct")
        if qualifier := column.table.lower():
            for item in self.items:
                if item.name.lower() == qualifier:
                    return item.place(column.name)
            return None
        found = [p for item in self.items if (p := item.place(column.name)) is not None]
        if len(found) > 1 and column.name.lower() not in self.merged:
            raise Unsupported("a name of two columns")
        return found[0] if found else None

    def covers(self, expression: exp.Expr) -> bool:
        """Whether the frame has every column of an expression."""
        return all(self.find(c) is not None for c in find_columns(expression))

    def sql(self, expression: exp.Expr) -> str:
        """Write an expression over the frame's columns as SQL over `c0`, `c1`, …."""
        holder = exp.Paren(this=expression.copy())
        for column in list(find_columns(holder)):
            place = self.find(column)
            if place is None:
                raise Unsupported(f'"{column.name}", which is no column of the FROM clause')
            column.replace(exp.Column(this=exp.Identifier(this=f"c{place}", quoted=False)))
        return to_duckdb(holder.this)

    def output(self) -> Iterator[tuple[str, int]]:
        """List the columns `*` stands for: names and places; columns joined by USING once."""
        seen: set[str] = set()
        for item in self.items:
            for number, name in enumerate(item.shown):
                if name.lower() in self.merged and name.lower() in seen:
                    continue
                seen.add(name.lower())
                yield name, item.start + number

    def select(self, predicates: Iterable[exp.Expr]) -> Frame:
        """Select the rows for which all predicates are true."""
        some = list(predicates)
        return replace(self, node=select(self.node, [self.sql(p) for p in some], some))


def frame_of(
    relation: NamedNode, name: str, known: frozenset[str] = frozenset(), hidden: int = 0
) -> Frame:
    """Make a frame of one item."""
    return Frame(relation.node, (Item(name, relation.names, 0, known, hidden),))


def expand_star(item: exp.Expr, frame: Frame) -> list[tuple[str, int]]:
    """List the columns `*` or `t.*` stands for: names and places."""
    if any(item.args.get(k) for k in ("except_", "replace", "rename", "except")):
        raise Unsupported("* with exceptions")
    if isinstance(item, exp.Star):
        return list(frame.output())
    wanted = item.args["table"].name.lower()
    for i in frame.items:
        if i.name.lower() == wanted:
            return [(name, i.start + n) for n, name in enumerate(i.shown)]
    raise Unsupported("* of a query further out")


def find_columns(expression: exp.Expr) -> Iterator[exp.Column]:
    """Find the columns an expression reads, without the columns of `*`."""
    for column in expression.find_all(exp.Column):
        if isinstance(column.this, exp.Star):
            raise Unsupported("* in an expression")
        yield column


def reads_columns(expression: exp.Expr) -> bool:
    """Whether an expression reads any column."""
    return any(True for _ in find_columns(expression))


def select(node: Node, sqls: list[str], shown: Iterable[exp.Expr] = ()) -> Node:
    """Select the rows of a node for which every predicate is true."""
    if not sqls:
        return node
    text = " AND ".join(e.sql() for e in shown)
    return Select(node, tuple(dict.fromkeys(sqls)), text)


def project(node: Node, expressions: list[str | int], text: str = "") -> Node:
    """Project a node to columns, given by place or as SQL to compute."""
    if expressions == list(range(len(node.schema))):
        return node
    places = [e for e in expressions if isinstance(e, int)]
    if (
        len(places) == len(expressions)
        and (narrower := node.choose_columns(tuple(places))) is not None
    ):
        return narrower
    types = iter(find_expression_types([e for e in expressions if isinstance(e, str)], node.schema))
    return Project(
        node,
        tuple(expressions),
        tuple(
            node.schema.field(e).type if isinstance(e, int) else next(types) for e in expressions
        ),
        text,
    )


def unnest(node: Node, expressions: list[str | int], text: str = "") -> Node:
    """Make of each row of a node the rows that a SELECT list with set-returning calls gives."""
    sqls = tuple(f"c{e}" if isinstance(e, int) else e for e in expressions)
    try:
        types = find_expression_types(sqls, node.schema)
    except duckdb.Error as error:
        raise Unsupported("unnest of what DuckDB expands alone") from error
    if len(types) != len(sqls):  # the fields of a struct
        raise Unsupported("unnest that gives several columns")
    return Unnest(node, sqls, types, text)


def as_types(node: Node, types: list[pa.DataType], names: list[str]) -> Node:
    """Cast a node's columns to types; `names` are the types' names in DuckDB."""
    casts: list[str | int] = [
        place if node.schema.field(place).type == type_ else f"CAST(c{place} AS {name})"
        for place, (type_, name) in enumerate(zip(types, names, strict=True))
    ]
    return project(node, casts)
