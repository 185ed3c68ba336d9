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
        changes = self.log_of(followed)
        if (
            after is not None and after != OLDEST
        ):  # a wrong one is said before others are waited for
            self._reader.parse(changes, followed.name, after)
        if wait:
            self._advancer.catch_up([changes], _FETCH_SECONDS, expired=True)
            self.log_of(followed)  # it may have failed on the way
        return self._reader.read(changes, followed.name, after, limit)

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
        self.log_of(stream)

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

    def progress(self, query: QueryDef) -> dict[str, int | str] | None:
        """How far the changes of a query are computed; None while nobody has asked for them."""
        version = self._log.version
        log = version.change_log(query.id)
        if log is None:
            return None
        upto = format_instant(self._advancer.complete_upto(version, log))
        return {"newest": version.clock(log.id).next_seq, "up_to": upto}

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener`, from any thread, when there may be more; return what ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def notify(self) -> None:
        """Call all listeners: there may be more changes."""
        for listener in list(self._listeners):
            listener()

    def log_of(self, followed: QueryDef | StreamDef) -> StreamDef:
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
            trouble = self._advancer.trouble(found)
            if trouble is not None:
                raise MillpondError(
                    "POND-402",
                    f'the changes of query "{current.name}" are suspended',
                    detail="Its changes could not be computed: "
                    f"{trouble.detail or trouble.primary}",
                    hint="They are tried again by themselves, and at once by "
                    f"ALTER QUERY {current.name} SET (active = true). "
                    f"INVOKE {current.name} still answers.",
                )
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
        trouble = self._advancer.trouble(current)
        if trouble is not None:
            raise MillpondError(
                "POND-406",
                f'stream "{current.name}" has stopped',
                detail=f"{trouble.code}: {trouble.primary}. {trouble.detail or ''}".strip(),
                hint=f"It is tried again by itself, and at once by ALTER STREAM {current.name} "
                "SET (active = true). If its query can never be evaluated, DROP it.",
            )
        return current
