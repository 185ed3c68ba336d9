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
from dataclasses import dataclass
from typing import Any

import numpy as np

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING, LAST, format_instant
from millpond.planner.explain.notes import find_silences
from millpond.service.changes.advancer import Advancer
from millpond.service.changes.change_log import ChangeReader
from millpond.service.changes.cursor import OLDEST
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.feed_cursor import (
    BEGIN_AGAIN,
    Places,
    Streams,
    find_run,
    parse_feed_cursor,
    write_feed_cursor,
)
from millpond.service.changes.feed_event import FeedEvent
from millpond.service.changes.feed_member import (
    CursorWriter,
    Member,
    find_places,
    group_by_streams,
)
from millpond.service.queries.query_directory import QueryDirectory, QuerySelection, state_of
from millpond.service.results import Answer, Changes
from millpond.state.epoch_log import EpochLog
from millpond.state.version import Version

#: Events of a page, about, unless asked otherwise.
FEED_PAGE = 1_000
#: The fewest changes of a query that are read at a time.
_LEAST_READ = 16


@dataclass(frozen=True)
class _Found:
    """The changes that are there to be given, in order, and the place of each."""

    pages: list[tuple[Member, Changes]]
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
        feed = Feed(self, selection, after, admits)
        if snapshot:
            feed.begin_with_answers()
        return feed

    def parse_cursor(self, text: str, version: Version) -> Places:
        """Read a cursor of a feed of this store; POND-412 if it is none any more."""

        def count(ids: Sequence[int]) -> int | None:
            is_there = all(id in version.streams for id in ids)
            return count_resets(version, ids) if is_there else None

        return parse_feed_cursor(text, self.log.incarnation, count)


def count_resets(version: Version, ids: Sequence[int]) -> int:
    """How often the clocks of streams were set back, all together."""
    return sum(version.streams[id].resets for id in ids if id in version.streams)


