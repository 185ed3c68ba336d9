"""The members of a feed together: their order, and which of them have changes to be given."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.catalog.objects import QueryDef
from millpond.errors import MillpondError
from millpond.service.changes.feeds.feed_cursor import BEFORE_ALL, BEGIN_AGAIN, Streams
from millpond.service.changes.feeds.feed_member import Member
from millpond.service.changes.feeds.feed_parts import FeedParts, count_resets
from millpond.service.queries.query_selection import state_of
from millpond.state.version import Version


class FeedMembers:
    """The queries of a feed, by their ids; for use by one thread at a time."""

    def __init__(self, parts: FeedParts) -> None:
        self._parts = parts
        self._members: dict[int, Member] = {}
        #: The streams of the version the members were last checked against.
        self._streams: object = None
        #: The members in order; those of them with a log of their own; and by each shared log those
        #: in it, by their own logs.
        self._ordered: list[Member] | None = None
        self._apart: list[Member] = []
        self._sharing: dict[int, dict[int, Member]] = {}
        #: By each shared log how far the changes of all members in it are known to be complete.
        self._complete: dict[int, int] = {}
        #: The members in order when all of them were last looked at for changes.
        self._looked_at: object = None
        self.shared_pages = parts.reader.open_shared_pages()

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    @property
    def ids(self) -> set[int]:
        """The ids of the members' queries."""
        return set(self._members)

    def find(self, id: int) -> Member | None:
        """Find the member that is a query."""
        return self._members.get(id)

    def add(self, query: QueryDef) -> Member:
        """Add a query."""
        self._ordered = None
        member = self._members[query.id] = Member(query, state_of(query))
        return member

    def remove(self, id: int) -> Member:
        """Remove a query; the order is that of before until `forget_order`."""
        return self._members.pop(id)

    def forget_order(self) -> None:
        """Have the members put in order anew: they, or the logs their changes are in, changed."""
        self._ordered = None

    def list_in_order(self) -> list[Member]:
        """List the members that have a change log, by the streams they read and their logs' ids."""
        if self._ordered is None:
            held = [m for m in self._members.values() if m.log is not None]
            self._ordered = sorted(held, key=_place_of)
            self._apart, self._sharing, self._complete = [], {}, {}
            version = self._parts.log.version
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

    def check_clocks(self, version: Version) -> None:
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
            own = member.streams
            member.streams = own._replace(resets=count_resets(version, own.ids))
        self._streams = version.streams
        self._ordered = None

    def note_complete(self) -> None:
        """Note how far the changes of each member are complete, before any change is read."""
        advancer, version = self._parts.advancer, self._parts.log.version
        self.list_in_order()
        for member in self._apart:
            assert member.log is not None
            if member.log.id in version.streams:
                member.complete = max(member.complete, advancer.complete_upto(version, member.log))
        for id, sharing in self._sharing.items():
            shared = version.streams.get(id)
            if shared is None:
                continue  # its logs go to another one by now
            found = advancer.complete_upto(version, shared)
            if self._complete.get(id, BEFORE_ALL) >= found:
                continue
            self._complete[id] = found
            for member in sharing.values():
                if member.complete < found:
                    member.complete = found

    def find_behind(self, version: Version) -> list[Member]:
        """Find the members that have changes behind their places.

        Once all were looked at, those in shared logs are found by what is new there.
        """
        everyone = self.list_in_order()
        if version.streams is not self._streams or self._looked_at is not self._ordered:
            self._looked_at = self._ordered if version.streams is self._streams else None
            return [m for m in everyone if _is_behind(version, m)]
        found = [m for m in self._apart if _is_behind(version, m)]
        for id, sharing in self._sharing.items():
            news: dict[int, Member] = {}
            for segment_id, logs in self._parts.reader.list_news(version, self.shared_pages, id):
                own = [sharing[log] for log in logs if log in sharing]
                here = [m for m in own if _is_behind(version, m)]
                news.update((m.query.id, m) for m in here)
                if not here:
                    self.shared_pages.finish(segment_id)
            found += news.values()
        return sorted(found, key=_place_of)


def _place_of(member: Member) -> tuple[Streams, int]:
    """The member's place among all: by the streams it reads and its log's id."""
    return member.streams, member.log.id if member.log else 0


def _is_behind(version: Version, member: Member) -> bool:
    """Whether a member has changes behind its place."""
    state = None if member.log is None else version.states.get(member.log.id)
    return state is not None and state.clock.next_seq > member.number
