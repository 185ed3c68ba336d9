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
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING, END
from millpond.service.answers.leaf_scan import Files
from millpond.service.changes.advance_jobs import Due, sources, step_end
from millpond.service.changes.derivations import Derivation, Derivations
from millpond.service.changes.next_expiration import next_moment
from millpond.service.changes.retry import Stoppages
from millpond.service.ingest.floors import Moment
from millpond.service.ingest.relations import Relations
from millpond.state.version import StreamClock, StreamState, Version

#: How long changes that come by the clock alone may wait.
_TICK_SECONDS = 0.2
#: How often heartbeats that others have to know go on with the clock while nothing happens.
HEARTBEAT_SECONDS = 1.0
_LONGEST_SECONDS = 3600.0


@dataclass(frozen=True)
class Look:
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


class Agenda:
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
        stoppages: Stoppages,
        blame: Callable[[StreamDef, MillpondError], None],
    ) -> None:
        self._files = files
        self._derivations = derivations
        self._relations = relations
        self._stoppages = stoppages
        self._blame = blame
        #: Per derivation how far it is known that there is nothing new.
        self._reached: dict[int, int] = {}
        #: Per derivation the state of its inputs for which its next moment was found, and that.
        self._moments: dict[int, tuple[int, list[StreamState | None], int]] = {}

    def idles(self, version: Version, stream: StreamDef) -> bool:
        """Whether a derivation is not to be advanced: its query is inactive or suspended."""
        assert stream.derived is not None
        if stream.derived.query_id is None:
            return self._stoppages.rests(stream.id)
        query = version.query_of(stream)
        return query is None or not query.active

    def planned(self, version: Version, stream: StreamDef) -> Derivation | None:
        """A derivation that is to be advanced; None if it is not, or cannot be."""
        if self.idles(version, stream):
            return None
        try:
            return self._derivations.of(version, stream)
        except MillpondError as error:
            self._blame(stream, error)
            return None

    def reached(self, version: Version, stream: StreamDef) -> int:
        """The last instant up to which all of a derivation's changes are known to be there."""
        position = version.clock(stream.id).position
        return max(position, self._reached.get(stream.id, position))

    def look(
        self, version: Version, moment: Moment, stream: StreamDef, wanted: bool
    ) -> Look | None:
        """Find out what is to be done for a derivation, if anything is."""
        derivation = self.planned(version, stream)
        if derivation is None:
            return None
        clock = version.clock(stream.id)
        upto = self._derivations.target(version, moment, derivation)
        if upto <= clock.position:
            self._stoppages.clear(stream.id)
            return None
        soonest = self._next_moment(version, derivation)
        patience = 0 if wanted else derivation.eager_expiration
        is_due = (
            soonest + patience <= upto
            or self._derivations.is_corrected(version, derivation)
            or self._brings_anything(version, derivation, clock, upto)
        )
        return Look(derivation, clock, upto, is_due, min(upto, soonest - 1))

    def _brings_anything(
        self, version: Version, derivation: Derivation, clock: StreamClock, upto: int
    ) -> bool:
        """Whether there is anything in the instants after the position up to `upto`."""
        if clock.position < BEGINNING:
            return True
        for relation_id in derivation.relations:
            held = self._relations.held(version, version.relations[relation_id])
            if held.changes_within(clock.position, upto):
                return True
        return any(
            segment.max_ts > clock.position and segment.min_ts <= upto
            for _, segments in sources(version, derivation)
            for segment in segments
        )

    def sorted(self, version: Version, looks: Sequence[Look]) -> tuple[list[Due], dict[int, int]]:
        """What is to be advanced, and what has nothing new and is only to go on.

        Those that share a dataflow are advanced all, or none of them.

        Returns:
            The derivations to be advanced; and for each whose heartbeat is to be moved, by its id,
            the last instant it has all changes of.
        """
        due: list[Due] = []
        moved: dict[int, int] = {}
        companies: defaultdict[object, list[Look]] = defaultdict(list)
        for look in looks:
            companies[(look.derivation.company, look.upto)].append(look)
        for members in companies.values():
            if any(look.is_due for look in members):
                due += [self._due(version, look) for look in members]
                continue
            is_quiet = all(look.quiet == look.upto for look in members)
            for look in members:
                id = look.derivation.id
                if look.derivation.must_tell:
                    moved.update({id: look.upto} if is_quiet else {})
                else:
                    self._reached[id] = max(look.quiet, self._reached.get(id, look.quiet))
                if is_quiet:
                    self._stoppages.clear(id)
        return due, moved

    def _due(self, version: Version, look: Look) -> Due:
        derivation, clock = look.derivation, look.clock
        upto = step_end(version, derivation, clock, look.upto)
        return Due(derivation, clock, upto, self.reached(version, derivation.stream))

    # -- time --------------------------------------------------------------------------------------

    def patience(self, version: Version, moment: Moment) -> float | None:
        """Seconds in which nothing can become due if nothing is committed; None for ever."""
        patience = self._stoppages.patience(version.streams)
        if patience is not None:
            patience = max(_TICK_SECONDS, patience)
        for stream in self._derivations.all(version):
            derivation = self.planned(version, stream)
            if derivation is None or not self._is_on_the_clock(version, derivation):
                continue
            due = self._next_moment(version, derivation) + derivation.eager_expiration
            ahead = due - self._derivations.target(version, moment, derivation)
            wait = max(_TICK_SECONDS, ahead / 1e6)
            if derivation.must_tell:
                wait = min(wait, HEARTBEAT_SECONDS)
            patience = wait if patience is None else min(patience, wait)
        return None if patience is None else min(patience, _LONGEST_SECONDS)

    @staticmethod
    def _is_on_the_clock(version: Version, derivation: Derivation) -> bool:
        """Whether what is final for a derivation depends on the clock, directly."""
        return any(
            s.derived is None and (s.timestamp_by is None or s.idle_after is not None)
            for i in derivation.streams
            if (s := version.streams.get(i)) is not None
        )

    def _next_moment(self, version: Version, derivation: Derivation) -> int:
        """The first instant after a derivation's position at which it may change by itself."""
        if not derivation.moves_by_itself:
            return END
        position = version.clock(derivation.id).position
        states = [version.states.get(i) for i in sorted(derivation.streams)]
        known = self._moments.get(derivation.id)
        if known is None or known[0] != position or any(map(is_not, known[1], states)):
            found = next_moment(self._files, version, derivation.bound, position)
            known = self._moments[derivation.id] = (position, states, found)
        return known[2]
