"""Weights: streams in the order of what the queries over them weigh together."""

from __future__ import annotations

from typing import Any

from tests.unit.service.versions import stream, version_of

from millpond.catalog.objects import QueryDef
from millpond.service.queries.weights import StreamWeights, weight_of
from millpond.state.version import LeafRef, Version


def version(*queries: tuple[int, tuple[int, ...], dict[str, Any]]) -> Version:
    """Three streams and queries over some: (id, streams, options)."""
    return version_of(
        *(stream(id, f"s{id}") for id in (1, 2, 3)),
        *(QueryDef(id, f"q{id}", "…", options) for id, _, options in queries),
        leaves={
            id: tuple(LeafRef(id, number, stream_id, None) for number, stream_id in enumerate(read))
            for id, read, _ in queries
        },
    )


def order(*queries: tuple[int, tuple[int, ...], dict[str, Any]]) -> list[int]:
    return StreamWeights().order(version(*queries), (1, 2, 3))


def test_the_weightiest_streams_come_first() -> None:
    assert order() == [1, 2, 3]
    assert order((10, (2,), {})) == [2, 1, 3]
    assert order((10, (2,), {}), (11, (3,), {}), (12, (3,), {})) == [3, 2, 1]
    assert order((10, (2,), {"weight": 0.5}), (11, (3,), {"weight": 0.25})) == [2, 3, 1]


def test_a_query_weighs_once_however_often_it_reads_a_stream() -> None:
    assert order((10, (2, 2, 2), {}), (11, (3,), {"weight": 2})) == [3, 2, 1]


def test_inactive_queries_weigh_nothing() -> None:
    assert order((10, (3,), {"active": False, "weight": 9}), (11, (2,), {})) == [2, 1, 3]
    assert weight_of(QueryDef(1, "q", "…", {"weight": 9}, suspended="it failed")) == 0
    assert weight_of(QueryDef(1, "q", "…")) == 1


def test_it_is_added_up_again_when_queries_have_changed() -> None:
    weights = StreamWeights()
    assert weights.order(version((10, (2,), {})), (1, 2, 3)) == [2, 1, 3]
    assert weights.order(version((10, (2,), {}), (11, (3,), {"weight": 2})), (1, 3)) == [3, 1]
    assert weights.order(version(), (3, 1, 2)) == [1, 2, 3]
