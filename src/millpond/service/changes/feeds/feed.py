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

A cursor also has the epoch up to which its reader was told what happened to queries. A feed that
goes on there begins with the queries as they were at that epoch, and tells what happened since: so
who reads pages learns the same as who follows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from millpond.catalog.objects import QueryDef, fold_name
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING, LAST, format_instant
from millpond.planner.explain.notes import find_silences
from millpond.service.changes.cursor import OLDEST
from millpond.service.changes.feeds.feed_cursor import (
    Places,
    Streams,
    find_told,
    write_feed_cursor,
    write_head,
)
from millpond.service.changes.feeds.feed_event import FeedEvent
from millpond.service.changes.feeds.feed_member import (
    CursorWriter,
    Member,
    find_places,
    group_by_streams,
)
from millpond.service.changes.feeds.feed_members import FeedMembers
from millpond.service.changes.feeds.feed_pages import (
    FEED_PAGE,
    LARGEST_PAGE,
    FeedPages,
    FoundChanges,
)
from millpond.service.changes.feeds.feed_parts import FeedParts, find_place, find_streams
from millpond.service.json_values import instant_text, type_name
from millpond.service.queries.query_directory import find_query
from millpond.service.queries.query_selection import QuerySelection, state_of
from millpond.service.results import Changes
from millpond.state.version import Version

#: Changes of a page that is looked through and not given.
_PASSED = 1_000_000


