"""Plans of shared logs: the changes of all queries that differ in their predicates alone.

Saved searches have a few shapes, such as `SELECT price FROM s [RANGE 1 HOUR] WHERE item = 17`, and
thousands of constants. Which elements such a query selects, the Query SteM finds for all of them at
once. So one plan computes the changes of all: its source gives each element once for every query
that selects it, with the id of the query's change log in a column more.

A window of rows counts elements. Where its query's WHERE is inside the brackets, it counts what the
query selects: then the log is one more column of PARTITION BY. Else it counts all elements, and
all queries have one window: then its rows have lists of logs, which `PerQuery` takes apart.

Only what cannot fail is shared: a projection to columns, over a window. Then one query's trouble is
never another's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from millpond.catalog.objects import StreamDef
from millpond.model.schema import Field, Schema
from millpond.model.windows import Rows, Window
from millpond.operators.source import LOG
from millpond.planner.bind.bound_query import BoundQuery, StreamLeaf
from millpond.planner.dataflow.leaves import choose_columns, stream_node
from millpond.planner.dataflow.plan import Plan
from millpond.planner.optimize.choices import Choices
from millpond.planner.optimize.statistics import GuessedStatistics
from millpond.planner.optimize.strategies import apply_strategy


@dataclass(frozen=True)
class QueryShape:
    """What queries have in common that differ in their predicates alone.

    Attributes:
        stream: The stream they read.
        window: Their window.
        projection: The columns they give: (column, output name).
        output: The answer's columns.
        to_stream: As of `BoundQuery`.
        counts_all: Whether the window counts all elements, also those a query does not select.
    """

    stream: str
    window: Window
    projection: tuple[tuple[str, str], ...]
    output: Schema
    to_stream: str | None
    counts_all: bool = False


def find_shape(bound: BoundQuery) -> QueryShape | None:
    """Find the shape by which a query may share a log; None if it may share none."""
    if bound.projection is None or len(bound.streams) != 1 or bound.relations:
        return None
    (leaf,) = bound.streams
    has_more = bound.functions or bound.views or bound.estimates or bound.preference or leaf.hidden
    if has_more or leaf.sample is not None or bound.to_stream == "rstream":
        return None
    counts_all = isinstance(leaf.window, Rows) and leaf.before_shape is None
    known = (leaf.stream, leaf.window, bound.projection, bound.output, bound.to_stream)
    return QueryShape(*known, counts_all)


def plan_shared_log(
    bound: BoundQuery,
    stream: StreamDef,
    strategy: str,
    choices: Choices = MappingProxyType({}),
) -> Plan:
    """Plan the changes of all queries that have the shape of one of them.

    Args:
        bound: The one.
        stream: The stream it reads.
        strategy, choices: As of `plan_changes`.
    """
    shape = find_shape(bound)
    assert shape is not None
    assert bound.projection is not None
    (leaf,) = bound.streams
    bare = StreamLeaf(leaf.table, leaf.stream, leaf.window, None, leaf.columns)
    node = stream_node(bare, stream, 0, with_log=True, counts_all=shape.counts_all)
    places = {name.lower(): place for place, name in enumerate(leaf.columns)}
    chosen = [places[column.lower()] for column, _ in bound.projection]
    names = [*(column for column, _ in bound.projection), LOG]
    node = choose_columns(node, [*chosen, len(leaf.columns)], names)
    root = apply_strategy(node, strategy, GuessedStatistics(), choices=choices)
    output = Schema((*bound.output.fields, Field(LOG, "BIGINT")))
    return Plan(
        root, output, bound.to_stream, strategy=strategy, written=node.logical_key, core=root
    )


def strip_predicates(bound: BoundQuery) -> BoundQuery:
    """The query without its predicate: what all queries of its shape read."""
    (leaf,) = bound.streams
    bare = StreamLeaf(leaf.table, leaf.stream, leaf.window, None, leaf.columns)
    return replace(bound, streams=(bare,))
