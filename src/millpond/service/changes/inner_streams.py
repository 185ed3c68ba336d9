"""Makes the streams that queries in FROM stand for, and drops those that nobody reads any more.

A query with such a subquery cannot be bound before its stream exists, so what binds it is tried
again when the stream has been made: `make_for(register)`. A stream is made from everything that is
kept on, and caught up with before anybody reads it, so that it does not matter when it was made. A
crash between making a stream and registering its first reader leaves a stream that the next start
drops.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from sqlglot import exp

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.model.windows import Unbounded
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.resolve.inner_streams import PREFIX, InnerStreamMissing
from millpond.planner.resolve.placement import find_set_call, has_aggregate
from millpond.service.changes.advancer import Advancer
from millpond.service.changes.derivation_reads import find_sources
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.derived_streams import derived_stream_query
from millpond.service.changes.new_derivations import NewDerivations
from millpond.service.queries.prepared import stream_of
from millpond.service.queries.registration import Registrar
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.epoch_log import EpochLog
from millpond.state.version import Version

_T = TypeVar("_T")

#: How long a new stream may take to hold what is kept, in seconds.
_CATCH_UP_SECONDS = 60.0


class InnerStreams:
    """The streams of a pond that subqueries stand for; safe to use from any thread."""

    def __init__(
        self,
        log: EpochLog,
        registrar: Registrar,
        derivations: Derivations,
        new_derivations: NewDerivations,
        advancer: Advancer,
    ) -> None:
        self._log = log
        self._registrar = registrar
        self._derivations = derivations
        self._new_derivations = new_derivations
        self._advancer = advancer
        #: Held while a stream is made and nobody reads it yet.
        self._lock = threading.RLock()

    def make_for(self, attempt: Callable[[], _T]) -> _T:
        """Call `attempt`, which binds a query; make the streams it misses, and call it again.

        Those that nothing registered reads are dropped afterwards.

        Raises:
            MillpondError: what the call raises; what makes a subquery no stream (CQL-222).
        """
        try:
            return attempt()
        except InnerStreamMissing as missing:
            first = missing
        with self._lock:
            try:
                return self._make_and_call(first, attempt)
            finally:
                self.drop_unread()

    def _make_and_call(self, missing: InnerStreamMissing, attempt: Callable[[], _T]) -> _T:
        while True:
            self._make(missing)
            try:
                return attempt()
            except InnerStreamMissing as another:
                missing = another

    def drop_unread(self) -> None:
        """Drop the streams that no query and no other derived stream or relation reads."""
        while self._find_unread():
            with self._lock, self._registrar.lock:
                unread = self._find_unread()
                if unread:
                    self._log.commit(EpochChange(kind="drop", drop=[s.id for s in unread]))

    def _find_unread(self) -> list[StreamDef]:
        return [
            stream
            for stream in self._log.version.named_streams()
            if stream.name.startswith(PREFIX)
            and stream.derived is not None
            and not self._registrar.users_of(stream)
        ]

    def _make(self, missing: InnerStreamMissing) -> None:
        text, epoch = missing.query, missing.text_epoch
        try:
            bound = self._registrar.bind(text, epoch)
        except InnerStreamMissing as inner:
            bound = self._make_and_call(inner, lambda: self._registrar.bind(text, epoch))
        if isinstance(self._log.version.find(missing.name), StreamDef):
            return  # another thread has made it meanwhile
        if bound.to_stream is None and selects_from_streams(bound):
            text = f"ISTREAM({text})"
            bound = replace(self._registrar.bind(text, epoch), to_stream="istream")
        try:
            bound = derived_stream_query(bound)
        except MillpondError as error:
            raise MillpondError(
                error.code,
                "a window or a sample stands behind a query that gives a relation",
                detail=error.detail,
                hint=error.hint,
                text=missing.text,
                span=missing.span,
            ) from error
        statement = f'CREATE STREAM "{missing.name}" AS {text}'
        retain = self._find_retain(bound)
        stream = self._new_derivations.create(missing.name, bound, text, statement, retain, epoch)
        self._advancer.wake()
        self._advancer.catch_up([stream], _CATCH_UP_SECONDS)

    def _find_retain(self, bound: BoundQuery, altered: StreamDef | None = None) -> int | None:
        """Find how long a stream's elements are kept: as long as those it is computed from.

        `altered` is a stream as it is going to be.
        """
        version = self._log.version
        lengths = [
            altered.retain if altered is not None and base.id == altered.id else base.retain
            for leaf in bound.streams
            for base in find_sources(self._derivations, version, stream_of(version, leaf))
        ]
        return max((n for n in lengths if n is not None), default=None) if all(lengths) else None

    def find_retained_otherwise(self, version: Version, altered: StreamDef) -> list[StreamDef]:
        """Find the streams whose elements are kept for another time once a stream is altered."""
        if altered.retain == version.streams[altered.id].retain:
            return []
        found = []
        for stream in version.named_streams():
            if stream.name.startswith(PREFIX) and stream.derived is not None:
                bound = self._registrar.bind(stream.derived.text, stream.derived.text_epoch)
                retain = self._find_retain(bound, altered)
                if retain != stream.retain:
                    found.append(replace(stream, retain=retain))
        return found


def selects_from_streams(bound: BoundQuery) -> bool:
    """Whether ISTREAM is implied: a query without aggregates over streams without windows.

    STREAM 2.2 implies it for every query without aggregates that has a stream in FROM. Here windows
    have rows leave, and which of the two is meant has to be said.
    """
    query = bound.tree
    if not isinstance(query, exp.Select) or not bound.streams:
        return False
    if any(
        query.args.get(k) for k in ("group", "having", "qualify", "distinct", "limit", "offset")
    ):
        return False
    if any(join.side or join.kind in ("SEMI", "ANTI") for join in query.args.get("joins") or []):
        return False
    if any(not isinstance(leaf.window, Unbounded) for leaf in bound.streams):
        return False
    if any(part is not query for part in query.find_all(exp.Query)):
        return False
    return not any(
        has_aggregate(item) or item.find(exp.Window) or find_set_call(item) is not None
        for item in query.expressions
    )
