"""Subscriptions: FETCH, and reading changes as they come.

A reader asks for pages after a cursor. Between two pages, the pond keeps nothing about the reader,
so a reader that is slow, away for a week, or gone for good costs nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.time import format_instant
from millpond.model.unicode_text import check_unicode
from millpond.service.changes.advancer import Advancer
from millpond.service.changes.change_log import PAGE, ChangeReader
from millpond.service.changes.cursor import OLDEST
from millpond.service.changes.new_derivations import NewDerivations
from millpond.service.queries.prepared import check_answerable
from millpond.service.queries.registration import Registrar
from millpond.service.results import Change, Changes
from millpond.state.epoch_log import EpochLog

#: How long a FETCH waits for changes that are on their way.
_FETCH_SECONDS = 60.0


class Subscriptions:
    """Gives out the changes of queries and the elements of derived streams."""

    def __init__(
        self,
        log: EpochLog,
        registrar: Registrar,
        new_derivations: NewDerivations,
        advancer: Advancer,
        reader: ChangeReader,
    ) -> None:
        self._log = log
        self._registrar = registrar
        self._new_derivations = new_derivations
        self._advancer = advancer
        self._reader = reader
        self._listeners: set[Callable[[], None]] = set()

    def fetch(
        self,
        followed: QueryDef | StreamDef,
        after: str | int | None = None,
        limit: int | None = None,
        wait: bool = True,
    ) -> Changes:
        """The changes after a cursor that can be known now.

        Where the changes cannot be computed any further, a reader with a cursor gets those that
        were computed before, and the reason once there are no more of them.

        Args:
            followed: A standing query or a derived stream.
            after: The cursor; None for the first change, 'oldest' for the oldest kept.
            limit: How many at most.
            wait: Whether to wait until all final changes are computed; else give those that are.

        Raises:
            MillpondError: POND-402 for an inactive or suspended query, POND-412 for the cursor,
                CQL-216 for a stream that is not derived.
        """
        if isinstance(after, str):
            check_unicode(after, "a cursor", "POND-412")
        changes = self._find_log(followed)
        if after is None:
            self._check_goes_on(changes)
        elif after != OLDEST:  # a wrong one is said before others are waited for
            self._reader.parse(changes, followed.name, after)
        if wait and self._advancer.trouble(changes) is None:
            self._advancer.catch_up([changes], _FETCH_SECONDS, expired=True)
            changes = self._find_log(followed)
            if after is None:
                self._check_goes_on(changes)  # it may have failed on the way
        page = self._reader.read(changes, followed.name, after, limit)
        if not page.table.num_rows and page.position >= page.newest and page.redefined is None:
            self._check_goes_on(changes)
        return page

    def subscribe(
        self,
        followed: QueryDef | StreamDef,
        after: str | int | None = None,
        follow: bool = True,
    ) -> Iterator[Change]:
        """The changes after a cursor one by one; with `follow`, waiting for more for ever.

        Raises:
            MillpondError: as `fetch`, also on the way; CQL-201 once the query is dropped, and
                POND-410 once the pond is closed.
        """
        page = self.fetch(followed, after, PAGE, wait=not follow)
        while True:
            yield from page
            if page.position >= page.newest:
                if not follow:
                    return
                self._advancer.wait(functools.partial(self.has_more, followed.id, page.position))
            page = self.fetch(followed, page.cursor, PAGE, wait=False)

    def resume(self, stream: StreamDef) -> None:
        """Retry a stopped derived stream now; a stream that has not stopped goes on as before.

        Raises:
            MillpondError: POND-406, it still cannot be computed; CQL-216, it is not derived.
        """
        self._advancer.retry(stream)
        self._advancer.catch_up([stream], _FETCH_SECONDS)
        self._check_goes_on(self._find_log(stream))

    def has_more(self, id: int, position: int) -> bool:
        """Whether there is a change of a query or stream behind that number.

        Also true when there can be no more: then reading raises the reason.
        """
        version = self._log.version
        current = version.definition(id)
        log = version.change_log(id) if isinstance(current, QueryDef) else current
        return (
            not isinstance(log, StreamDef)
            or version.clock(log.id).next_seq != position
            or self._advancer.trouble(log) is not None
            or (isinstance(current, QueryDef) and not current.active)
        )

    def progress(self, query: QueryDef) -> dict[str, int | str | None] | None:
        """How far the changes of a query are computed; None while nobody has asked for them.

        `stopped` is why they go on no further, for those that have stopped.
        """
        version = self._log.version
        log = version.change_log(query.id)
        if log is None:
            return None
        upto = format_instant(self._advancer.complete_upto(version, log))
        newest = version.clock(log.id).next_seq
        return {"newest": newest, "up_to": upto, "stopped": self.find_stop(query)}

    def find_stop(self, query: QueryDef) -> str | None:
        """Why the changes of a query cannot be computed any further; None if they can."""
        log = self._log.version.change_log(query.id)
        trouble = None if log is None else self._advancer.trouble(log)
        return None if trouble is None else trouble.detail or trouble.primary

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener`, from any thread, when there may be more; return what ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def notify(self) -> None:
        """Call all listeners: there may be more changes."""
        for listener in list(self._listeners):
            listener()

    def _find_log(self, followed: QueryDef | StreamDef) -> StreamDef:
        """The change log of a query, made at the first call, or the derived stream itself.

        Raises:
            MillpondError: as `fetch`.
        """
        if self._advancer.stopping:
            raise MillpondError("POND-410", "the pond is closed")
        version = self._log.version
        current = version.definition(followed.id)
        if isinstance(current, QueryDef):
            check_answerable(current)
            found = version.change_log(current.id)
            if found is None:
                found = self._new_derivations.follow(current)
                self._advancer.wake()
            return found
        if not isinstance(current, StreamDef):
            kind = "query" if isinstance(followed, QueryDef) else "stream"
            raise MillpondError("CQL-201", f'no {kind} "{followed.name}" any more')
        if current.derived is None or followed.name.lower() != current.name.lower():
            raise MillpondError(
                "CQL-216",
                f'stream "{followed.name}" is not derived',
                detail="FETCH reads the changes of a query, or the elements of a derived stream.",
                hint=f"CREATE QUERY q AS ISTREAM(SELECT * FROM {followed.name}), and FETCH q.",
            )
        return current

    def _check_goes_on(self, log: StreamDef) -> None:
        """Raise POND-402 or POND-406 if the changes of a log cannot be computed any further."""
        trouble = self._advancer.trouble(log)
        if trouble is None:
            return
        query = self._log.version.query_of(log)
        before = "AFTER 'oldest' gives what was computed before."
        if query is not None:
            raise MillpondError(
                "POND-402",
                f'the changes of query "{query.name}" are suspended',
                detail=f"Its changes could not be computed: {trouble.detail or trouble.primary}",
                hint="They are tried again by themselves, and at once by "
                f"ALTER QUERY {query.name} SET (active = true). "
                f"FETCH {query.name} {before} INVOKE {query.name} still answers.",
            )
        raise MillpondError(
            "POND-406",
            f'stream "{log.name}" has stopped',
            detail=f"{trouble.code}: {trouble.primary}. {trouble.detail or ''}".strip(),
            hint=f"It is tried again by itself, and at once by ALTER STREAM {log.name} "
            f"SET (active = true). FETCH {log.name} {before} If its query can never be "
            "evaluated, DROP it.",
        )
