"""What one epoch changes, as its author states it.

An author (a batch, a registration, a merge, …) describes its effect without knowing which other
changes are committed first. `resolve_change.py` decides what the effect is on the version at
the time of the commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millpond.catalog.objects import Definition, FunctionDef, SummaryDef
from millpond.catalog.sink_def import SinkDef
from millpond.state.join_state import JoinChange
from millpond.state.version import (
    LeafRef,
    MatchRef,
    RelationDelta,
    SegmentRef,
    SlotRef,
    StreamClock,
)


class StaleChange(Exception):
    """Another epoch was committed since the change was made, and the change is now wrong.

    Nothing was committed. The author looks at the current version and starts again, or finds that
    there is nothing left to do (the batch is already committed, the segments already merged).
    """


def new_segment_id(index: int) -> int:
    """Return the id by which a `MatchRef` refers to the index-th new segment of its own change.

    >>> new_segment_id(0), new_segment_id(1)
    (-1, -2)
    """
    return -1 - index


@dataclass(frozen=True, kw_only=True)
class EpochChange:
    """The effect of one epoch. Everything is optional but `kind`.

    Attributes:
        kind: A word for the epoch log: 'batch', 'register', 'merge', …
        batches: The (source key, batch id) pairs of the batches in this epoch. A source's ids rise.
        segments: New segments, `id` 0. `epoch` 0 stands for this epoch; a merged segment carries
            the epoch of its youngest part.
        matches: New matches, `id` 0, of segments in the version or (`new_segment_id`) new ones.
        drop_matches: Matches to forget: rewritten, or without a live slot.
        clocks: Stream id to its new clock.
        add: New definitions, with ids from `EpochLog.next_id`. A query's `registered_epoch` 0
            stands for this epoch.
        replace: Definitions with an id that is live, and the name it has.
        drop: Ids of definitions. A stream takes its segments, matches, clock and slots with it, a
            relation its deltas, a query its leaves (not its slots, which others may share).
        add_functions: New user-defined functions; a function replaces another of its name.
        drop_functions: Functions to drop.
        add_summaries: New summaries, or known ones that are stored elsewhere now (by their ids).
        drop_summaries: Summaries to drop.
        add_sinks: New sinks.
        replace_sinks: Sinks that are there, altered or further on, by their ids.
        drop_sinks: Sinks to drop.
        add_slots: New slots, numbered from `Version.next_slot` of their stream.
        drop_slots: (stream id, slot) pairs to drop; absent ones are ignored.
        add_leaves: Leaves of queries; all of one query's leaves are given together.
        drop_leaves: Ids of queries whose leaves are dropped.
        add_deltas: New relation deltas.
        drop_deltas: Deltas that were folded into another; all must still be there.
        replaced: Ids of segments that a new segment replaces; all must still be there.
        expired: Ids of segments to evict; absent ones are ignored.
        joins: The changes of shared joins.
        settings: All settings of the pond; None if they stay.
        inbox_done: Numbers of the pushes whose rows are in the new segments.
    """

    kind: str
    batches: Sequence[tuple[str, int]] = ()
    segments: Sequence[SegmentRef] = ()
    matches: Sequence[MatchRef] = ()
    drop_matches: Sequence[MatchRef] = ()
    clocks: Mapping[int, StreamClock] = field(default_factory=dict)
    add: Sequence[Definition] = ()
    replace: Sequence[Definition] = ()
    drop: Sequence[int] = ()
    add_functions: Sequence[FunctionDef] = ()
    drop_functions: Sequence[FunctionDef] = ()
    add_summaries: Sequence[SummaryDef] = ()
    drop_summaries: Sequence[SummaryDef] = ()
    add_sinks: Sequence[SinkDef] = ()
    replace_sinks: Sequence[SinkDef] = ()
    drop_sinks: Sequence[SinkDef] = ()
    add_slots: Sequence[SlotRef] = ()
    drop_slots: Sequence[tuple[int, int]] = ()
    add_leaves: Sequence[LeafRef] = ()
    drop_leaves: Sequence[int] = ()
    add_deltas: Sequence[RelationDelta] = ()
    drop_deltas: Sequence[RelationDelta] = ()
    replaced: Sequence[int] = ()
    expired: Sequence[int] = ()
    joins: JoinChange = field(default_factory=JoinChange)
    settings: Mapping[str, Any] | None = None
    inbox_done: Sequence[int] = ()
