"""The parts of a pond that feeds ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.service.changes.advancer import Advancer
from millpond.service.changes.change_log import ChangeReader
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.feeds.feed_cursor import (
    Places,
    Run,
    Streams,
    find_run,
    parse_feed_cursor,
)
from millpond.service.changes.new_derivations import NewDerivations
from millpond.service.queries.query_directory import QueryDirectory
from millpond.service.results import Answer
from millpond.state.epoch_log import EpochLog
from millpond.state.version import Version


class FeedNeeds(Protocol):
    """What feeds have to know that only a pond's parts together say: `Components` does."""

    def find_heartbeats(self, version: Version, streams: Sequence[StreamDef]) -> list[int]:
        """Find the heartbeats of streams that readers of a version may rely on now."""
        ...

    def invoke(self, definition: QueryDef, at: int | None) -> Answer:
        """Answer a standing query as of an instant; None: as of now."""
        ...


@dataclass(frozen=True)
class FeedParts:
    """The parts of a pond that its feeds share."""

    log: EpochLog
    directory: QueryDirectory
    derivations: Derivations
    new_derivations: NewDerivations
    advancer: Advancer
    reader: ChangeReader
    needs: FeedNeeds

    def parse_cursor(self, text: str, version: Version) -> Places:
        """Read a cursor of a feed of this store.

        Raises:
            MillpondError: POND-412 if the text is not a cursor, or its changes are there no more.
        """

        def count(ids: Sequence[int]) -> int | None:
            is_there = all(id in version.streams for id in ids)
            return count_resets(version, ids) if is_there else None

        return parse_feed_cursor(text, self.log.incarnation, count)


def count_resets(version: Version, ids: Sequence[int]) -> int:
    """How often the clocks of streams were set back, all together."""
    return sum(version.streams[id].resets for id in ids if id in version.streams)


def find_streams(version: Version, log: StreamDef) -> Streams:
    """The streams by which cursors know a change log: those that its query reads."""
    assert log.derived is not None
    read = sorted({leaf.stream_id for leaf in version.leaves(log.derived.query_id or 0)})
    own = 0 if log.derived.known_by is None else log.id
    return Streams(tuple(read), count_resets(version, read), own)


def find_place(places: Places, version: Version, streams: Streams, log: StreamDef) -> Run | None:
    """How far a reader of a cursor is in a change log; None for a log that came later.

    Args:
        places: The places of the cursor.
        version: The version.
        streams: The streams by which cursors know the log now.
        log: The change log.
    """
    assert log.derived is not None
    if streams.log:  # the cursor may be of before its query read these streams
        own = next((key for key in places if key.log == log.id), None)
        first = log.derived.known_by or ()
        streams = own or Streams(first, count_resets(version, first))
    return find_run(places, streams, log.id)
