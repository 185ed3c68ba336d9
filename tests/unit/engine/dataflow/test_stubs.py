"""Which windows have elements that can be kept for several, and which nodes are replaced."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from millpond.engine.dataflow.shared_distincts import share_distinct
from millpond.engine.dataflow.stubs import choose_stubs, find_elements
from millpond.model.time import END
from millpond.model.windows import Now, Range, Rows, Unbounded
from millpond.operators.distinct_announcing import DistinctAnnouncing
from millpond.operators.project import Project
from millpond.operators.protocol.node import Node
from millpond.operators.protocol.stubs import Stub
from millpond.operators.source import RelationSource, StreamSource
from millpond.operators.windows.rows_window import RowsWindow
from millpond.operators.windows.time_window import TimeWindow

TYPES = (pa.int64(), pa.string(), pa.float64())
SOURCE = StreamSource("s", ("a", "b", "c"), TYPES)
WINDOW = TimeWindow(SOURCE, Range(9), names=("a", "b", "c"))


def test_elements_are_those_below_a_window_with_its_length() -> None:
    for window, length in ((Range(9), 9), (Now(), 1), (Unbounded(), END)):
        found = find_elements(TimeWindow(SOURCE, window))
        assert found is not None
        assert (found.node, found.length) == (SOURCE, length)


@pytest.mark.parametrize(
    "node",
    [
        replace(WINDOW, keep=(1, 0)),
        Project(WINDOW, (1, 0), (pa.string(), pa.int64())),
        Project(replace(WINDOW, keep=(0, 2, 1)), (2, 0), (pa.string(), pa.int64())),
        Project(Project(WINDOW, (0, 1), TYPES[:2]), (1, 0), (pa.string(), pa.int64())),
    ],
)
def test_columns_are_chosen_below_the_window(node: Node) -> None:
    found = find_elements(node)
    assert found is not None
    assert isinstance(found.node, Project)
    assert found.node.input is SOURCE
    assert found.node.expressions == (1, 0)
    assert found.node.schema.types == [pa.string(), pa.int64()]


@pytest.mark.parametrize(
    "node",
    [
        SOURCE,
        replace(WINDOW, window=Range(9, slide=2)),
        replace(WINDOW, in_order=False),
        RowsWindow(SOURCE, Rows(3)),
        TimeWindow(SOURCE.own_by("q"), Range(9)),
        TimeWindow(RelationSource("r", ("a",), TYPES[:1]), Range(9)),
        Project(WINDOW, ("c0 + 1",), TYPES[:1]),
    ],
    ids=str,
)
def test_of_other_nodes_elements_are_not_found(node: Node) -> None:
    assert find_elements(node) is None


def distinct(length: int, *keep: int) -> DistinctAnnouncing:
    return DistinctAnnouncing(replace(WINDOW, window=Range(length), keep=keep))


def make(node: DistinctAnnouncing) -> Stub:
    found = share_distinct(node)
    assert found is not None
    return found


def test_a_node_is_replaced_where_another_has_its_store() -> None:
    one, two, other = distinct(9, 0), distinct(4, 0), distinct(4, 0, 1)
    assert not choose_stubs([make(one), make(other)])
    chosen = choose_stubs(map(make, (one, two, other)))
    assert chosen.keys() == {one.key, two.key}
    assert [chosen[node.key].lengths for node in (one, two)] == [(9,), (4,)]


def test_rows_whose_values_may_show_different_things_are_not_shared() -> None:
    assert share_distinct(distinct(9, 2)) is None
    assert share_distinct(distinct(9, 0, 2)) is None
    owned = distinct(9, 0).own_by("q")
    assert isinstance(owned, DistinctAnnouncing)
    assert share_distinct(owned) is None
    endless = TimeWindow(SOURCE, Unbounded(), keep=(0,))  # nothing leaves it
    assert share_distinct(DistinctAnnouncing(endless)) is None
