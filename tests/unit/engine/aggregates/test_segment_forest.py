"""The tree above the segments: any window is cut into whole subtrees and straddling segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millpond.engine.aggregates.segment_forest import (
    SegmentForest,
    Subtree,
    split_at_window,
    total_of_node,
)
from millpond.synopses.totals import Total, merge


@dataclass(frozen=True)
class Segment:
    id: int
    min_ts: int
    max_ts: int


@st.composite
def segments(draw: Any) -> tuple[Segment, ...]:
    ids = draw(st.sets(st.integers(1, 2_000), max_size=60))
    # An id stands for the same segment for ever.
    made = [Segment(i, i * 37 % 101, i * 37 % 101 + i * 13 % 21) for i in ids]
    return tuple(sorted(made, key=lambda s: (s.min_ts, s.id)))


def leaves(node: Subtree) -> list[Any]:
    if node.segment is not None:
        return [node.segment]
    return [leaf for child in node.children for leaf in leaves(child)]


def shape(node: Subtree | None) -> Any:
    if node is None or node.segment is not None:
        return node and node.segment
    return tuple(shape(child) for child in node.children)


def total_of(segment: Any) -> Total:
    return Total(1, 1, segment.id, (0, 0, 0), segment.id, segment.id)


@given(segments(), st.none() | st.integers(-5, 130), st.integers(-5, 130))
def test_a_window_is_cut(held: tuple[Segment, ...], low: int | None, high: int) -> None:
    whole, straddling = split_at_window(SegmentForest().root(held), low, high)
    inside = [s for node in whole for s in leaves(node)]
    begin = -10 if low is None else low
    assert sorted(s.id for s in inside) == sorted(
        s.id for s in held if begin <= s.min_ts and s.max_ts <= high
    )
    assert {node.segment.id for node in straddling if node.segment} == {
        s.id for s in held if s.min_ts <= high and s.max_ts >= begin
    } - {s.id for s in inside}


@given(st.lists(segments(), min_size=1, max_size=4))
def test_the_tree_is_a_function_of_the_segments(versions: list[tuple[Segment, ...]]) -> None:
    forest = SegmentForest()
    for held in versions:
        root = forest.root(held)
        assert shape(root) == shape(SegmentForest().root(held))
        if root is not None:
            found = total_of_node(root, "all", total_of, merge)
            assert found == merge(total_of(s) for s in held)


def test_subtrees_apart_from_a_change_stay_with_their_totals() -> None:
    held = tuple(Segment(i, 10 * i, 10 * i + 9) for i in range(1, 2_001))
    forest = SegmentForest()
    computed: list[int] = []

    def compute(segment: Any) -> Total:
        computed.append(segment.id)
        return total_of(segment)

    root = forest.root(held)
    assert root is not None
    total_of_node(root, "all", compute, merge)
    assert len(computed) == 2_000
    known = {node.number for node in forest.nodes()}
    computed.clear()
    later = (*held[3:], Segment(2_001, 20_010, 20_019))
    root = forest.root(later)
    assert root is not None
    assert total_of_node(root, "all", compute, merge) == merge(total_of(s) for s in later)
    assert computed == [2_001]
    fresh = [node for node in forest.nodes() if node.number not in known]
    assert len(fresh) < 20


def test_a_window_opens_few_nodes_however_many_segments_there_are() -> None:
    for count in (100, 10_000):
        held = tuple(Segment(i, 10 * i, 10 * i + 9) for i in range(count))
        whole, straddling = split_at_window(SegmentForest().root(held), 15, 10 * count - 15)
        assert len(straddling) == 2
        assert len(whole) < 150
