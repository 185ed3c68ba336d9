"""Feeds: the changes of many queries through one reader, with one cursor.

A feed reads the change logs of all queries of a selection. It holds one place for each query and no
change: what a slow reader has not read stays in the change logs. The queries' changes come in the
order of their instants as far as they are known when the feed is read; those of one query always
do. Changes of one epoch come together.

INV-FEED-1: of each query, the changes that a feed gives after a cursor are those that FETCH gives
behind the ones the cursor's reader was given, wherever the feed was cut.

What a feed knows of a query is an instant: every change up to there was given. This is true for
ever, because a derivation never makes a change at an instant it is complete up to. So a cursor
needs no number of each query, and many queries share one instant (`feed_cursor.py`).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING, LAST, format_instant
from millpond.service.changes.advancer import Advancer
from millpond.service.changes.change_log import ChangeReader
from millpond.service.changes.cursor import OLDEST
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.feed_cursor import (
    BEFORE_ALL,
    Places,
    Run,
    Streams,
    find_run,
    parse_feed_cursor,
    write_feed_cursor,
    write_group,
)
from millpond.service.queries.query_directory import QueryDirectory, QuerySelection, state_of
from millpond.service.results import Answer, Change, Changes
from millpond.state.epoch_log import EpochLog
from millpond.state.version import Version

#: Events of a page, about, unless asked otherwise.
FEED_PAGE = 1_000
#: The fewest changes of a query that are read at a time.
_LEAST_READ = 16


@dataclass(frozen=True)
class FeedEvent:
    """An event of a feed.

    Attributes:
        kind: 'change'; 'mark' (how far the changes are complete); 'came', 'ended', 'altered',
            'suspended', 'resumed', 'trimmed' (what happened to a query); 'answer' (of a snapshot);
            'note' (what a reader should know).
        cursor: Where to read on after this event; None within a snapshot, which has no cursor
            before its mark.
        query: The name of the query it is about; None if it is about the feed.
        id: The query's id.
        facts: What else is to be said of it, as JSON values; nothing of a change or an answer.
        changes: The page the change was read with.
        index: The row of the page.
        answer: The answer, of an event of kind 'answer'.
        given: The change, if the event came from a server; its values are those JSON has.
    """

    kind: str
    cursor: str | None
    query: str | None = None
    id: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    changes: Changes | None = None
    index: int = 0
    answer: Answer | None = None
    given: Change | None = None

    @property
    def change(self) -> Change:
        """The change of an event of kind 'change'.

        Its cursor is that of the query's own FETCH; of an event of a server, the feed's.
        """
        if self.given is not None:
            return self.given
        assert self.changes is not None
        table = self.changes.table.slice(self.index, 1)
        (found,) = Changes(table, self.changes.query, self.changes.cursor, 0, 0, self.changes.loss)
        return found


@dataclass
class _Member:
    """A query of a feed, and how far its changes were given.

    Attributes:
        query: The query as the feed knows it.
        state: Its state: 'active', 'inactive' or 'suspended'.
        log: Its change log; None while it has none.
        streams: Ids of the streams it reads.
        number: The number of the last change given.
        given: The instant up to which every change was given.
        is_inside: Whether some changes of the instant after `given` were given too.
        complete: The instant up to which the feed may give changes now.
    """

    query: QueryDef
    state: str
    log: StreamDef | None = None
    streams: Streams = ()
    number: int = 0
    given: int = BEFORE_ALL
    is_inside: bool = False
    complete: int = BEFORE_ALL


@dataclass(frozen=True)
class _Found:
    """The changes that are there to be given, in order, and the place of each."""

    pages: list[tuple[_Member, Changes]]
    page: np.ndarray
    row: np.ndarray
    stamp: np.ndarray
    is_all: bool


class Feeds:
    """Opens feeds; safe to use from any thread."""

    def __init__(
        self,
        log: EpochLog,
        directory: QueryDirectory,
        derivations: Derivations,
        advancer: Advancer,
        reader: ChangeReader,
        find_heartbeats: Callable[[Version, Sequence[StreamDef]], list[int]],
        answer: Callable[[QueryDef, int | None], Answer],
    ) -> None:
        """Name the parts that feeds ask.

        Args:
            find_heartbeats: The heartbeats of streams now.
            answer: Answers a standing query as of an instant; None: as of now.
        """
        self.find_heartbeats = find_heartbeats
        self.answer = answer
        self.log = log
        self.directory = directory
        self.derivations = derivations
        self.advancer = advancer
        self.reader = reader

    def open(
        self,
        selection: QuerySelection,
        after: str | None = None,
        snapshot: bool = False,
        admits: Callable[[QueryDef], bool] | None = None,
    ) -> Feed:
        """Begin a feed of the selected queries.

        Args:
            selection: The queries.
            after: The cursor after which the feed begins; None for the first change of each query.
            snapshot: Whether to begin with the answers, and the changes after them.
            admits: Says of a selected query whether the feed may have it; None: of all.

        Raises:
            MillpondError: CQL-201 for a query that is named and not there, POND-412 for the cursor.
        """
        places = None if after is None else parse_feed_cursor(after, self.log.incarnation)
        feed = Feed(self, selection, places, admits)
        if snapshot:
            feed.begin_with_answers()
        return feed


class Feed:
    """One reader's feed; for use by one thread at a time."""

    def __init__(
        self,
        feeds: Feeds,
        selection: QuerySelection,
        places: Places | None,
        admits: Callable[[QueryDef], bool] | None = None,
    ) -> None:
        self._feeds = feeds
        self._admits = admits
        self._selection = selection
        self._places = places
        self._members: dict[int, _Member] = {}
        self._known: object = None
        self._marked = ""
        self._is_new = True
        self._ids: list[int] | None = None
        if selection.names is not None:
            found = feeds.directory.find(feeds.log.version, selection)
            self._ids = [query.id for query in found]
        self._events: list[FeedEvent] = []
        self._update_members()
        self._note_silence(feeds.log.version)

    @property
    def cursor(self) -> str:
        """Where another feed of the selection goes on after everything this one gave."""
        return self._write_cursor(self._find_places())

    def read(self, limit: int = FEED_PAGE) -> list[FeedEvent]:
        """The next events, at most `limit` changes; none if there is nothing new.

        Raises:
            MillpondError: POND-410 once the pond is closed; STORE-602 for a corrupt segment.
        """
        if self._feeds.advancer.stopping:
            raise MillpondError("POND-410", "the pond is closed")
        self._update_members()
        self._complete()
        found = self._find_changes(limit)
        events, self._events = self._events, []
        events += self._give(found, limit)
        if found.is_all and len(found.row) <= limit:
            for member in self._members.values():
                if not member.is_inside or member.complete > member.given:
                    member.given = max(member.given, member.complete)
                    member.is_inside = False
            cursor = self.cursor
            if cursor != self._marked:
                self._marked = cursor
                events.append(FeedEvent("mark", cursor, facts={"progress": self._progress()}))
        return events

    def begin_with_answers(self) -> None:
        """Put the feed behind all changes that are there, and have it begin with the answers.

        A stream-valued query has no answer: its changes after the snapshot are all it gives. Of a
        query whose answer fails the event has the error.
        """
        self._complete()
        for member in self._in_order():
            assert member.log is not None
            self._put_behind(member, member.complete)
            query = member.query
            if member.state != "active" or member.complete < BEGINNING:
                continue
            derivation = self._feeds.derivations.find_of(self._feeds.log.version, member.log)
            if derivation is None or derivation.bound.to_stream:
                continue
            at = None if member.complete >= LAST else member.complete
            try:
                answer = self._feeds.answer(query, at)
            except MillpondError as error:
                facts = {"error": error.to_json()["error"]}
                self._events.append(FeedEvent("answer", None, query.name, query.id, facts))
            else:
                self._events.append(FeedEvent("answer", None, query.name, query.id, answer=answer))

    # -- members -------------------------------------------------------------------------------

    def _update_members(self) -> None:
        """Learn which queries came, ended, changed or stopped since the feed was last read."""
        feeds = self._feeds
        version = feeds.log.version
        if version.queries is not self._known:
            self._known = version.queries
            self._learn(version)
        for member in self._members.values():
            trouble = None if member.log is None else feeds.advancer.retries.get(member.log.id)
            state, reason = state_of(member.query), member.query.suspended
            if trouble is not None and state == "active":
                state, reason = "suspended", trouble.detail or trouble.primary
            if state != member.state:
                kind = "resumed" if state == "active" else "suspended"
                member.state = state
                self._tell(kind, member.query, {"state": state, "reason": reason})

    def _learn(self, version: Version) -> None:
        feeds = self._feeds
        if self._ids is None:
            found = feeds.directory.find(version, self._selection)
        else:
            named = [q for id in self._ids if (q := version.queries.get(id)) is not None]
            # Another owner or tag may have been given to a query since the feed began.
            found = [query for query in named if self._selection.has(query)]
        if self._admits is not None:
            found = [query for query in found if self._admits(query)]
        current = {query.id: query for query in found}
        for id in self._members.keys() - current.keys():
            member = self._members.pop(id)
            self._tell("ended", member.query, {"dropped": version.queries.get(id) is None})
        unfollowed = [q for q in found if q.active and version.change_log(q.id) is None]
        failures = feeds.derivations.follow_many(unfollowed)
        if unfollowed:
            feeds.advancer.wake()
        version = feeds.log.version
        for query in found:
            known = self._members.get(query.id)
            if known is None:
                known = self._members[query.id] = _Member(query, state_of(query))
                if not self._is_new:
                    self._tell("came", query, {"state": known.state, "cql": query.text})
            elif known.query is not query:
                if known.query.options != query.options:
                    self._tell("altered", query, {"options": dict(query.options)})
                known.query = query
            if known.log is None:
                self._join(version, known, failures.get(query.id))
        self._is_new = False

    def _join(self, version: Version, member: _Member, failure: MillpondError | None) -> None:
        """Find the change log of a member, and the place in it after which the feed goes on."""
        member.log = version.change_log(member.query.id)
        if failure is not None:
            self._tell("suspended", member.query, {"state": "suspended", "reason": str(failure)})
        if member.log is None:
            return
        read = {leaf.stream_id for leaf in version.leaves(member.query.id)}
        member.streams = tuple(sorted(read))
        run = find_run(self._places or {}, member.streams, member.log.id)
        if run is None:
            if self._places is not None and self._is_new:
                self._tell("came", member.query, {"state": member.state, "cql": member.query.text})
        elif run.number is not None:
            self._put_inside(member, run.number)
        else:
            assert run.upto is not None
            self._put_behind(member, run.upto)

    def _put_inside(self, member: _Member, number: int) -> None:
        """Put the feed behind a change of a member, perhaps within its instant."""
        assert member.log is not None
        reader = self._feeds.reader
        member.number = number
        if number:
            try:
                page = reader.read(member.log, member.query.name, number - 1, 1)
            except MillpondError as error:
                if error.code != "POND-412":
                    raise
                return  # it is not kept; what is missing is told when the next changes are read
            member.given = int(page.table["timestamp"][0].as_py()) - 1
            member.is_inside = True

    def _put_behind(self, member: _Member, upto: int) -> None:
        """Put the feed behind all changes of a member up to an instant."""
        assert member.log is not None
        version = self._feeds.log.version
        member.given = max(member.given, upto)
        clock = version.clock(member.log.id)
        if clock.high is None or clock.high <= upto:
            member.number = max(member.number, clock.next_seq if clock.next_seq else 0)
            return
        page = self._feeds.reader.read(member.log, member.query.name, OLDEST)
        stamps = page.table["timestamp"].to_numpy()
        first = page.position - len(page)
        if first and BEGINNING <= upto + 1 < clock.kept_from:
            facts = {"kept_from": format_instant(clock.kept_from)}
            self._tell("trimmed", member.query, facts)
        member.number = first + int(np.searchsorted(stamps, upto, side="right"))

    def _tell(self, kind: str, query: QueryDef, facts: dict[str, Any]) -> None:
        cursor = self.cursor if not self._is_new else None
        self._events.append(FeedEvent(kind, cursor, query.name, query.id, facts))

    def _in_order(self) -> list[_Member]:
        """The members that have a change log, by the streams they read and their logs' ids."""
        held = [m for m in self._members.values() if m.log is not None]
        return sorted(held, key=lambda m: (m.streams, m.log.id if m.log else 0))

    # -- changes -------------------------------------------------------------------------------

    def _complete(self) -> None:
        """Note how far the changes of each member are complete, before any change is read."""
        advancer, version = self._feeds.advancer, self._feeds.log.version
        for member in self._members.values():
            if member.log is not None and member.log.id in version.streams:
                member.complete = max(member.complete, advancer.complete_upto(version, member.log))

    def _find_changes(self, limit: int) -> _Found:
        """Read the changes that are there behind the members' places, and put them in order."""
        version = self._feeds.log.version
        behind = [
            m
            for m in self._in_order()
            if m.log is not None and version.clock(m.log.id).next_seq > m.number
        ]
        most = max(_LEAST_READ, limit // max(1, len(behind)))
        pages: list[tuple[_Member, Changes]] = []
        stamps: list[np.ndarray] = []
        horizon: tuple[int, int] | None = None
        for member in behind:
            page = self._read_page(member, most)
            if page is None:
                continue
            at = page.table["timestamp"].to_numpy()
            count = int(np.searchsorted(at, member.complete, side="right"))
            if count == len(at) and page.position < page.newest and count:
                # More of this query may lie at the instants of others: those are to wait for it.
                last = (int(at[-1]), len(pages))
                horizon = last if horizon is None else min(horizon, last)
            pages.append((member, page))
            stamps.append(at[:count])
        if not pages:
            empty = np.empty(0, np.int64)
            return _Found([], empty, empty, empty, True)
        stamp = np.concatenate(stamps)
        owner = np.repeat(np.arange(len(pages)), [len(at) for at in stamps])
        row = np.concatenate([np.arange(len(at)) for at in stamps])
        order = np.lexsort((row, owner, stamp))
        stamp, owner, row = stamp[order], owner[order], row[order]
        if horizon is not None:
            within = (stamp < horizon[0]) | ((stamp == horizon[0]) & (owner <= horizon[1]))
            stamp, owner, row = stamp[within], owner[within], row[within]
        return _Found(pages, owner, row, stamp, horizon is None)

    def _read_page(self, member: _Member, most: int) -> Changes | None:
        assert member.log is not None
        reader, name = self._feeds.reader, member.query.name
        try:
            return reader.read(member.log, name, member.number, most)
        except MillpondError as error:
            if error.code != "POND-412":
                raise
        page = reader.read(member.log, name, OLDEST, most)
        oldest = page.position - len(page)
        self._tell("trimmed", member.query, {"from": member.number + 1, "to": oldest})
        member.number = oldest
        return page

    def _give(self, found: _Found, limit: int) -> list[FeedEvent]:
        """The events of the first changes, each with its cursor; note that they were given."""
        if not len(found.row):
            return []
        count = min(limit, len(found.row))
        writer = _CursorWriter(self._feeds.log.incarnation, self._in_order())
        events = []
        for page, row, stamp in zip(
            found.page[:count].tolist(),
            found.row[:count].tolist(),
            found.stamp[:count].tolist(),
            strict=True,
        ):
            member, changes = found.pages[page]
            number = changes.position - len(changes) + row + 1
            cursor = writer.write(member, stamp, number)
            query = member.query
            events.append(
                FeedEvent("change", cursor, query.name, query.id, changes=changes, index=row)
            )
            member.number = number
        writer.settle(member, stamp)
        return events

    def _find_places(self) -> Places:
        places: dict[Streams, list[Run]] = defaultdict(list)
        for member in self._in_order():
            assert member.log is not None
            runs = places[member.streams]
            if member.is_inside:
                runs.append(Run(member.log.id, None, member.number))
            elif runs and runs[-1].upto == member.given:
                runs[-1] = Run(member.log.id, member.given)
            else:
                runs.append(Run(member.log.id, member.given))
        return places

    def _write_cursor(self, places: Places) -> str:
        return write_feed_cursor(self._feeds.log.incarnation, places)

    # -- progress ------------------------------------------------------------------------------

    def _progress(self) -> list[dict[str, Any]]:
        """Up to which instant the changes are complete, by the streams the queries read."""
        version = self._feeds.log.version
        groups: dict[Streams, list[_Member]] = defaultdict(list)
        for member in self._in_order():
            if member.state == "active":
                groups[member.streams].append(member)
        return [
            {
                "streams": [s.name for id in streams if (s := version.streams.get(id))],
                "queries": len(members),
                "up_to": min(member.given for member in members),
                "awaits": self._find_awaited(version, streams),
            }
            for streams, members in groups.items()
        ]

    def _find_awaited(self, version: Version, streams: Streams) -> list[str]:
        """The streams whose heartbeat is the least: more is final once theirs moves."""
        read = [s for id in streams if (s := version.streams.get(id)) is not None]
        if not read:
            return []
        reached = self._feeds.find_heartbeats(version, read)
        least = min(reached)
        return [s.name for s, at in zip(read, reached, strict=True) if at == least]

    def _note_silence(self, version: Version) -> None:
        """Note the streams whose last changes wait for a next element that may never come."""
        ids = sorted({id for member in self._members.values() for id in member.streams})
        for stream in (version.streams[id] for id in ids if id in version.streams):
            is_pushed = stream.source is None and stream.derived is None
            if is_pushed and stream.timestamp_by is not None and stream.idle_after is None:
                text = (
                    f"{stream.name} is pushed and has no IDLE AFTER: the changes of its last "
                    "instant are given when a later element or a HEARTBEAT comes"
                )
                self._events.append(FeedEvent("note", None, facts={"note": text}))


class _CursorWriter:
    """Writes the cursor of each change of a page.

    After a change of log L at instant t, in the order (instant, streams, log): of the logs before L
    every change up to t was given, of those behind L every change before t; but of no log more than
    it is complete, and of none less than was given before.
    """

    def __init__(self, incarnation: str, members: Sequence[_Member]) -> None:
        self._head = f"{incarnation}.feed"
        self._members = members
        self._groups: dict[Streams, list[_Member]] = defaultdict(list)
        for member in members:
            self._groups[member.streams].append(member)
        self._order = list(self._groups)
        self._texts: dict[tuple[Streams, int], str] = {}
        self._spans = {streams: _find_spans(group) for streams, group in self._groups.items()}

    def write(self, member: _Member, stamp: int, number: int) -> str:
        """The cursor after a change of a member at an instant."""
        assert member.log is not None
        parts = [self._head]
        own = self._order.index(member.streams)
        for place, streams in enumerate(self._order):
            if place != own:
                parts.append(self._write_group(streams, stamp if place < own else stamp - 1))
                continue
            id = member.log.id
            runs = [
                *self._runs(streams, stamp, upto=id),
                Run(id, None, number),
                *self._runs(streams, stamp - 1, since=id),
            ]
            parts.append(write_group(streams, runs))
        return "".join(parts)

    def _write_group(self, streams: Streams, stamp: int) -> str:
        key = (streams, stamp)
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = write_group(streams, self._runs(streams, stamp))
        return text

    def _runs(
        self, streams: Streams, stamp: int, since: int = -1, upto: int | None = None
    ) -> list[Run]:
        """The runs of the logs of a group with ids beyond `since` and before `upto`."""
        runs: list[Run] = []
        for first, last, given, complete, number in self._spans[streams]:
            if last <= since or (upto is not None and first >= upto):
                continue
            end = last if upto is None else min(last, upto - 1)
            place = max(given, min(complete, stamp))
            if number is not None and place == given:
                runs.append(Run(end, None, number))
            elif runs and runs[-1].upto == place:
                runs[-1] = Run(end, place)
            else:
                runs.append(Run(end, place))
        return runs

    def settle(self, last: _Member, stamp: int) -> None:
        """Note in the members what was given, the last change being one of `last` at `stamp`."""
        is_before = True
        for member in self._members:
            if member is last:
                is_before = False
                member.given, member.is_inside = max(member.given, stamp - 1), True
                continue
            given = max(member.given, min(member.complete, stamp if is_before else stamp - 1))
            if given > member.given:
                member.given, member.is_inside = given, False


def _find_spans(members: Sequence[_Member]) -> list[tuple[int, int, int, int, int | None]]:
    """Neighbours with equal places together: first and last log, given, complete, number."""
    spans: list[tuple[int, int, int, int, int | None]] = []
    for member in members:
        assert member.log is not None
        id, place = member.log.id, (member.given, member.complete)
        number = member.number if member.is_inside else None
        if spans and number is None and spans[-1][2:] == (*place, None):
            spans[-1] = (spans[-1][0], id, *spans[-1][2:])
        else:
            spans.append((id, id, *place, number))
    return spans


def follow_feed(
    feed: Feed, listen: Callable[[Callable[[], None]], Callable[[], None]], follow: bool = True
) -> Iterator[FeedEvent]:
    """The events of a feed one by one; with `follow`, waiting for more for ever.

    Args:
        feed: The feed.
        listen: Registers a function that is called when there may be more changes.
        follow: Whether to wait.
    """
    news = threading.Event()
    end = listen(news.set)
    try:
        while True:
            news.clear()
            events = feed.read()
            yield from events
            if not events:
                if not follow:
                    return
                news.wait()
    finally:
        end()
