"""The schedule: which derivations the advancer advances next, how far, and when to look again.

A derivation is due when one of its inputs has something new: elements, an update of a relation, or
an expiration. A derivation whose inputs have nothing new is not computed: the schedule notes the
instant up to which it has no changes. If other derivations or readers depend on that instant, the
advancer commits it as the heartbeat of the derivation's change log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import is_not

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.engine.dataflow.failures import to_millpond_error
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING, END
from millpond.service.answers.leaf_scan import Files
from millpond.service.changes.advance_jobs import Runnable, sources, step_end
from millpond.service.changes.derivation import Derivation
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.giving_way.memory_ladder import is_beyond_limit
from millpond.service.changes.next_expiration import next_expiration
from millpond.service.changes.progress import count_behind, find_step_end
from millpond.service.changes.retry import Retries
from millpond.service.changes.settled import Settled
from millpond.service.ingest.floors import ClockReading
from millpond.service.ingest.relations import Relations
from millpond.state.version import StreamClock, StreamState, Version

#: How long changes that come by the clock alone may wait.
_TICK_SECONDS = 0.2
#: How often heartbeats that others have to know go on with the clock while nothing happens.
HEARTBEAT_SECONDS = 1.0
_LONGEST_SECONDS = 3600.0
#: Before every position.
_NEVER = BEGINNING - 2
#: Steps over fewer elements are not made shorter; others by this divisor, if they are too much.
_SHORT_STEP = 64
_SHORTER = 8
#: Stands for the queries of a shared log, which all have the default weight.
_PLAIN = QueryDef(0, "", "", {}, 0, 0)


@dataclass(frozen=True)
class DerivationProgress:
    """How far a derivation is behind the last final instant of its inputs.

    Attributes:
        derivation: The derivation.
        clock: The clock of its change log, with its position.
        upto: The last instant that is final for it: it can be advanced up to there.
        is_due: Whether something is new for it, so that it must be advanced.
        quiet: If it is not due: the instant up to which it has no changes.
    """

    derivation: Derivation
    clock: StreamClock
    upto: int
    is_due: bool
    quiet: int

    @property
    def is_behind(self) -> bool:
        """Whether its position is before the last instant that is final for it."""
        return self.upto > self.clock.position


class Schedule:
    """Decides which derivations to advance, for the thread that advances them.

    `is_idle`, `find_derivation` and `complete_upto` may be called from any thread.

    Args:
        files: Opens segments.
        derivations: The derivations of the pond.
        relations: Reads the relations they use.
        retries: Derived streams that could not be advanced, and when each is retried.
        report_failure: Called with a derivation that cannot be planned and the error.
        defers: Whether the followers of a query wait, because there is too much to do.
    """

    def __init__(
        self,
        files: Files,
        derivations: Derivations,
        relations: Relations,
        retries: Retries,
        report_failure: Callable[[StreamDef, MillpondError], None],
        defers: Callable[[QueryDef], bool],
    ) -> None:
        self._defers = defers
        self._files = files
        self._derivations = derivations
        self._relations = relations
        self._retries = retries
        self._report_failure = report_failure
        #: Per derivation how far it is known that there is nothing new.
        self._complete_upto: dict[int, int] = {}
        #: Per derivation the state of its inputs for which its next moment was found, and that.
        self._next_expirations: dict[int, tuple[int, list[StreamState | None], int]] = {}
        #: Of derivations one of whose steps was too much: how many elements a step may have. Each
        #: time a derivation has caught up, it may have twice as many: what is too much makes its
        #: state be computed again.
        self._step_rows: dict[int, int] = {}
        #: The derivations that have nothing new; how often plans were made anew till then, and up
        #: to which weight queries were reduced.
        self._settled = Settled()
        self._plannings = (-1, 0.0)

    def is_idle(self, version: Version, stream: StreamDef) -> bool:
        """Whether a derivation is not advanced now: it is inactive, suspended, or backing off."""
        assert stream.derived is not None
        if self._retries.is_backing_off(stream.id):
            return True
        if stream.derived.query_id is None:
            return False
        query = version.query_of(stream)
        return query is None or not query.active

    def find_derivation(self, version: Version, stream: StreamDef) -> Derivation | None:
        """Find the derivation of a stream; None if it is idle, or cannot be planned."""
        if self.is_idle(version, stream):
            return None
        try:
            return self._derivations.of(version, stream)
        except Exception as error:
            self._report_failure(stream, to_millpond_error(error))
            return None

    def complete_upto(self, version: Version, stream: StreamDef) -> int:
        """The last instant up to which all of a derivation's changes are known to be committed."""
        if (shared := stream.shared_log) is not None:
            return max(version.clock(stream.id).position, self._known_upto(shared))
        return max(version.clock(stream.id).position, self._known_upto(stream.id))

    def _known_upto(self, stream_id: int) -> int:
        """How far it is known, beyond its position, that a derivation has nothing new."""
        # The group first: who leaves one is noted here before.
        settled = self._settled.find_upto(stream_id)
        known = self._complete_upto.get(stream_id, _NEVER)
        return known if settled is None else max(known, settled)

    def _note_complete(self, left: dict[int, int]) -> None:
        for id, upto in left.items():
            self._complete_upto[id] = max(upto, self._complete_upto.get(id, upto))

    def forget(self, stream_id: int) -> None:
        """Forget what is known of a derivation whose clock was set back."""
        self._settled.remove(stream_id)
        self._complete_upto.pop(stream_id, None)
        self._next_expirations.pop(stream_id, None)
        self._step_rows.pop(stream_id, None)

    def inspect_all(
        self,
        version: Version,
        reading: ClockReading,
        wanted: Collection[int] = (),
        stops: Callable[[], bool] = lambda: False,
    ) -> list[DerivationProgress]:
        """Inspect all derivations that may have something new (`Settled`).

        Derivations that share a dataflow with one that is due are inspected too: they may be
        advanced together with it.

        Args:
            version: Where they are inspected.
            reading: The clock.
            wanted: Ids of derivations whose changes somebody waits for.
            stops: Whether to return before all are inspected.
        """
        plannings = self._derivations.plannings, self._derivations.switches.weight
        if self._plannings != plannings:
            self._note_complete(self._settled.dissolve_all())
            self._plannings = plannings
        self._note_complete(
            self._settled.refresh(version, lambda d: self._derivations.target(version, reading, d))
        )
        streams = self._derivations.list_streams(version)
        looks: list[DerivationProgress] = []
        others = self._settled.list_others(streams, wanted)
        self._note_complete(self._settled.release(others))
        while others:
            for stream in others:
                if stops():
                    return looks
                look = self._look(version, reading, stream, stream.id in wanted)
                looks += [] if look is None else [look]
            due = {look.derivation.sharing_key for look in looks if look.is_due}
            left = self._settled.dissolve_sharing(due)
            self._note_complete(left)
            others = [s for id in left if (s := version.streams.get(id)) and id not in wanted]
        for look in looks:
            derivation = look.derivation
            if derivation.sharing_key not in due and self._retries.get(derivation.id) is None:
                self._settled.settle(version, derivation, look.upto, self._until(version, look))
        return [look for look in looks if look.is_behind]

    def _until(self, version: Version, look: DerivationProgress) -> int:
        """The first instant at which a derivation that is not due may be due by itself."""
        if look.is_behind or self._is_on_the_clock(version, look.derivation):
            return self._next_expiration(version, look.derivation)
        return look.clock.position + 1

    def inspect(
        self, version: Version, reading: ClockReading, stream: StreamDef, wanted: bool
    ) -> DerivationProgress | None:
        """Find how far a derivation can be advanced and whether it is due; None if up to date."""
        look = self._look(version, reading, stream, wanted)
        return look if look is not None and look.is_behind else None

    def _look(
        self, version: Version, reading: ClockReading, stream: StreamDef, wanted: bool
    ) -> DerivationProgress | None:
        """Look at a derivation; None if it is not advanced now."""
        query = version.query_of(stream) if stream.is_change_log else None
        if stream.is_shared_log:
            query = _PLAIN
        if query is not None and self._defers(query):
            return None
        derivation = self.find_derivation(version, stream)
        if derivation is None:
            return None
        clock = version.clock(stream.id)
        upto = self._derivations.target(version, reading, derivation)
        if upto <= clock.position:
            self._retries.clear(stream.id)
            return DerivationProgress(derivation, clock, upto, False, upto)
        switched, decided = self._derivations.switches.find(version, derivation)
        derivation, upto = switched or derivation, min(upto, decided)
        soonest = self._next_expiration(version, derivation)
        patience = 0 if wanted else derivation.eager_expiration
        is_due = (
            switched is not None
            or soonest + patience <= upto
            or self._derivations.is_corrected(version, derivation)
            or self._brings_anything(version, derivation, clock, upto)
        )
        return DerivationProgress(derivation, clock, upto, is_due, min(upto, soonest - 1))

    def _brings_anything(
        self, version: Version, derivation: Derivation, clock: StreamClock, upto: int
    ) -> bool:
        """Whether any input has something new in the instants after the position up to `upto`."""
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
        """Divide derivations into those to advance and those whose heartbeat only moves.

        Derivations that share a dataflow are advanced all together, or none of them.

        Returns:
            The derivations to advance; and by id, for each derivation whose heartbeat moves, the
            last instant up to which it has all changes.
        """
        due: list[Runnable] = []
        moved: dict[int, int] = {}
        sharing: defaultdict[object, list[DerivationProgress]] = defaultdict(list)
        for look in looks:
            sharing[(look.derivation.sharing_key, look.upto)].append(look)
        for members in sharing.values():
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
        most = self._step_rows.get(derivation.id)
        if most is not None:
            upto = find_step_end(self._files, version, derivation, clock.position, upto, most)
            if upto == look.upto:  # all that was too much at once is done but this
                self._step_rows[derivation.id] = 2 * most
        if upto < look.upto:
            upto = min(derivation.end_step(upto), look.upto)
        return Runnable(derivation, clock, upto, self.complete_upto(version, derivation.stream))

    def shorten_step(self, version: Version, item: Runnable, error: MillpondError) -> bool:
        """Have a derivation go on in shorter steps, where one was too much at once.

        An operator that does more in a step than it may (POND-405) can do it in several: so a
        derivation that is far behind catches up with what it could do as elements came.

        Returns:
            False if that is not why the step failed, or the step was short already.
        """
        if error.code != "POND-405" or is_beyond_limit(error):
            return False
        position = item.clock.position
        rows = count_behind(self._files, version, item.derivation, position, item.upto)
        if rows < _SHORT_STEP:
            return False
        self._step_rows[item.derivation.id] = rows // _SHORTER
        return True

    # -- time --------------------------------------------------------------------------------------

    def wait_seconds(self, version: Version, reading: ClockReading) -> float | None:
        """Seconds in which no derivation becomes due without a commit; None: for ever."""
        patience = self._retries.seconds_until_retry(version.streams)
        if patience is not None:
            patience = max(_TICK_SECONDS, patience)
        nexts = [(group.example, group.soonest) for group in self._settled.groups()]
        for stream in self._settled.list_others(self._derivations.list_streams(version)):
            derivation = self.find_derivation(version, stream)
            if derivation is not None and self._is_on_the_clock(version, derivation):
                due = self._next_expiration(version, derivation) + derivation.eager_expiration
                nexts.append((derivation, due))
        for derivation, due in nexts:
            if not self._is_on_the_clock(version, derivation):
                continue
            target = self._derivations.target(version, reading, derivation)
            wait = max(_TICK_SECONDS, (due - target) / 1e6)
            if self._brings_more(version, derivation, target):
                wait = min(wait, self._seconds_until_idle(version, reading, derivation))
            if derivation.must_record_position:
                wait = min(wait, HEARTBEAT_SECONDS)
            patience = wait if patience is None else min(patience, wait)
        return None if patience is None else min(patience, _LONGEST_SECONDS)

    @staticmethod
    def _brings_more(version: Version, derivation: Derivation, target: int) -> bool:
        """Whether elements are there that become final after the last final instant."""
        return any(
            segment.max_ts > target
            for _, segments in sources(version, derivation)
            for segment in segments
        )

    @staticmethod
    def _seconds_until_idle(
        version: Version, reading: ClockReading, derivation: Derivation
    ) -> float:
        """Seconds until the clock may make a stream's last elements final: when it is idle."""
        moments = []
        for stream in map(version.streams.get, derivation.streams):
            if stream is None:
                continue
            attended = reading.idle.of(stream)
            arrived_at = attended.moves(version.clock(stream.id).arrived_at or reading.now)
            moments.append(arrived_at + (stream.idle_after or 0))
            if reading.now - attended.upto > HEARTBEAT_SECONDS * 1e6:  # nobody reads its source
                moments[-1] = max(moments[-1], reading.now + int(HEARTBEAT_SECONDS * 1e6))
        soonest = min(moments, default=reading.now)
        return max(_TICK_SECONDS, (soonest - reading.now) / 1e6)

    @staticmethod
    def _is_on_the_clock(version: Version, derivation: Derivation) -> bool:
        """Whether the last final instant of a derivation depends directly on the clock."""
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
