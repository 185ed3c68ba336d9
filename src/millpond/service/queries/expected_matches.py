"""How much of the disk the matches of new queries over kept elements are expected to take.

Registration starts no job: backfill matches what is kept behind it. 50,000 queries that want half
of two million elements each take 12 GB, so what they will take is estimated before: some of the new
predicates are matched with some of the elements, by the code that backfill runs. Where matches
would take little even if no predicate was selective, nothing is looked at.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow.compute as pc

from millpond.engine.matching.match import match
from millpond.engine.matching.query_stem import QuerySteM
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.errors import MillpondError
from millpond.state.disk_floor import DISK_FLOOR, measure_room
from millpond.state.segment_file import open_segment
from millpond.state.version import SlotRef, Version

log = logging.getLogger("millpond.queries")

_T = TypeVar("_T")
#: Matches that are expected to take more than one part in so many of what is free are told of.
_PART = 10
#: How many predicates of a stream are matched, with elements of how many segments, and how many.
_PREDICATES, _SEGMENTS, _ROWS = 256, 4, 2_048


def check_matches(store: Path, version: Version, slots: Sequence[SlotRef]) -> None:
    """Warn of matches that will take much of the disk.

    Args:
        store: The store's directory.
        version: What is kept.
        slots: The predicates that are about to be registered.

    Raises:
        MillpondError: STORE-603, the disk would have less free than its floor.
    """
    by_stream = defaultdict(list)
    for slot in slots:
        by_stream[slot.stream_id].append(slot)
    kept = {id: sum(s.rows for s in version.segments(id)) for id in by_stream}
    # No encoding takes more than a bit for each element.
    most = sum(kept[id] * len(some) // 8 for id, some in by_stream.items())
    if not most:
        return
    try:
        room = measure_room(store)
        if most <= room.free // _PART:
            return
        expected = sum(_estimate(store, version, id, some) for id, some in by_stream.items())
    except OSError:
        return  # backfill says what is wrong
    if room.floor and room.free - expected < room.floor:
        raise MillpondError(
            "STORE-603",
            "what the queries match of the kept elements does not fit on the disk of the store",
            detail=f"{len(slots):,} new predicates and {sum(kept.values()):,} kept elements give"
            f" about {expected:,} bytes of matches; {room.free:,} are free, and {room.floor:,} stay"
            f" free ({DISK_FLOOR}).",
            hint="Free disk space, keep less (RETAIN), or register queries WITH (materialize ="
            " 'none'), which are matched when they are asked.",
        )
    if expected > room.free // _PART:
        log.warning(
            "what %s new predicates match of %s kept elements takes about %s bytes;"
            " %s are free on the disk of the store",
            f"{len(slots):,}",
            f"{sum(kept.values()):,}",
            f"{expected:,}",
            f"{room.free:,}",
        )


def _estimate(store: Path, version: Version, stream_id: int, slots: list[SlotRef]) -> int:
    """Estimate the bytes of the matches of a stream's new predicates; 0 if it cannot be read."""
    segments = version.segments(stream_id)
    rows = sum(s.rows for s in segments)
    stem = QuerySteM(version.streams[stream_id].schema)
    some = _spread(slots, _PREDICATES)
    for slot in some:
        stem.add_packed(slot.slot, slot.factors)
    looked_at = found = 0
    try:
        for segment in _spread([s for s in segments if s.rows], _SEGMENTS):
            path = store / segment.path
            table = open_segment(path, segment.checksum, version.added_columns(stream_id))
            first = max(0, (table.num_rows - _ROWS) // 2)
            sample = table.slice(first, _ROWS).combine_chunks()
            matches = match(sample, stem.snapshot(), ScalarEvaluator.of_this_thread())
            looked_at += sample.num_rows
            found += sum(pc.sum(pc.binary_length(b["data"])).as_py() or 0 for b in matches.batches)
    except MillpondError:
        return 0  # backfill says what is wrong
    return found * rows // looked_at * len(slots) // len(some) if looked_at else 0


def _spread(items: Sequence[_T], most: int) -> Sequence[_T]:
    """Choose at most so many of the items, spread over all of them."""
    many = len(items)
    return items if many <= most else [items[place * many // most] for place in range(most)]