class Feed:
    """One reader's feed; for use by one thread at a time."""

    def __init__(
        self,
        feeds: Feeds,
        selection: QuerySelection,
        after: str | None,
        admits: Callable[[QueryDef], bool] | None = None,
    ) -> None:
        self._feeds = feeds
        self._admits = admits
        self._selection = selection
        self._after = after
        self._places: Places | None = None
        self._members: dict[int, Member] = {}
        self._known: object = None
        self._marked = ""
        self._is_new = True
        self._ids: list[int] | None = None
        if selection.names is not None:
            found = feeds.directory.find(feeds.log.version, selection)
            self._ids = [query.id for query in found]
        self._events: list[FeedEvent] = []
        self._streams: object = None
        #: The members in order; those of them with a log of their own; and by each shared log those
        #: in it, by their own logs.
        self._ordered: list[Member] | None = None
        self._apart: list[Member] = []
        self._sharing: dict[int, dict[int, Member]] = {}
        #: The members in order when all of them were last looked at for changes.
        self._looked_at: object = None
        self._has_trouble = True
        self._shared = feeds.reader.open_shared_pages()
        self._update_members()
        self._note_silence(feeds.log.version)

    @property
    def cursor(self) -> str:
        """Where another feed of the selection goes on after everything this one gave."""
        return self._write_cursor(self._find_places())

    def read(self, limit: int = FEED_PAGE) -> list[FeedEvent]:
        """The next events, at most `limit` changes; none if there is nothing new.

        Raises:
            MillpondError: POND-410 once the pond is closed; POND-412 once changes that may have
                been given were taken back; STORE-602 for a corrupt segment.
        """
        if self._feeds.advancer.stopping:
            raise MillpondError("POND-410", "the pond is closed")
        self._check_clocks(self._feeds.log.version)
        self._update_members()
        self._complete()
        found = self._find_changes(limit)
        events, self._events = self._events, []
        events += self._give(found, limit)
        if found.is_all and len(found.row) <= limit:
            for member in self._members.values():
                if member.complete > member.given:
                    member.given = member.complete
                    member.is_inside = False
            cursor = self.cursor
            if cursor != self._marked:
                self._marked = cursor
                events.append(FeedEvent("mark", cursor, facts={"progress": self._progress()}))
        return events

    def read_to(self, cursor: str, limit: int = FEED_PAGE) -> list[FeedEvent]:
        """The changes up to a cursor that a feed of the selection gave; then open another feed.

        Args:
            cursor: The cursor, no less than where this feed was opened.
            limit: The most changes that lie between, of one query.

        Raises:
            MillpondError: POND-412 for the cursor; as `read`.
        """
        places = self._feeds.parse_cursor(cursor, self._feeds.log.version)
        pages: list[tuple[Member, Changes]] = []
        counts: list[int] = []
        for member in self._in_behind(self._feeds.log.version):
            assert member.log is not None
            run = find_run(places, member.streams, member.log.id)
            page = None if run is None else self._read_page(member, limit)
            if run is None or page is None:
                continue
            if run.number is not None:
                count = run.number - (page.position - len(page))
            else:
                stamps = page.table["timestamp"].to_numpy()
                count = int(np.searchsorted(stamps, run.upto or 0, side="right"))
            pages.append((member, page))
            counts.append(max(0, min(count, len(page))))
        found = _sort_changes(pages, counts)
        events, self._events = self._events, []
        for page, row in zip(found.page.tolist(), found.row.tolist(), strict=True):
            member, changes = found.pages[page]
            events.append(_make_event(member, changes, row, cursor))
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

    def _check_clocks(self, version: Version) -> None:
        """Raise POND-412 if changes of a member were taken back with the clock of a stream."""
        if version.streams is self._streams:
            return
        for member in self._members.values():
            log = None if member.log is None else version.streams.get(member.log.id)
            if member.log is not None and log is not None and log.resets != member.log.resets:
                raise MillpondError(
                    "POND-412",
                    f'changes of "{member.query.name}" were taken back',
                    detail="The clock of a stream below was set back.",
                    hint=BEGIN_AGAIN,
                )
            if log is not None:  # it may go to another shared log now
                member.log = log
            ids = member.streams.ids
            member.streams = Streams(ids, count_resets(version, ids))
        self._streams = version.streams
        self._ordered = None

    # -- members -------------------------------------------------------------------------------

    def _update_members(self) -> None:
        """Learn which queries came, ended, changed or stopped since the feed was last read."""
        feeds = self._feeds
        version = feeds.log.version
        is_known = version.queries is self._known
        if not is_known:
            self._known = version.queries
            self._learn(version)
        had_trouble = self._has_trouble
        self._has_trouble = feeds.advancer.retries.has_any
        if is_known and not self._has_trouble and not had_trouble:
            return
        for member in self._members.values():
            trouble = None if member.log is None else feeds.advancer.trouble(member.log)
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
        # Everything below, and what cursors said of it, is of one version.
        self._check_clocks(version)
        if self._is_new and self._after is not None:
            self._places = feeds.parse_cursor(self._after, version)
        places = self._places if self._is_new else self._find_places()
        for query in found:
            known = self._members.get(query.id)
            if known is None:
                self._ordered = None
                known = self._members[query.id] = Member(query, state_of(query))
                if not self._is_new:
                    self._tell("came", query, {"state": known.state, "cql": query.text})
            elif known.query is not query:
                if known.query.options != query.options:
                    self._tell("altered", query, {"options": dict(query.options)})
                known.query = query
            if known.log is None:
                self._join(version, known, failures.get(query.id), places or {})
        self._ordered = None
        self._shared.forget()
        self._is_new = False

    def _join(
        self, version: Version, member: Member, failure: MillpondError | None, places: Places
    ) -> None:
        """Find the change log of a member, and the place in it after which the feed goes on.

        A query that comes to a feed with a change log of before begins where a reader would who
        goes on from the feed's cursor.
        """
        member.log = version.change_log(member.query.id)
        if failure is not None:
            self._tell("suspended", member.query, {"state": "suspended", "reason": str(failure)})
        if member.log is None:
            return
        read = sorted({leaf.stream_id for leaf in version.leaves(member.query.id)})
        member.streams = Streams(tuple(read), count_resets(version, read))
        run = find_run(places, member.streams, member.log.id)
        if run is None:
            if self._places is not None and self._is_new:
                self._tell("came", member.query, {"state": member.state, "cql": member.query.text})
        elif run.number is not None:
            self._put_inside(member, run.number)
        else:
            assert run.upto is not None
            self._put_behind(member, run.upto)

    def _put_inside(self, member: Member, number: int) -> None:
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

    def _put_behind(self, member: Member, upto: int) -> None:
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

    def _in_order(self) -> list[Member]:
        """The members that have a change log, by the streams they read and their logs' ids."""
        if self._ordered is None:
            held = [m for m in self._members.values() if m.log is not None]
            self._ordered = sorted(held, key=_place_of)
            self._apart, self._sharing = [], {}
            version = self._feeds.log.version
            for member in self._ordered:
                assert member.log is not None
                id = member.log.shared_log
                if id is None:
                    self._apart.append(member)
                    continue
                self._sharing.setdefault(id, {})[member.log.id] = member
                begin = version.own_clock(member.log.id).position
                member.complete = max(member.complete, begin)
        return self._ordered

    # -- changes -------------------------------------------------------------------------------

    def _complete(self) -> None:
        """Note how far the changes of each member are complete, before any change is read."""
        advancer, version = self._feeds.advancer, self._feeds.log.version
        self._in_order()
        for member in self._apart:
            assert member.log is not None
            if member.log.id in version.streams:
                member.complete = max(member.complete, advancer.complete_upto(version, member.log))
        for id, sharing in self._sharing.items():
            shared = version.streams.get(id)
            if shared is None:
                continue  # its logs go to another one by now
            found = advancer.complete_upto(version, shared)
            for member in sharing.values():
                if member.complete < found:
                    member.complete = found

    def _in_behind(self, version: Version) -> list[Member]:
        """The members that have changes behind their places.

        Once all were looked at, those in shared logs are found by what is new there.
        """
        everyone = self._in_order()
        if version.streams is not self._streams or self._looked_at is not self._ordered:
            self._looked_at = self._ordered if version.streams is self._streams else None
            return [m for m in everyone if _is_behind(version, m)]
        found = [m for m in self._apart if _is_behind(version, m)]
        for id, sharing in self._sharing.items():
            news: dict[int, Member] = {}
            for segment_id, logs in self._feeds.reader.list_news(version, self._shared, id):
                own = [sharing[log] for log in logs if log in sharing]
                here = [m for m in own if _is_behind(version, m)]
                news.update((m.query.id, m) for m in here)
                if not here:
                    self._shared.finish(segment_id)
            found += news.values()
        return sorted(found, key=_place_of)

    def _find_changes(self, limit: int) -> _Found:
        """Read the changes that are there behind the members' places, and put them in order."""
        with self._feeds.log.pin() as version:
            behind = self._in_behind(version)
            most = max(_LEAST_READ, limit // max(1, len(behind)))
            read = self._read_shared(version, behind, most)
        pages: list[tuple[Member, Changes]] = []
        counts: list[int] = []
        horizon: tuple[int, int] | None = None
        for member in behind:
            page = read.get(member.query.id)
            if page is None:
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
            counts.append(count)
        return _sort_changes(pages, counts, horizon)

    def _read_shared(
        self, version: Version, behind: Sequence[Member], most: int
    ) -> dict[int, Changes]:
        """Read the pages of all members whose changes are in shared logs, by their queries' ids."""
        logs: dict[int, list[Member]] = defaultdict(list)
        for member in behind:
            if member.log is not None and (id := member.log.shared_log) is not None:
                logs[id].append(member)
        found: dict[int, Changes] = {}
        for id, members in logs.items():
            wanted = [(m.log, m.query.name, m.number, m.complete) for m in members if m.log]
            since = min(m.given for m in members) + 1
            pages = self._feeds.reader.read_shared(version, self._shared, id, wanted, since, most)
            for member, page in zip(members, pages, strict=True):
                if page is not None:
                    found[member.query.id] = page
        return found

    def _read_page(self, member: Member, most: int) -> Changes | None:
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
        writer = CursorWriter(self._feeds.log.incarnation, self._in_order())
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
            events.append(_make_event(member, changes, row, cursor))
            member.number = number
        if count < len(found.row) or not found.is_all:
            writer.settle(member, stamp)  # else a mark says more
        return events

    def _find_places(self) -> Places:
        return find_places(self._in_order())

    def _write_cursor(self, places: Places) -> str:
        return write_feed_cursor(self._feeds.log.incarnation, places)

    # -- progress ------------------------------------------------------------------------------

    def _progress(self) -> list[dict[str, Any]]:
        """Up to which instant the changes are complete, by the streams the queries read."""
        version = self._feeds.log.version
        groups = group_by_streams([m for m in self._in_order() if m.state == "active"])
        return [
            {
                "streams": [s.name for id in streams.ids if (s := version.streams.get(id))],
                "queries": len(members),
                "up_to": min([member.given for member in members]),
                "awaits": self._find_awaited(version, streams),
            }
            for streams, members in groups.items()
        ]

    def _find_awaited(self, version: Version, streams: Streams) -> list[str]:
        """The streams whose heartbeat is the least: more is final once theirs moves."""
        read = [s for id in streams.ids if (s := version.streams.get(id)) is not None]
        if not read:
            return []
        reached = self._feeds.find_heartbeats(version, read)
        least = min(reached)
        return [s.name for s, at in zip(read, reached, strict=True) if at == least]

    def _note_silence(self, version: Version) -> None:
        """Note the streams whose last changes wait for a next element that may never come."""
        ids = sorted({id for member in self._members.values() for id in member.streams.ids})
        read = [version.streams[id] for id in ids if id in version.streams]
        for text in find_silences(read):
            self._events.append(FeedEvent("note", None, facts={"note": text}))


def _place_of(member: Member) -> tuple[Streams, int]:
    """The member's place among all: by the streams it reads and its log's id."""
    return member.streams, member.log.id if member.log else 0


def _is_behind(version: Version, member: Member) -> bool:
    """Whether a member has changes behind its place."""
    state = None if member.log is None else version.states.get(member.log.id)
    return state is not None and state.clock.next_seq > member.number


def _make_event(member: Member, changes: Changes, row: int, cursor: str) -> FeedEvent:
    query = member.query
    return FeedEvent("change", cursor, query.name, query.id, changes=changes, index=row)


def _sort_changes(
    pages: list[tuple[Member, Changes]],
    counts: Sequence[int],
    horizon: tuple[int, int] | None = None,
) -> _Found:
    """The first changes of each page in the order in which a feed gives them.

    Args:
        pages: The members' pages, in the members' order.
        counts: How many changes of each page are given.
        horizon: The instant, and the page, of the last change whose turn it may be; None: all.
    """
    if not pages:
        empty = np.empty(0, np.int64)
        return _Found([], empty, empty, empty, True)
    given = [
        page.table["timestamp"].to_numpy()[:n] for (_, page), n in zip(pages, counts, strict=True)
    ]
    stamp = np.concatenate(given)
    owner = np.repeat(np.arange(len(pages)), counts)
    row = np.concatenate([np.arange(count) for count in counts])
    order = np.lexsort((row, owner, stamp))
    stamp, owner, row = stamp[order], owner[order], row[order]
    if horizon is not None:
        within = (stamp < horizon[0]) | ((stamp == horizon[0]) & (owner <= horizon[1]))
        stamp, owner, row = stamp[within], owner[within], row[within]
    return _Found(pages, owner, row, stamp, horizon is None)


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
