"""Occurrences of streams and relations as the bottom of a dataflow: source, selection, window.

Every step that looks at one element alone (the predicate in the window's brackets, the conjuncts
that were pushed down, the sample) comes before the window. There it is done once for an element,
and not again when the element leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.cql.print.dialect import print_query, to_duckdb
from millpond.model.schema import Schema, arrow_type
from millpond.model.windows import Rows
from millpond.operators.per_query import PerQuery
from millpond.operators.project import Project
from millpond.operators.protocol.node import Node
from millpond.operators.relation_versions import RelationVersions
from millpond.operators.sample import Sample
from millpond.operators.select import Select
from millpond.operators.source import LOG, LOGS, SEQUENCE, TIMESTAMP, RelationSource, StreamSource
from millpond.operators.windows.rows_window import RowsWindow
from millpond.operators.windows.time_window import TimeWindow
from millpond.planner.bind.bound_query import RelationLeaf, StreamLeaf
from millpond.planner.explain.logical_plan import window_text
from millpond.planner.resolve.pushdown import split_conjuncts

#: A source of a stream with at most this many columns has all of them, so that queries share
#: selections whichever columns they need. Columns nobody reads cost nothing: they are not filled.
WHOLE = 32


def stream_node(
    leaf: StreamLeaf,
    definition: StreamDef,
    seed: int,
    *,
    with_timestamp: bool = False,
    with_sequence: bool = False,
    with_log: bool = False,
    counts_all: bool = False,
    whole: bool = False,
    in_order: bool = True,
) -> Node:
    """Plan an occurrence of a stream: its window's rows, with the columns of its slice.

    Args:
        leaf: The occurrence.
        definition: The definition of its stream.
        seed: The seed of its sample.
        with_timestamp: Whether each row has its element's timestamp (int64) as one more column.
        with_sequence: Whether it has its number in the order of arrival (int64), too.
        with_log: Whether each row has the id of a change log (int64) as one more column.
        counts_all: Whether its window of rows then counts every element, and not those of a log.
        whole: Whether to leave out the conjuncts that were pushed down.
        in_order: As of `TimeWindow`.
    """
    schema = definition.schema
    before = list(split_conjuncts(leaf.before)) if leaf.before is not None else []
    pushed = list(split_conjuncts(leaf.pushed)) if leaf.pushed is not None and not whole else []
    by = leaf.window.by if isinstance(leaf.window, Rows) else ()
    wanted = {name.lower() for name in (*leaf.columns, *by)}
    wanted |= {c.name.lower() for p in (*before, *pushed) for c in p.find_all(exp.Column)}
    columns = schema.names
    # A ROWS window stores all columns it is given, and a source of very many columns is slow.
    if isinstance(leaf.window, Rows) or len(columns) > WHOLE:
        columns = tuple(n for n in columns if n.lower() in wanted)
    if with_timestamp:
        columns += (TIMESTAMP,)
    log = LOGS if counts_all else LOG
    if with_log:
        columns += (log,)
    if leaf.sample is not None or with_sequence:
        columns += (SEQUENCE,)
    types = tuple(_type(schema, c) for c in columns)
    node: Node = StreamSource(leaf.stream, columns, types, definition.timestamp_by)
    places = {name.lower(): place for place, name in enumerate(columns)}
    if predicates := [*before, *pushed]:
        node = Select(
            node,
            tuple(dict.fromkeys(positional_sql(p, places) for p in predicates)),
            " AND ".join(dict.fromkeys(print_query(p).strip() for p in predicates)),
        )
    if leaf.sample is not None:
        own = seed if leaf.seed is None else leaf.seed
        node = Sample(node, own, leaf.sample, places[SEQUENCE])
    if isinstance(leaf.window, Rows):
        counted = tuple(places[name.lower()] for name in by)
        if with_log and not counts_all:
            counted += (places[LOG],)
        node = RowsWindow(node, leaf.window.count, counted, window_text(leaf.window))
        if with_log and counts_all:
            node = PerQuery(node, places[LOGS])
    else:
        node = TimeWindow(node, leaf.window, window_text(leaf.window), columns, in_order=in_order)
    chosen = {TIMESTAMP: with_timestamp, SEQUENCE: with_sequence, log: with_log}
    hidden = [name for name, is_chosen in chosen.items() if is_chosen]
    shown = [*leaf.columns, *hidden]
    return choose_columns(node, [places[name.lower()] for name in shown], shown)


def plan_versions(
    leaf: RelationLeaf, definition: RelationDef, streams: Sequence[StreamLeaf]
) -> Node:
    """Plan a non-retroactive relation: the row versions that elements of `streams` may still join.

    Each row has the interval in which the relation held it.
    """
    windows = dict.fromkeys(stream.window for stream in streams if stream.hidden)
    return RelationVersions(relation_node(leaf, definition), tuple(windows))


def relation_node(leaf: RelationLeaf, definition: RelationDef) -> Node:
    """Plan an occurrence of a relation: its rows at an instant."""
    types = tuple(_type(definition.schema, c) for c in leaf.columns)
    return RelationSource(leaf.relation, leaf.columns, types)


def choose_columns(node: Node, places: Sequence[int], names: Sequence[str] = ()) -> Node:
    """Project a node to the columns of these places, in their order."""
    if list(places) == list(range(len(node.schema))):
        return node
    if (narrower := node.choose_columns(tuple(places))) is not None:
        return narrower
    types = tuple(node.schema.field(p).type for p in places)
    return Project(node, tuple(places), types, ", ".join(names))


def positional_sql(predicate: exp.Expr, places: dict[str, int]) -> str:
    """Write an expression over bare columns as DuckDB's SQL over `c0`, `c1`, …."""
    copied = predicate.copy()
    holder = exp.Paren(this=copied)
    for column in list(holder.find_all(exp.Column)):
        place = places[column.name.lower()]
        column.replace(exp.Column(this=exp.Identifier(this=f"c{place}", quoted=False)))
    return to_duckdb(holder.this)


def _type(schema: Schema, name: str) -> pa.DataType:
    if name in (SEQUENCE, TIMESTAMP, LOG):
        return pa.int64()
    if name == LOGS:
        return pa.list_(pa.int64())
    field = schema.find(name)
    assert field is not None
    return arrow_type(field.type)
