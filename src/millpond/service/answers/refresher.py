"""The refresher: the thread that keeps current answers current, an epoch at a time.

- `eager`: the answer is always kept.
- `auto`: it is kept while keeping it costs less than computing it for those who ask. Both are
  measured: how often the query is asked for between two epochs, how long an answer takes, and how
  long an epoch takes to be counted in. It begins to be kept where that saves half of the time, and
  ends where it takes twice as much, so that it does not go to and fro.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.errors import MillpondError
from millpond.service.answers.invocation import Invoker
from millpond.service.answers.kept_answers import KeptAnswer
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

    def work(self) -> None:
        with self._log.pin() as version:
            queries = self._list_queries(version)
            is_new, self._epoch = version.epoch != self._epoch, version.epoch
            wanted = []
            for query in queries:
                if self._stopping:
                    return
                if not self._defers(query) and self._is_to_be_kept(query, is_new):
                    found = self._prepare(version, query)
                    wanted += [] if found is None else [found]
            kept = self._invoker.kept_answers
            failures = kept.refresh(version, wanted, lambda: self._stopping)
        for query, error in failures:
            self._events.answer_failed(query, error)

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
            if not self._stopping:
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
            self._invoker.kept_answers.of(query.id).asked += 1


def is_worth_keeping(kept: KeptAnswer) -> bool:
    """Whether it costs less to keep an `auto` query's answer than to compute it when asked for."""
    if kept.seconds_to_answer < _CHEAP_SECONDS:
        return False
    saved = kept.asks * kept.seconds_to_answer
    cost = kept.seconds or _GUESSED_COST * kept.seconds_to_answer
    return saved > cost * (_ENDS if kept.is_wanted else _BEGINS)
