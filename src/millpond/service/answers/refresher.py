"""The refresher: the thread that computes answers before they are asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.errors import MillpondError
from millpond.service.answers.answer_cache import inputs_of, is_timeless
from millpond.service.answers.invocation import Invoker
from millpond.service.background import Background
from millpond.service.events import Events
from millpond.service.queries.prepared import PreparedQuery
from millpond.service.queries.registration import Registrar
from millpond.service.queries.weights import weight_of
from millpond.state.epoch_log import EpochLog
from millpond.state.id_map import IdMap, PageSummaries

log = logging.getLogger("millpond.refresher")

#: Seconds below which `auto` computes when asked.
_CHEAP_SECONDS = 0.001
#: Answers computed ahead that `auto` may still owe to past invocations.
_MOST_CREDIT = 8


def _choose_queries_to_refresh(queries: Iterable[QueryDef]) -> list[QueryDef]:
    return [q for q in queries if q.active and q.options.get("materialize") in ("eager", "auto")]


class Refresher(Background):
    """The thread that computes ahead."""

    def __init__(
        self,
        epochs: EpochLog,
        registrar: Registrar,
        invoker: Invoker,
        events: Events,
        defers: Callable[[QueryDef], bool],
    ) -> None:
        super().__init__("refresher")
        self._defers = defers
        self._log = epochs
        self._registrar = registrar
        self._invoker = invoker
        self._events = events
        self._queries: IdMap[QueryDef] | None = None
        self._wanted: list[QueryDef] = []
        self._by_page = PageSummaries[QueryDef, list[QueryDef]](_choose_queries_to_refresh)

    def work(self) -> None:
        for query in self._list_queries():
            if self._stopping:
                return
            if not self._defers(query):
                self._refresh(query)

    def _list_queries(self) -> list[QueryDef]:
        """The queries whose answers are kept, the weightiest first."""
        queries = self._log.version.queries
        if self._queries is not queries:
            wanted = [query for own in self._by_page.of(queries) for query in own]
            self._wanted = sorted(wanted, key=lambda q: (-weight_of(q), q.id))
            self._invoker.answer_cache.forget(
                self._invoker.answer_cache.ids() - {q.id for q in wanted}
            )
            self._queries = queries
        return self._wanted

    def _refresh(self, query: QueryDef) -> None:
        try:
            prepared = self._registrar.prepare(query)
            if prepared.bound.to_stream is None and self._should_compute(query, prepared):
                self._invoker.invoke(prepared)
        except MillpondError as error:
            self._events.answer_failed(query, error)
        except Exception as error:
            if not self._stopping:
                log.warning("computing ahead failed: %s", error, extra={"query": query.name})

    def _should_compute(self, query: QueryDef, prepared: PreparedQuery) -> bool:
        """Whether to compute an answer ahead: a client will likely ask, and it is not cached."""
        version = self._log.version
        streams = [version.find(leaf.stream) for leaf in prepared.bound.streams]
        known = [s for s in streams if isinstance(s, StreamDef)]
        if len(known) < len(streams):
            return False
        if not is_timeless(prepared.bound) and not any(s.timestamp_by for s in known):
            return False  # by the clock: it would be old when it is there
        kept = self._invoker.answer_cache.of(query.id)
        with kept.lock:
            inputs = inputs_of(version, prepared.bound, known)
            if kept.inputs is not None and kept.inputs.is_same_as(inputs):
                return False
            if query.options.get("materialize") == "auto":
                if kept.seconds < _CHEAP_SECONDS or kept.credit < 1:
                    kept.inputs = kept.table = None
                    return False
                kept.credit -= 1
            return True

    def count_invocation(self, query: QueryDef) -> None:
        """A client asked for the answer."""
        if query.options.get("materialize") == "auto":
            kept = self._invoker.answer_cache.of(query.id)
            with kept.lock:
                kept.credit = min(kept.credit + 1, _MOST_CREDIT)