class Feed:
    """One reader's feed; for use by one thread at a time."""

    def __init__(
        self,
        parts: FeedParts,
        selection: QuerySelection,
        after: str | None,
        admits: Callable[[QueryDef], bool] | None = None,
    ) -> None:
        self._parts = parts
        self._admits = admits
        self._selection = selection
        self._after = after
        self._places: Places | None = None
        self._members = FeedMembers(parts)
        self._pages = FeedPages(parts, self._members)
        self._known: object = None
        self._marked: Places | None = None
        self._is_new = True
        #: The epoch up to which the reader was told what happened to queries, and the epoch up to
        #: which the feed knows it.
        self._told = None if after is None else find_told(after)
        self._learnt = 0
        #: Members of which the number of the last change that was given is still to be found.
        self._unnumbered: list[Member] = []
        self._events: list[FeedEvent] = []
        self._ids: list[int] | None = None
        missing: list[str] = []
        if selection.names is not None:
            missing = [] if after is None else self._find_missing(selection.names)
            there = tuple(name for name in selection.names if name not in missing)
            known = replace(selection, names=there)
            self._ids = [query.id for query in parts.directory.find(parts.log.version, known)]
        self._has_trouble = True
        self._update_members()
        self._tell_missing(missing)
        self._note_silence(parts.log.version)
        if after is None:
            self._told = self._learnt

    @property
    def cursor(self) -> str:
        """Where another feed of the selection goes on after everything this one gave."""
        return self._write_cursor(self._find_places())

    def read(self, limit: int | None = None) -> list[FeedEvent]:
        """The next events, at most `limit` changes; none if there is nothing new.

        Without a limit they are about `FEED_PAGE`, or more where many queries have news: some
        changes of each have to be read to know their order, so a small page costs as much.

        Raises:
            MillpondError: POND-410 once the pond is closed; POND-412 once changes that may have
                been given were taken back; STORE-602 for a corrupt segment.
        """
        if self._parts.advancer.stopping:
            raise MillpondError("POND-410", "the pond is closed")
        self._members.check_clocks(self._parts.log.version)
        self._update_members()
        self._members.note_complete()
        found = self._pages.find(limit)
        self._tell_trimmed(found)
        events, self._events = self._events, []
        self._told, has_told = self._learnt, bool(events)
        limit = limit or LARGEST_PAGE
        events += self._give(found, limit)
        if found.is_all and len(found.row) <= limit:
            for member in self._members:
                if member.complete > member.given:
                    member.given = member.complete
                    member.is_inside = False
            places = self._find_places()
            if has_told or places != self._marked:
                self._marked = places
                facts = {"progress": self._progress()}
                events.append(FeedEvent("mark", self._write_cursor(places), facts=facts))
        return events

    def read_to(self, cursor: str, limit: int = FEED_PAGE) -> list[FeedEvent]:
        """The changes up to a cursor that a feed of the selection gave; then open another feed.

        Args:
            cursor: The cursor, no less than where this feed was opened.
            limit: The most changes that lie between, of one query.

        Raises:
            MillpondError: POND-412 for the cursor; as `read`.
        """
        places = self._parts.parse_cursor(cursor, self._parts.log.version)
        found = self._pages.find_upto(places, limit)
        self._tell_trimmed(found)
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
        self._members.note_complete()
        for member in self._members.list_in_order():
            assert member.log is not None
            self._put_behind(member, member.complete)
            self._pass_difference(member)
            query = member.query
            if member.state != "active" or member.complete < BEGINNING:
                continue
            derivation = self._parts.derivations.find_of(self._parts.log.version, member.log)
            if derivation is None or derivation.bound.to_stream:
                continue
            at = None if member.complete >= LAST else member.complete
            try:
                answer = self._parts.needs.invoke(query, at)
            except MillpondError as error:
                facts = {"error": error.to_json()["error"]}
                self._events.append(FeedEvent("answer", None, query.name, query.id, facts))
            else:
                self._events.append(FeedEvent("answer", None, query.name, query.id, answer=answer))

    # -- members -------------------------------------------------------------------------------

    def _update_members(self) -> None:
        """Learn which queries came, ended, changed or stopped since the feed was last read."""
        parts = self._parts
        version = parts.log.version
        is_known = version.queries is self._known
        if not is_known:
            self._known = version.queries
            self._learn(version)
        had_trouble = self._has_trouble
        self._has_trouble = parts.advancer.retries.has_any
        if is_known and not self._has_trouble and not had_trouble:
            return
        for member in self._members:
            trouble = None if member.log is None else parts.advancer.trouble(member.log)
            state, reason = state_of(member.query), member.query.suspended
            if trouble is not None and state == "active":
                state, reason = "suspended", trouble.detail or trouble.primary
            if state != member.state:
                kind = {"active": "resumed", "inactive": "deactivated"}.get(state, "suspended")
                if state == "inactive":
                    reason = "somebody set active = false"
                member.state = state
                self._tell(kind, member.query, {"state": state, "reason": reason})

    def _find_missing(self, names: Sequence[str]) -> list[str]:
        """Find the names that no query has, or none that the feed may have."""
        missing = []
        for name in names:
            try:
                query = find_query(self._parts.log.version, name)
            except MillpondError:
                query = None
            if query is None or not self._may_have(query):
                missing.append(name)
        return missing

    def _tell_missing(self, names: Sequence[str]) -> None:
        """Tell a reader who goes on that queries ended which are not there."""
        ended = [event for event in self._events if event.kind == "ended"]
        told = {fold_name(e.query or "") for e in ended} | {str(e.id) for e in ended}
        for name in names:
            if fold_name(name) not in told:
                self._events.append(FeedEvent("ended", None, name, facts={"dropped": True}))

    def _may_have(self, query: QueryDef) -> bool:
        return self._admits is None or self._admits(query)

    def _find_former(self, past: Mapping[int, QueryDef]) -> Iterator[QueryDef]:
        """Find what was selected when the reader was last told, of queries that changed since."""
        names = self._selection.names
        named = None if names is None else set(map(fold_name, names))
        for query in past.values():
            if named is not None and named.isdisjoint({fold_name(query.name), str(query.id)}):
                continue
            is_older = query.registered_epoch <= (self._told or 0)
            if is_older and self._selection.has(query) and self._may_have(query):
                yield query

    def _begin_with_former(self) -> Callable[[QueryDef], bool]:
        """Make members of the queries that changed since the reader was told, as they were then.

        Returns:
            Says of a query that is no member whether it came since.
        """
        told = self._told
        if told is None:
            return lambda _: False
        past, is_whole = self._parts.log.past_queries(told)
        if not is_whole:
            text = "more happened to queries since the cursor than is known: read the list of them"
            self._events.append(FeedEvent("note", None, facts={"note": text}))
        for query in self._find_former(past):
            self._members.add(query)
        return lambda query: query.id in past or query.registered_epoch > told

    def _learn(self, version: Version) -> None:
        parts = self._parts
        self._learnt = version.epoch
        came = self._begin_with_former() if self._is_new else lambda _: True
        if self._ids is None:
            found = parts.directory.find(version, self._selection)
        else:
            named = [q for id in self._ids if (q := version.queries.get(id)) is not None]
            # Another owner or tag may have been given to a query since the feed began.
            found = [query for query in named if self._selection.has(query)]
        found = [query for query in found if self._may_have(query)]
        current = {query.id: query for query in found}
        for id in self._members.ids - current.keys():
            member = self._members.remove(id)
            self._tell("ended", member.query, {"dropped": version.queries.get(id) is None})
        unfollowed = [q for q in found if q.active and version.change_log(q.id) is None]
        failures = parts.new_derivations.follow_many(unfollowed)
        if unfollowed:
            parts.advancer.wake()
        version = parts.log.version
        # Everything below, and what cursors said of it, is of one version.
        self._members.check_clocks(version)
        if self._is_new and self._after is not None:
            self._places = parts.parse_cursor(self._after, version)
        places = self._places if self._is_new else self._find_places()
        for query in found:
            known = self._members.find(query.id)
            if known is None:
                known = self._members.add(query)
                if came(query):
                    self._tell("came", query, {"state": known.state, "cql": query.text})
            elif known.query is not query:
                if known.query.options != query.options:
                    self._tell("altered", query, {"options": dict(query.options)})
                if known.log is not None and known.query.text != query.text:
                    known.log = version.change_log(query.id) or known.log
                    known.streams = find_streams(version, known.log)
                known.query = query
            if known.log is None:
                self._join(version, known, failures.get(query.id), places or {})
        self._members.forget_order()
        self._members.shared_pages.forget()
        self._find_numbers()
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
        member.streams = find_streams(version, member.log)
        run = find_place(places, version, member.streams, member.log)
        if run is None:
            if self._places is not None and self._is_new and self._told is None:
                self._tell("came", member.query, {"state": member.state, "cql": member.query.text})
        elif run.number is not None:
            self._put_inside(member, run.number)
        else:
            assert run.upto is not None
            member.given = max(member.given, run.upto)
            self._unnumbered.append(member)

    def _find_numbers(self) -> None:
        """Find the numbers of the last changes that were given, where instants are known alone."""
        members, self._unnumbered = self._unnumbered, []
        given: dict[int, dict[int, int]] = defaultdict(dict)
        counts: dict[int, int] = {}
        pages = self._members.shared_pages
        with self._parts.log.pin() as version:
            for member in members:
                log = member.log and version.streams.get(member.log.id)
                if log and log.shared_log is not None and not version.segments(log.id):
                    given[log.shared_log][log.id] = member.given
            for shared_id, upto in given.items():
                counts |= self._parts.reader.count_given(version, pages, shared_id, upto)
        for member in members:
            assert member.log is not None
            if member.log.id in counts:
                member.number = max(member.number, counts[member.log.id])
            else:
                self._put_behind(member, member.given)

    def _put_inside(self, member: Member, number: int) -> None:
        """Put the feed behind a change of a member, perhaps within its instant."""
        assert member.log is not None
        reader = self._parts.reader
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
        version = self._parts.log.version
        member.given = max(member.given, upto)
        clock = version.clock(member.log.id)
        if clock.high is None or clock.high <= upto:
            member.number = max(member.number, clock.next_seq if clock.next_seq else 0)
            return
        page = self._parts.reader.read(member.log, member.query.name, OLDEST, _PASSED)
        first = page.position - len(page)
        if first and BEGINNING <= upto + 1 < clock.kept_from:
            facts = {"kept_from": format_instant(clock.kept_from)}
            self._tell("trimmed", member.query, facts)
        while True:
            stamps = page.table["timestamp"].to_numpy()
            first = page.position - len(page)
            member.number = first + int(np.searchsorted(stamps, upto, side="right"))
            if member.number < page.position or page.position >= page.newest:
                return
            page = self._parts.reader.read(member.log, member.query.name, page.position, _PASSED)

    def _pass_difference(self, member: Member) -> None:
        """Put the feed behind the difference that the answer has already: of a new definition."""
        assert member.log is not None
        assert member.log.derived is not None
        ends = max((m.ends for m in member.log.derived.marks if m.at > member.given), default=0)
        if ends > member.number:
            member.number, member.is_inside = ends, True

    def _tell(self, kind: str, query: QueryDef, facts: dict[str, Any]) -> None:
        cursor = self.cursor if not self._is_new else None
        self._events.append(FeedEvent(kind, cursor, query.name, query.id, facts))

    def _tell_trimmed(self, found: FoundChanges) -> None:
        """Tell whose next changes are not kept, and go on with the oldest that are."""
        for member, oldest in found.trimmed:
            self._tell("trimmed", member.query, {"from": member.number + 1, "to": oldest})
            member.number = oldest

    # -- changes -------------------------------------------------------------------------------

    def _give(self, found: FoundChanges, limit: int) -> list[FeedEvent]:
        """The events of the first changes, each with its cursor; note that they were given."""
        if not len(found.row):
            return []
        count = min(limit, len(found.row))
        writer = CursorWriter(self._head, self._members.list_in_order())
        events = []
        before = self.cursor if any(c.redefined for _, c in found.pages) else None
        for page, row, stamp in zip(
            found.page[:count].tolist(),
            found.row[:count].tolist(),
            found.stamp[:count].tolist(),
            strict=True,
        ):
            member, changes = found.pages[page]
            number = changes.position - len(changes) + row + 1
            if row == 0 and changes.redefined is not None:
                events.append(_make_redefined_event(member, changes, before))
            before = cursor = writer.write(member, stamp, number)
            events.append(_make_event(member, changes, row, cursor))
            member.number = number
        if count < len(found.row) or not found.is_all:
            writer.settle(member, stamp)  # else a mark says more
        return events

    def _find_places(self) -> Places:
        return find_places(self._members.list_in_order())

    def _write_cursor(self, places: Places) -> str:
        return write_feed_cursor(self._head, places)

    @property
    def _head(self) -> str:
        return write_head(self._parts.log.incarnation, self._told)

    # -- progress ------------------------------------------------------------------------------

    def _progress(self) -> list[dict[str, Any]]:
        """Up to which instant the changes are complete, by the streams the queries read."""
        version = self._parts.log.version
        groups = group_by_streams([m for m in self._members.list_in_order() if m.state == "active"])
        return [
            {
                "streams": [s.name for id in streams.ids if (s := version.streams.get(id))],
                "queries": len(members),
                "up_to": instant_text(min(member.given for member in members)),
                "awaits": self._find_awaited(version, streams),
            }
            for streams, members in groups.items()
        ]

    def _find_awaited(self, version: Version, streams: Streams) -> list[str]:
        """The streams whose heartbeat is the least: more is final once theirs moves."""
        read = [s for id in streams.ids if (s := version.streams.get(id)) is not None]
        if not read:
            return []
        reached = self._parts.needs.find_heartbeats(version, read)
        least = min(reached)
        return [s.name for s, at in zip(read, reached, strict=True) if at == least]

    def _note_silence(self, version: Version) -> None:
        """Note the streams whose last changes wait for a next element that may never come."""
        ids = sorted({id for member in self._members for id in member.streams.ids})
        read = [version.streams[id] for id in ids if id in version.streams]
        for text in find_silences(read):
            self._events.append(FeedEvent("note", None, facts={"note": text}))


def _make_event(member: Member, changes: Changes, row: int, cursor: str) -> FeedEvent:
    query = member.query
    return FeedEvent("change", cursor, query.name, query.id, changes=changes, index=row)


def _make_redefined_event(member: Member, changes: Changes, cursor: str | None) -> FeedEvent:
    """Make the event that stands before the first change of a query's new definition.

    `cursor` is that of the event before it, so who goes on from there is given it again.
    """
    columns = [
        {"name": field.name, "type": type_name(field.type)}
        for field in list(changes.table.schema)[3:]
    ]
    facts = {"cql": changes.redefined, "columns": columns}
    return FeedEvent("redefined", cursor, member.query.name, member.query.id, facts)
