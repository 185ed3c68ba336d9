"""The refresher: the thread that keeps current answers current, an epoch at a time.

- `eager`: the answer is always kept.
- `auto`: it is kept while keeping it costs less than computing it for those who ask. Both are
  measured: how often the query is asked for between two epochs, how long an answer takes, and how
  long an epoch takes to be counted in. It begins to be kept where that saves half of the time, and
  ends where it takes twice as much, so that it does not go to and fro. Of a query that nobody has
  asked for or followed for an hour nothing is kept at all: it is descheduled, and its elements are
  not even matched until somebody asks. Whoever asks is answered at once, as a query is that was
  registered just now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.errors import MillpondError
from millpond.service.answers.invocation import Invoker
from millpond.service.answers.kept_groups import KeptAnswer
from millpond.service.background import Background
from millpond.service.events import Events
from millpond.service.ingest.floors import FloorsInFlight
from millpond.service.queries.prepared import PreparedQuery
from millpond.service.queries.registration import Registrar
from millpond.service.queries.weights import weight_of
from millpond.state.epoch_log import EpochLog
from millpond.state.id_map import IdMap, PageSummaries
from millpond.state.version import Version

log = logging.getLogger("millpond.refresher")

#: Seconds below which `auto` computes when asked.
_CHEAP_SECONDS = 0.001
#: How much the last epoch counts in how often a query is asked for.
_LATEST = 0.2
#: `auto` begins to keep an answer if that saves so many times what it costs, and ends below this.
_BEGINS, _ENDS = 2.0, 0.5
#: As long as nobody knows, to count an epoch in is taken to cost this part of an answer.
_GUESSED_COST = 0.5

#: After so many microseconds without a question an `auto` query is descheduled, and how often that
#: is looked at.
_IDLE, _LOOK = 3_600_000_000, 1_000_000

#: A query to keep: its definition, prepared, the streams it reads, and its NOW.
Wanted = tuple[QueryDef, PreparedQuery, Sequence[StreamDef], int]


def _choose_queries_to_refresh(queries: Iterable[QueryDef]) -> list[QueryDef]:
    return [q for q in queries if q.active and q.options.get("materialize") in ("eager", "auto")]


class Refresher(Background):
    """The thread that counts epochs into answers."""

    def __init__(
        self,
        epochs: EpochLog,
        registrar: Registrar,
        invoker: Invoker,
        floors: FloorsInFlight,
        events: Events,
        defers: Callable[[QueryDef], bool],
    ) -> None:
        super().__init__("refresher")
        self._defers = defers
        self._log = epochs
        self._registrar = registrar
        self._invoker = invoker
        self._floors = floors
        self._events = events
        self._queries: IdMap[QueryDef] | None = None
        self._wanted: list[QueryDef] = []
        self._by_page = PageSummaries[QueryDef, list[QueryDef]](_choose_queries_to_refresh)
        self._epoch = -1
        #: The clock when idle queries were last looked for.
        self._looked_at: int | None = None

    def work(self) -> None:
        self._schedule()
        with self._log.pin() as version:
            queries = self._list_queries(version)
            is_new, self._epoch = version.epoch != self._epoch, version.epoch
            wanted = []
            for query in queries:
                if self.stopping:
                    return
                if not self._defers(query) and self._is_to_be_kept(query, is_new):
                    found = self._prepare(version, query)
                    wanted += [] if found is None else [found]
            kept = self._invoker.kept_answers
            failures = kept.refresh(version, wanted, lambda: self.stopping)
        for query, error in failures:
            self._events.answer_failed(query, error)

    def _schedule(self) -> None:
        """Deschedule `auto` queries nobody asks for; schedule those again somebody asked for."""
        now = self._floors.capture().now
        if self._looked_at is not None and 0 <= now - self._looked_at < _LOOK:
            return
        self._looked_at = now
        version = self._log.version
        idle: list[QueryDef] = []
        asked: list[QueryDef] = []
        for query in self._list_queries(version):
            if query.options.get("materialize") != "auto":
                continue
            kept = self._invoker.kept_answers.of(query.id)
            if kept.asked_at is None:
                kept.asked_at = now
            is_idle = now - kept.asked_at >= _IDLE and version.change_log(query.id) is None
            if is_idle and _may_be_descheduled(version, query):
                kept.is_descheduled = True
                idle.append(query)
            elif not is_idle and kept.was_asked and (kept.is_descheduled or kept.is_new):
                kept.is_descheduled = kept.is_new = False
                if self._is_unmatched(query):
                    asked.append(query)
            kept.was_asked = False
        for queries, is_scheduled in ((idle, False), (asked, True)):
            if queries:
                self._registrar.schedule(queries, is_scheduled)

    def _is_unmatched(self, query: QueryDef) -> bool:
        """Whether a query has a predicate that is not matched as data comes."""
        try:
            found = self._registrar.prepare(query)
        except Exception:
            return False  # whoever asks for it is told why
        pairs = zip(found.factors, found.slots, strict=True)
        return any(factors is not None and slot is None for factors, slot in pairs)

    def _list_queries(self, version: Version) -> list[QueryDef]:
        """The queries whose answers are kept, the weightiest first."""
        queries = version.queries
        if self._queries is not queries:
            wanted = [query for own in self._by_page.of(queries) for query in own]
            self._wanted = sorted(wanted, key=lambda q: (-weight_of(q), q.id))
            kept = self._invoker.kept_answers
            kept.forget(kept.ids() - {q.id for q in wanted})
            self._queries = queries
        return self._wanted

    def _prepare(self, version: Version, query: QueryDef) -> Wanted | None:
        """Prepare a query to be kept; None if it has no answers, or cannot be prepared."""
        try:
            prepared = self._registrar.prepare(query)
            if prepared.bound.to_stream is not None or not prepared.kept:
                return None
            streams = [version.find(leaf.stream) for leaf in prepared.bound.streams]
            known = [s for s in streams if isinstance(s, StreamDef) and not s.is_pseudo]
            if len(known) < len(streams):
                return None
            now = self._find_instant(version, prepared, known)
        except MillpondError as error:
            self._events.answer_failed(query, error)
            return None
        except Exception as error:
            if not self.stopping:
                log.warning("computing ahead failed: %s", error, extra={"query": query.name})
            return None
        return query, prepared, known, now

    def _find_instant(
        self, version: Version, query: PreparedQuery, streams: Sequence[StreamDef]
    ) -> int:
        """The instant to keep an answer for: NOW, or, by the clock, that of the last element.

        By the clock NOW goes on, and who asks later counts out what has left meanwhile.
        """
        present = self._invoker.present
        now = present.now_of(version, query.bound, streams, self._floors.capture())
        if streams and all(s.on_system_time for s in streams):
            highs = [version.clock(s.id).high for s in streams]
            return min(now, max((h for h in highs if h is not None), default=now))
        return now

    def _is_to_be_kept(self, query: QueryDef, is_new_epoch: bool) -> bool:
        """Whether a query's answer is kept from this epoch on."""
        if query.options.get("materialize") == "eager":
            return True
        kept = self._invoker.kept_answers.of(query.id)
        if is_new_epoch:
            kept.asks += _LATEST * (kept.asked - kept.asks)
            kept.asked = 0
        kept.is_wanted = is_worth_keeping(kept)
        return kept.is_wanted

    def count_invocation(self, query: QueryDef) -> None:
        """A client asked for the answer."""
        if query.options.get("materialize") == "auto":
            kept = self._invoker.kept_answers.of(query.id)
            kept.asked += 1
            kept.asked_at = self._floors.capture().now
            kept.was_asked = True
            if kept.is_descheduled or kept.is_new:
                self._looked_at = None
                self.wake()


def _may_be_descheduled(version: Version, query: QueryDef) -> bool:
    """Whether a query is matched, and nothing else than its answers depends on that.

    A stream that sheds what nobody wants spares every element for a query that is not matched.
    """
    leaves = version.leaves(query.id)
    streams = [version.streams.get(leaf.stream_id) for leaf in leaves]
    sheds = any(stream is not None and stream.sheds for stream in streams)
    return not sheds and any(leaf.slot is not None for leaf in leaves)


def is_worth_keeping(kept: KeptAnswer) -> bool:
    """Whether it costs less to keep an `auto` query's answer than to compute it when asked for."""
    if kept.seconds_to_answer < _CHEAP_SECONDS:
        return False
    saved = kept.asks * kept.seconds_to_answer
    cost = kept.seconds or _GUESSED_COST * kept.seconds_to_answer
    return saved > cost * (_ENDS if kept.is_wanted else _BEGINS)
