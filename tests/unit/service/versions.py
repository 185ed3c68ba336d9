"""Versions and segments made by hand, for logic that is a function of a version alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.catalog.objects import Definition, QueryDef, RelationDef, StreamDef
from millpond.model.schema import Field, Schema
from millpond.state.bucket_map import BucketMap
from millpond.state.id_map import IdMap
from millpond.state.version import (
    DATA,
    HeldLeaves,
    LeafRef,
    RelationDelta,
    SegmentRef,
    StreamState,
    Version,
    hold_leaves,
)

SCHEMA = Schema((Field("ts", "TIMESTAMP"), Field("v", "INTEGER")))


def stream(id: int, name: str, **attributes: Any) -> StreamDef:
    """A stream of (ts, v); on its own time unless `timestamp_by` says otherwise."""
    return StreamDef(id, name, SCHEMA, **{"timestamp_by": "ts", **attributes})


def version_of(
    *definitions: Definition,
    epoch: int = 9,
    states: Mapping[int, StreamState] | None = None,
    deltas: Mapping[int, tuple[RelationDelta, ...]] | None = None,
    leaves: Mapping[int, tuple[LeafRef, ...]] | None = None,
    **others: Any,
) -> Version:
    """A version that holds these definitions."""
    queries = {d.id: d for d in definitions if isinstance(d, QueryDef)}
    return Version(
        epoch,
        {d.id: d for d in definitions if isinstance(d, StreamDef)},
        {d.id: d for d in definitions if isinstance(d, RelationDef)},
        IdMap[QueryDef]().with_changes(queries),
        BucketMap[str, int]().with_changes({d.name.lower(): d.id for d in definitions}),
        states or {},
        deltas=deltas or {},
        leaves_of=IdMap[HeldLeaves]().with_changes(
            {id: hold_leaves(own) for id, own in (leaves or {}).items()}
        ),
        **others,
    )


def segment(
    stream_id: int, min_ts: int, max_ts: int, *, id: int = 1, rows: int = 1, epoch: int = 1
) -> SegmentRef:
    """A segment of which only the figures matter: no file belongs to it."""
    path = f"segments/{id}"
    return SegmentRef(
        id, stream_id, DATA, epoch, 0, path, rows, min_ts, max_ts, ((0, 0),), "sum", 8
    )
