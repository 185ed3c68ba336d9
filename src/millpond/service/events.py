"""The two ports through which parts of a pond reach parts that are put together after them.

`Events` is what happens: the part in which something happens calls the method, and `EventHandlers`
(`event_handlers.py`) is the one implementation, whose methods name everybody who acts on it. So
from an epoch's commit to the follower that is woken, each step is a call that a reader can go to;
the last calls the listeners that clients of `Subscriptions` added (`api/subscribers.py`, sinks).

`FollowerNeeds` is what the parts below derivations have to know of those who follow changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from millpond.catalog.objects import QueryDef, RelationDef, StreamDef
from millpond.errors import MillpondError
from millpond.planner.bind.bound_query import BoundQuery
from millpond.runtime.batch_tasks import BuiltSegment
from millpond.state.version import MatchRef, Version


@dataclass(frozen=True)
class EpochTimes:
    """When an epoch was begun to be made and when its tasks had ended, ns since 1970."""

    began: int
    built: int


class Events(Protocol):
    """What happens inside a pond; every method may be called from any thread."""

    def batch_committed(
        self, version: Version, built: Sequence[BuiltSegment], times: EpochTimes
    ) -> None:
        """A batch became an epoch.

        Args:
            version: The version the epoch made.
            built: The segments of elements and of rejects it added.
            times: How long that took.
        """
        ...

    def derivations_advanced(
        self, version: Version, built: Sequence[BuiltSegment], times: EpochTimes
    ) -> None:
        """Changes of derivations, and how far they have come, became an epoch."""
        ...

    def advancer_progressed(self) -> None:
        """The advancer finished a round or stopped: followers may have something to read."""
        ...

    def definitions_changed(self) -> None:
        """Queries, streams or relations came, changed or went."""
        ...

    def follow_requested(self, queries: Sequence[QueryDef]) -> None:
        """Somebody registered or altered queries with `follow`; the registrar's lock is held."""
        ...

    def system_stream_grew(self) -> None:
        """A stream of the pond's own has new elements."""
        ...

    def query_activated(self, changes: StreamDef) -> None:
        """Somebody activated a followed query; `changes` is its change log."""
        ...

    def clock_reset(self, stream: StreamDef, rejected: int) -> None:
        """The clock of a stream was set back, which made so many elements rejects."""
        ...

    def runtime_changed(self, reason: MillpondError | None) -> None:
        """The runtime cannot run tasks, and why; None: it can again."""
        ...

    def source_read(self, stream: StreamDef, rows: int) -> None:
        """A bounded source was read to its end; `rows` elements in all."""
        ...

    def query_invoked(self, query: QueryDef, seconds: float) -> None:
        """A client was given the answer to a standing query."""
        ...

    def answer_failed(self, query: QueryDef, error: MillpondError) -> None:
        """The answer to a standing query could not be computed."""
        ...

    def derivation_waits(self, stream: StreamDef, error: MillpondError) -> None:
        """The changes of a derivation cannot begin yet, because its answer cannot be computed."""

    def derivation_failed(self, stream: StreamDef, error: MillpondError) -> None:
        """The changes of a query, or the elements of a derived stream, could not be computed."""
        ...

    def matches_torn(self, matches: MatchRef) -> None:
        """A file of stored matches is corrupt or missing."""
        ...

    def file_damaged(self, error: MillpondError) -> None:
        """A file of the store is corrupt or missing (STORE-602)."""
        ...

    def files_collected(self, paths: list[str]) -> None:
        """Files that no version refers to any more were removed."""
        ...


@contextmanager
def noting_damage(events: Events) -> Iterator[None]:
    """Report a damaged file (STORE-602) that reading finds, and raise the error on."""
    try:
        yield
    except MillpondError as error:
        if error.code == "STORE-602":
            events.file_damaged(error)
        raise


class FollowerNeeds(Protocol):
    """What those who follow changes have been given, and what they still need."""

    def sources_of(self, version: Version, stream: StreamDef) -> Sequence[StreamDef]:
        """The streams a derived stream comes from, however far below; another stream itself."""
        ...

    def reach_below(
        self, version: Version, stream: StreamDef, at: int
    ) -> Sequence[tuple[StreamDef, int | None]]:
        """The streams a derived stream reads, each with the least timestamp of an element that its
        elements after `at` depend on (None: every element)."""
        ...

    def read_finality(self) -> Callable[[BoundQuery], int]:
        """Read the clock and the heartbeats; return what tells a query's last final instant."""
        ...

    def needed_since(self, version: Version, stream: StreamDef) -> int:
        """The timestamp from which derivations still need a stream; END if none does."""
        ...

    def find_gap(self, version: Version, stream: StreamDef, at: int) -> MillpondError | None:
        """POND-406 if a derived stream lacks elements up to `at` because it, or one below it,
        has stopped."""
        ...

    def oldest_epoch_needed_of(self, relation_id: int) -> int:
        """The oldest epoch as of which some derivation still has to read a relation."""
        ...

    def check_instant(self, version: Version, relation: RelationDef, at: int) -> None:
        """Raise POND-413 where a non-retroactive relation must not be updated at an instant."""
        ...
