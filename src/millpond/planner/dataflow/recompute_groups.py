"""Window functions and unusual aggregates: recomputed, but only for the groups that change.

If all window functions of a SELECT are partitioned by the same expressions, or the SELECT groups
by expressions, its answer for one value of these depends only on the rows with that value. The
expressions become the key of `operators/recompute_groups.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
from sqlglot import exp

from millpond.operators.recompute_groups import KEY, ROWS, RecomputeGroups
from millpond.planner.dataflow.column_types import find_answer_types
from millpond.planner.dataflow.frame import Frame, NamedNode, Unsupported, project
from millpond.planner.dataflow.group_by import keys_and_having

#: A column of a SELECT list: its name, and an expression over a frame or the place of a column.
ListedItem = tuple[str, exp.Expr | int]

_KEY_FIELD = pa.field(KEY, pa.int64())


def recompute_partitions(
    frame: Frame, items: Sequence[ListedItem], chosen: exp.Expr | None
) -> NamedNode:
    """Plan a SELECT with window functions over the rows that its FROM and WHERE give.

    Args:
        frame: The rows.
        items: The SELECT's columns: names, and expressions over the frame.
        chosen: The condition of QUALIFY, over the frame.

    Raises:
        Unsupported: the windows have no partition key in common, or the SELECT reads other tables.
    """
    items = [(name, e.copy() if isinstance(e, exp.Expr) else e) for name, e in items]
    expressions = [e for _, e in items if isinstance(e, exp.Expr)]
    expressions += [] if chosen is None else [chosen]
    windows = [w for e in expressions for w in e.find_all(exp.Window)]
    if not windows or any(w.args.get("alias") or w.args.get("window") for w in windows):
        raise Unsupported("window functions")
    common: dict[str, exp.Expr] = {frame.sql(e): e for e in windows[0].args["partition_by"] or []}
    for window in windows[1:]:
        here = {frame.sql(e) for e in window.args["partition_by"] or []}
        common = {sql: e for sql, e in common.items() if sql in here}
    if not common:
        raise Unsupported("window functions over all rows")
    for window in windows:
        window.args["partition_by"] = [*window.args["partition_by"], exp.var(KEY)]
    tail = "" if chosen is None else f" QUALIFY {_sql(chosen, frame)}"
    return _recompute_by(frame, items, list(common.values()), tail, "window functions")


def recompute_grouped(
    node: exp.Select, frame: Frame, items: Sequence[ListedItem], reason: str
) -> NamedNode:
    """Plan a grouped SELECT with an aggregate that has no incremental form; `reason` says why.

    Raises:
        Unsupported: the SELECT has no keys, or a key is not an expression over rows.
    """
    keys, having = keys_and_having(node, frame)
    if not keys:
        raise Unsupported(reason)
    grouped = ", ".join([*(frame.sql(key) for key in keys), KEY])
    tail = f" GROUP BY {grouped}"
    if having is not None:
        tail += f" HAVING {_sql(having, frame)}"
    return _recompute_by(frame, items, keys, tail, reason)


def _recompute_by(
    frame: Frame,
    items: Sequence[ListedItem],
    keys: Sequence[exp.Expr],
    tail: str,
    reason: str,
) -> NamedNode:
    shown = ", ".join(key.sql() for key in keys)
    width = len(frame.node.schema)
    node = project(frame.node, [*range(width), *(frame.sql(key) for key in keys)])
    by = tuple(range(width, len(node.schema)))
    types_of_keys = [node.schema.field(place).type for place in by]
    # GROUP BY takes 0.0 and -0.0 as one key, and all NaNs as one; the operator's keys do not.
    if any(pa.types.is_nested(t) or pa.types.is_floating(t) for t in types_of_keys):
        raise Unsupported(reason)
    columns = ", ".join([*(f"{_sql(e, frame)} AS a{i}" for i, (_, e) in enumerate(items)), KEY])
    sql = f"SELECT {columns} FROM {ROWS}{tail}"
    table = (ROWS, [*node.schema.names, KEY])
    try:
        types = find_answer_types(sql, [table], [node.schema.append(_KEY_FIELD)])
    except duckdb.Error as error:
        raise Unsupported(reason) from error
    found = RecomputeGroups(node, by, sql, types[:-1], shown, reason)
    return NamedNode(found, tuple(name for name, _ in items))


def _sql(expression: exp.Expr | int, frame: Frame) -> str:
    if isinstance(expression, int):
        return f"c{expression}"
    if expression.find(exp.Query) is not None:
        raise Unsupported("a subquery among window functions or aggregates")
    return frame.sql(expression)
