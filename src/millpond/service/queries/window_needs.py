"""Which elements of a stream registered windows need, so that they are kept (SEMANTICS, section 5).

Maintenance asks after every batch, so the cost must not grow with the number of queries. What all
queries need together is computed again only when a query came or went; what one query needs is
computed once.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.model.time import BEGINNING, END
from millpond.model.windows import Now, Period, Range, Window
from millpond.service.queries.registration import Registrar, is_unbound
from millpond.state.id_map import IdMap
from millpond.state.version import Version


@dataclass(frozen=True)
class _WindowReach:
    """How far back windows reach: a length of time before NOW, and a fixed instant."""

    before_now: int = -1
    instant: int = END

    def and_also(self, other: _WindowReach) -> _WindowReach:
        return _WindowReach(
            max(self.before_now, other.before_now), min(self.instant, other.instant)
        )


_EVERYTHING = _WindowReach(instant=BEGINNING)


class WindowNeeds:
    """Knows what windows need; for use by one thread."""

    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar
        self._queries: IdMap[QueryDef] | None = None
        self._of_query: dict[int, dict[str, _WindowReach]] = {}
        self._of_stream: dict[str, _WindowReach] = {}

    def since(self, version: Version, stream: StreamDef, high: int) -> int:
        """The instant from which standing queries need the stream whose greatest timestamp is
        `high`; BEGINNING for everything."""
        if self._queries is not version.queries:
            self._look(version)
        reach = self._of_stream.get(stream.name.lower(), _WindowReach())
        return max(BEGINNING, min(high - reach.before_now, reach.instant))

    def _look(self, version: Version) -> None:
        known, self._of_query = self._of_query, {}
        self._of_stream = {}
        for query in version.queries.sort_values():
            own = known.get(query.id)
            if own is None:
                own = _find_reaches(self._registrar, version, query)
            if not is_unbound(query):
                self._of_query[query.id] = own
            for name, reach in own.items():
                self._of_stream[name] = reach.and_also(self._of_stream.get(name, _WindowReach()))
        self._queries = version.queries


def list_holders(registrar: Registrar, version: Version, stream: StreamDef) -> list[str]:
    """The names of the queries whose windows need more of a stream than its RETAIN keeps.

    They reach back further than RETAIN does, or to an instant that stays where it is. No window of
    time is held against a number of rows, because it may have fewer.
    """
    retained = END if stream.retain is None else stream.retain
    found = []
    for query in version.queries.sort_values():
        if any(leaf.stream_id == stream.id for leaf in version.leaves(query.id)):
            reaches = _find_reaches(registrar, version, query)
            reach = reaches.get(stream.name.lower(), _WindowReach())
            if reach.before_now > retained or reach.instant < END:
                found.append(query.name)
    return found


def _find_reaches(
    registrar: Registrar, version: Version, query: QueryDef
) -> dict[str, _WindowReach]:
    """How far back a query's windows reach, by the name of the stream in small letters."""
    reaches: dict[str, _WindowReach] = {}
    bound = registrar.bind_or_suspend(query)
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
