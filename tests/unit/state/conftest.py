"""Builders of what epochs hold."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from millpond.catalog.objects import QueryDef, RelationDef, SourceDef, StreamDef
from millpond.model.schema import Field, Schema
from millpond.state.store import Store
from millpond.state.version import RelationDelta, SegmentRef


def _stream(id: int, name: str = "flights") -> StreamDef:
    return StreamDef(
        id=id,
        name=name,
        schema=Schema((Field("ts", "TIMESTAMP"), Field("delay", "DECIMAL(10,2)"))),
        timestamp_by="ts",
        delay=5,
        idle_after=30,
        retain=1_000,
        retain_rows=10,
        source=SourceDef("csv", {"path": "a.csv"}),
        text="CREATE STREAM …",
    )


def _relation(id: int, name: str = "planes") -> RelationDef:
    return RelationDef(id, name, Schema((Field("tail", "VARCHAR"),)), ("tail",), True, None, "…")


def _query(id: int, name: str = "late") -> QueryDef:
    return QueryDef(id, name, "SELECT * FROM flights", {"weight": 2.0, "active": True}, 0, 77)


def _segment(
    stream_id: int,
    path: str = "segments/a",
    *,
    id: int = 0,
    kind: str = "data",
    epoch: int = 0,
    rows: int = 10,
    min_ts: int = 0,
    max_ts: int = 9,
) -> SegmentRef:
    return SegmentRef(
        id, stream_id, kind, epoch, 0, path, rows, min_ts, max_ts, ((0, 5), (3, 50)), "c0ffee", 100
    )


def _delta(relation_id: int, path: str, epoch: int = 0) -> RelationDelta:
    return RelationDelta(relation_id, epoch, path, "c0ffee", 3, 30)


@pytest.fixture(scope="session")
def a() -> SimpleNamespace:
    """Builders: `a.stream(1)`, `a.query(2, "q")`, `a.segment(1, "segments/x", min_ts=5)`, …"""
    return SimpleNamespace(
        stream=_stream,
        relation=_relation,
        query=_query,
        segment=_segment,
        delta=_delta,
        rows=pa.table({"delay": [1.5, None, 3.0], "origin": ["JFK", "LGA", None]}),
    )


@pytest.fixture
def store(tmp_path: Path):
    with Store.open(tmp_path / "pond", clock=lambda: 1_000) as opened:
        yield opened
