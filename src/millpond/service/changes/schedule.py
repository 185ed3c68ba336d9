"""The agenda: which derivations are to be advanced, how far, and when time alone makes one due.

A derivation is due when something is new for it: elements, an update of a relation, an expiration.
What nothing is new for goes on without being computed: it is known up to where it has no changes,
and if others have to know that too, its heartbeat is moved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import is_not

from millpond.catalog.objects import StreamDef
from millpond.engine.dataflow.dataflow import to_millpond_error
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING, END
from millpond.service.answers.leaf_scan import Files
from millpond.service.changes.advance_jobs import Runnable, sources, step_end
from millpond.service.changes.derivations import Derivation, Derivations
from millpond.service.changes.next_expiration import next_expiration
from millpond.service.changes.retry import Retries
from millpond.service.ingest.floors import ClockReading
from millpond.service.ingest.relations import Relations
from millpond.state.version import StreamClock, StreamState, Version

#: How long changes that come by the clock alone may wait.
_TICK_SECONDS = 0.2
#: How often heartbeats that others have to know go on with the clock while nothing happens.
HEARTBEAT_SECONDS = 1.0
_LONGEST_SECONDS = 3600.0


@dataclass(frozen=True)
class DerivationProgress:
    """What was found out about a derivation that is not as far as it can be.

    Attributes:
        derivation: Which.
        clock: Where it is.
        upto: How far it can be.
        is_due: Whether it is to be advanced for its own sake.
        quiet: If it is not: up to where it has no changes.
    """

    derivation: Derivation
    clock: StreamClock
    upto: int
    is_due: bool
    quiet: int


class Schedule:
    """Looks at derivations, for the thread that advances them.

    `idles`, `planned` and `reached` may be called from any thread.

    Args:
        files: Opens segments.
        derivations: What there is to look at.
        relations: What they read of relations.
        stoppages: Derived streams that cannot be advanced.
        blame: Told of a derivation that cannot be planned.
    """

    def __init__(
        self,
        files: Files,
        derivations: Derivations,
        relations: Relations,
        retries: Retries,
        blame: Callable[[StreamDef, MillpondError], None],
    ) -> None:
        self._files = files
        self._derivations = derivations
        self._relations = relations
        self._retries = retries
        self._report_failure = blame
        #: Per derivation how far it is known that there is nothing new.
        self._complete_upto: dict[int, int] = {}
        #: Per derivation the state of its inputs for which its next moment was found, and that.
        self._next_expirations: dict[int, tuple[int, list[StreamState | None], int]] = {}

    def is_idle(self, version: Version, stream: StreamDef) -> bool:
        """Whether a derivation is not to be advanced: it has stopped, or its query is inactive."""
        assert stream.derived is not None
        if self._retries.is_backing_off(stream.id):
            return True
        if stream.derived.query_id is None:
            return False
        query = version.query_of(stream)
        return query is None or not query.active

    def find_derivation(self, version: Version, stream: StreamDef) -> Derivation | None:
        """A derivation that is to be advanced; None if it is not, or cannot be."""
        if self.is_idle(version, stream):
            return None
        try:
            return self._derivations.of(version, stream)
        except Exception as error:
            self._report_failure(stream, to_millpond_error(error))
            return None

    def complete_upto(self, version: Version, stream: StreamDef) -> int:
        """The last instant up to which all of a derivation's changes are known to be there."""
        position = version.clock(stream.id).position
        return max(position, self._complete_upto.get(stream.id, position))

    def inspect(
        self, version: Version, reading: ClockReading, stream: StreamDef, wanted: bool
    ) -> DerivationProgress | None:
        """Find out what is to be done for a derivation, if anything is."""
        derivation = self.find_derivation(version, stream)
        if derivation is None:
            return None
        clock = version.clock(stream.id)
        upto = self._derivations.target(version, reading, derivation)
        if upto <= clock.position:
            self._retries.clear(stream.id)
            return None
        soonest = self._next_expiration(version, derivation)
        patience = 0 if wanted else derivation.eager_expiration
        is_due = (
            soonest + patience <= upto
            or self._derivations.is_corrected(version, derivation)
            or self._brings_anything(version, derivation, clock, upto)
        )
        return DerivationProgress(derivation, clock, upto, is_due, min(upto, soonest - 1))

    def _brings_anything(
        self, version: Version, derivation: Derivation, clock: StreamClock, upto: int
    ) -> bool:
        """Whether there is anything in the instants after the position up to `upto`."""
        if clock.position < BEGINNING:
            return True
        for relation_id in derivation.relations:
            held = self._relations.read_rows(version, version.relations[relation_id])
            if held.changes_within(clock.position, upto):
                return True
        return any(
            segment.max_ts > clock.position and segment.min_ts <= upto
            for _, segments in sources(version, derivation)
            for segment in segments
        )

    def divide(
        self, version: Version, looks: Sequence[DerivationProgress]
    ) -> tuple[list[Runnable], dict[int, int]]:
        """What is to be advanced, and what has nothing new and is only to go on.

        Those that share a dataflow are advanced all, or none of them.

        Returns:
            The derivations to be advanced; and for each whose heartbeat is to be moved, by its id,
            the last instant it has all changes of.
        """
        due: list[Runnable] = []
        moved: dict[int, int] = {}
        companies: defaultdict[object, list[DerivationProgress]] = defaultdict(list)
        for look in looks:
            companies[(look.derivation.sharing_key, look.upto)].append(look)
        for members in companies.values():
            if any(look.is_due for look in members):
                due += [self._make_runnable(version, look) for look in members]
                continue
            is_quiet = all(look.quiet == look.upto for look in members)
            for look in members:
                id = look.derivation.id
                if look.derivation.must_record_position:
                    moved.update({id: look.upto} if is_quiet else {})
                else:
                    self._complete_upto[id] = max(
                        look.quiet, self._complete_upto.get(id, look.quiet)
                    )
                if is_quiet:
                    self._retries.clear(id)
        return due, moved

    def _make_runnable(self, version: Version, look: DerivationProgress) -> Runnable:
        derivation, clock = look.derivation, look.clock
        upto = step_end(version, derivation, clock, look.upto)
        return Runnable(derivation, clock, upto, self.complete_upto(version, derivation.stream))

    # -- time --------------------------------------------------------------------------------------

    def wait_seconds(self, version: Version, reading: ClockReading) -> float | None:
        """Seconds in which nothing can become due if nothing is committed; None for ever."""
        patience = self._retries.seconds_until_retry(version.streams)
        if patience is not None:
            patience = max(_TICK_SECONDS, patience)
        for stream in self._derivations.list_streams(version):
            derivation = self.find_derivation(version, stream)
            if derivation is None or not self._is_on_the_clock(version, derivation):
                continue
            due = self._next_expiration(version, derivation) + derivation.eager_expiration
            ahead = due - self._derivations.target(version, reading, derivation)
            wait = max(_TICK_SECONDS, ahead / 1e6)
            if derivation.must_record_position:
                wait = min(wait, HEARTBEAT_SECONDS)
            patience = wait if patience is None else min(patience, wait)
        return None if patience is None else min(patience, _LONGEST_SECONDS)

    @staticmethod
    def _is_on_the_clock(version: Version, derivation: Derivation) -> bool:
        """Whether what is final for a derivation depends on the clock, directly."""
        if not derivation.streams:  # the pond's present is final for it
            return bool(derivation.relations) and any(
                s.derived is None and s.timestamp_by is None for s in version.streams.values()
            )
        return any(
            s.derived is None and (s.timestamp_by is None or s.idle_after is not None)
            for i in derivation.streams
            if (s := version.streams.get(i)) is not None
        )

    def _next_expiration(self, version: Version, derivation: Derivation) -> int:
        """The first instant after a derivation's position at which it may change by itself."""
        if not derivation.moves_by_itself:
            return END
        position = version.clock(derivation.id).position
        states = [version.states.get(i) for i in sorted(derivation.streams)]
        known = self._next_expirations.get(derivation.id)
        if known is None or known[0] != position or any(map(is_not, known[1], states)):
            found = next_expiration(self._files, version, derivation.bound, position)
            known = self._next_expirations[derivation.id] = (position, states, found)
        return known[2]
