"""Which window functions take rows that they find equal in the order of the stream."""

from __future__ import annotations

import pytest
from sqlglot import exp
from tests.oracle.oracle_pond import OraclePond
from tests.tools.changes_play import WorldNames

from millpond.cql import parse_query
from millpond.planner.bind.bind import bind
from millpond.planner.bind.bound_query import BoundQuery

V = "ORDER BY v"
ORDERED = [
    f"row_number() OVER ({V})",
    "row_number() OVER ()",
    f"lag(v) OVER (PARTITION BY k {V} DESC)",
    f"sum(v) OVER ({V} ROWS 2 PRECEDING)",
    f"sum(v) FILTER (WHERE v > 1) OVER ({V} ROWS UNBOUNDED PRECEDING)",
    f"first_value(v) OVER ({V})",
]
#: A frame of these depends on which rows are equal, or nothing shows their order.
LEFT = [
    f"rank() OVER ({V})",
    f"sum(v) OVER ({V})",
    "count(*) OVER (PARTITION BY k)",
    f"last_value(v) OVER ({V})",
    f"sum(v) OVER ({V} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW EXCLUDE TIES)",
    "first_value(v) OVER (PARTITION BY k)",
]


def bound(text: str) -> BoundQuery:
    pond = OraclePond()
    pond.execute("CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts")
    names = WorldNames(pond.world)
    return bind(parse_query(text), text, names)


def orders(query: BoundQuery) -> list[list[str]]:
    found = (w.args.get("order") for w in query.tree.find_all(exp.Window))
    return [[] if o is None else [t.this.name for t in o.expressions] for o in found]


@pytest.mark.parametrize("call", ORDERED)
def test_by_timestamp_and_arrival_behind_what_is_written(call: str) -> None:
    query = bound(f"SELECT *, {call} AS x FROM s [ROWS 9]")
    hidden = ("__ts_leaf_0", "__seq_leaf_0")
    assert query.streams[0].hidden == hidden
    (names,) = orders(query)
    assert names == (["v"] if V in call else []) + list(hidden)
    assert query.output.names == ("ts", "k", "v", "x")


@pytest.mark.parametrize("call", LEFT)
def test_the_others_as_they_are_written(call: str) -> None:
    query = bound(f"SELECT {call} AS x FROM s")
    assert query.streams[0].hidden == ()
    assert orders(query) == [["v"] if V in call else []]


def test_over_several_streams_and_queries_the_order_is_left_open() -> None:
    for source in ("s, s AS o", "(SELECT v FROM s) AS s"):
        query = bound(f"SELECT row_number() OVER (ORDER BY s.v) AS x FROM {source}")
        assert all(leaf.hidden == () for leaf in query.streams)
