"""Which elements of a stream registered windows need, so that they are kept (SEMANTICS, section 5).

Maintenance asks after every batch, so the cost must not grow with the number of queries. What all
queries need together is computed again only when a query came or went, and then from what each page
of queries needs; what one text needs is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.model.time import BEGINNING, END
from millpond.model.windows import Now, Period, Range, Window
from millpond.planner.bind.bound_query import BoundQuery
from millpond.service.queries.registration import Registrar
from millpond.state.id_map import IdMap, PageSummaries
from millpond.state.version import Version


@dataclass(frozen=True, order=True)
class _WindowReach:
    """How far back windows reach: a length of time before NOW, and a fixed instant."""

    before_now: int = -1
    instant: int = END

    def and_also(self, other: _WindowReach) -> _WindowReach:
        return _WindowReach(
            max(self.before_now, other.before_now), min(self.instant, other.instant)
        )


_EVERYTHING = _WindowReach(instant=BEGINNING)


#: How far back windows reach, by the name of the stream in small letters.
_Reaches = dict[str, _WindowReach]


class WindowNeeds:
    """Knows what windows need; for use by one thread.

    Args:
        registrar: Binds queries.
        check: Called before each query that has to be bound; raises if the thread is to end.
    """

    def __init__(self, registrar: Registrar, check: Callable[[], None] = lambda: None) -> None:
        self._registrar = registrar
        self._check = check
        self._queries: IdMap[QueryDef] | None = None
        self._version = Version()
        self._of_text: dict[str, _Reaches] = {}
        self._kinds: dict[tuple[tuple[str, _WindowReach], ...], _Reaches] = {}
        self._of_page = PageSummaries[QueryDef, _Reaches](self._look_at_page)
        self._of_stream: _Reaches = {}

    def since(self, version: Version, stream: StreamDef, high: int) -> int:
        """The instant from which standing queries need the stream whose greatest timestamp is
        `high`; BEGINNING for everything."""
        if self._queries is not version.queries:
            self._look(version)
        reach = self._of_stream.get(stream.name.lower(), _WindowReach())
        return max(BEGINNING, min(high - reach.before_now, reach.instant))

    def _look(self, version: Version) -> None:
        if len(self._of_text) > 2 * len(version.queries) + 128:
            self._of_text.clear()
            self._kinds.clear()
        self._version = version
        self._of_stream = _widest(self._of_page.of(version.queries))
        self._queries, self._version = version.queries, Version()

    def _look_at_page(self, queries: Iterable[QueryDef]) -> _Reaches:
        return _widest(self._reaches_of(query) for query in queries)

    def _reaches_of(self, query: QueryDef) -> _Reaches:
        known = self._of_text.get(query.text)
        if known is None:
            self._check()
            bound = self._registrar.bind_or_suspend(query)
            known = _find_reaches(self._version, query, bound)
            if bound is not None:
                # Thousands of queries have few kinds of windows: each kind is held once.
                known = self._kinds.setdefault(tuple(sorted(known.items())), known)
                self._of_text[query.text] = known
        return known


def _widest(some: Iterable[_Reaches]) -> _Reaches:
    """What several need together."""
    together: _Reaches = {}
    for reaches in some:
        for name, reach in reaches.items():
            before = together.get(name)
            together[name] = reach if before is None else reach.and_also(before)
    return together


def list_holders(registrar: Registrar, version: Version, stream: StreamDef) -> list[str]:
    """The names of the queries whose windows need more of a stream than its RETAIN keeps.

    They reach back further than RETAIN does, or to an instant that stays where it is. No window of
    time is held against a number of rows, because it may have fewer.
    """
    retained = END if stream.retain is None else stream.retain
    found = []
    for query in version.queries.sort_values():
        if any(leaf.stream_id == stream.id for leaf in version.leaves(query.id)):
            reaches = _find_reaches(version, query, registrar.bind_or_suspend(query))
            reach = reaches.get(stream.name.lower(), _WindowReach())
            if reach.before_now > retained or reach.instant < END:
                found.append(query.name)
    return found


def _find_reaches(version: Version, query: QueryDef, bound: BoundQuery | None) -> _Reaches:
    """How far back a query's windows reach; `bound` is None if its text does not bind any more."""
    reaches: _Reaches = {}
    if bound is None:  # nobody knows what it needs, and it may bind again
        read = {leaf.stream_id for leaf in version.leaves(query.id)}
        return {s.name.lower(): _EVERYTHING for i in read if (s := version.streams.get(i))}
    for leaf in bound.streams:
        name = leaf.stream.lower()
        reaches[name] = _reach(leaf.window).and_also(reaches.get(name, _WindowReach()))
    return reaches


def _reach(window: Window) -> _WindowReach:
    match window:
        case Range(size, slide):
            return _WindowReach(before_now=size + (slide or 0))
        case Now():
            return _WindowReach(before_now=0)
        case Period(begin, _) if begin.instant is not None:
            return _WindowReach(instant=begin.instant)
        case Period(begin, _):
            return _WindowReach(before_now=-begin.at(0))
    return _EVERYTHING
