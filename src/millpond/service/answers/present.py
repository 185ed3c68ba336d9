"""NOW: the instant that an answer without AT is as of, and the present of the pond."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.model.time import BEGINNING
from millpond.planner.bind.bound_query import BoundQuery
from millpond.service.events import FollowerNeeds
from millpond.service.ingest.floors import ClockReading, FloorsInFlight
from millpond.service.ingest.relations import Relations
from millpond.state.epoch_log import EpochLog
from millpond.state.version import Version


class Present:
    """Says what NOW is (SEMANTICS, section 5); safe to use from any thread."""

    def __init__(
        self,
        log: EpochLog,
        floors: FloorsInFlight,
        relations: Relations,
        followers: FollowerNeeds,
    ) -> None:
        self._log = log
        self._floors = floors
        self._relations = relations
        self._followers = followers

    def read(self) -> int:
        """The pond's present: what a relation update without AT is stamped with."""
        reading = self._floors.capture()
        return _find_present(self._log.version, reading)

    def now_of(
        self,
        version: Version,
        bound: BoundQuery,
        streams: Sequence[StreamDef],
        reading: ClockReading,
    ) -> int:
        """NOW: the greatest timestamp committed on the application-time streams, or the clock.

        Before their first element nothing has happened yet: the beginning of time. A derived stream
        counts as those it is derived from. Without any stream NOW is the pond's present.
        """
        if not streams:
            return self.of(version, bound, reading)
        sources = [s for stream in streams for s in self._followers.sources_of(version, stream)]
        on_application_time = [s for s in sources if not s.on_system_time]
        if not on_application_time:
            return reading.now
        highs = [version.clock(s.id).high for s in on_application_time]
        return max((h for h in highs if h is not None), default=BEGINNING)

    def of(self, version: Version, bound: BoundQuery, reading: ClockReading) -> int:
        """NOW of a query that reads no stream: the pond's present.

        That is the clock where a stream is on system time. Elsewhere, before anything was committed
        on a stream, it is the last instant at which the query's relations changed.
        """
        if any(s.timestamp_by is None for s in version.streams.values() if s.derived is None):
            return reading.now
        present = _find_present(version, reading)
        if present > BEGINNING:
            return present
        relations = [version.find(leaf.relation) for leaf in bound.relations]
        change_instants = [
            self._relations.read_rows(version, relation).latest
            for relation in relations
            if isinstance(relation, RelationDef)
        ]
        return max([BEGINNING, *change_instants])


def _find_present(version: Version, reading: ClockReading) -> int:
    """The pond's present: the greatest timestamp if all streams are on application time, or the
    clock; the beginning of time while no stream has had an element."""
    # What is derived follows from the others, sooner or later: it has no present of its own.
    streams = [s for s in version.streams.values() if s.derived is None]
    highs = [h for s in streams if (h := version.clock(s.id).high) is not None]
    if not highs:
        return BEGINNING
    if any(s.timestamp_by is None for s in streams):
        return reading.now
    return max(highs)
