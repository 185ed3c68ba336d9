"""Reads the changes that a feed is to give, and puts them in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from millpond.errors import MillpondError
from millpond.service.changes.change_log import ChangeReader
from millpond.service.changes.cursor import OLDEST
from millpond.service.changes.feeds.feed_cursor import Places
from millpond.service.changes.feeds.feed_member import Member
from millpond.service.changes.feeds.feed_members import FeedMembers
from millpond.service.changes.feeds.feed_parts import FeedParts, find_place
from millpond.service.changes.shared_pages import PAGE_BYTES
from millpond.service.results import Changes
from millpond.state.version import Version

#: Changes of a page, unless asked otherwise.
FEED_PAGE = 1_000
#: The most changes of a page of which nobody says how many it has.
LARGEST_PAGE = 10_000
#: The fewest changes of a query that are read at a time.
_LEAST_READ = 16


@dataclass(frozen=True)
class FoundChanges:
    """The changes that are there to be given, in order, and the place of each.

    Attributes:
        pages: Pages of members, in the members' order.
        page: Of each change, which page has it.
        row: Its row in the page.
        stamp: Its instant.
        is_all: Whether no further changes are there.
        trimmed: Members whose next changes are not kept, and the number before the oldest that is.
    """

    pages: list[tuple[Member, Changes]]
    page: np.ndarray
    row: np.ndarray
    stamp: np.ndarray
    is_all: bool
    trimmed: Sequence[tuple[Member, int]] = ()


class _Run:
    """The pages of one member that are read for one page of the feed.

    Attributes:
        counts: Of each page, how many changes may be given: those that are complete.
        end: The instant of the last of them, if more of the member's changes lie behind; else None.
    """

    def __init__(self, member: Member, page: Changes) -> None:
        self.member = member
        self.pages: list[Changes] = []
        self.counts: list[int] = []
        self.end: int | None = None
        self.add(page)

    def add(self, page: Changes) -> None:
        """Go on with a page, the one behind the last."""
        at = page.table["timestamp"].to_numpy()
        count = int(np.searchsorted(at, self.member.complete, side="right"))
        self.pages.append(page)
        self.counts.append(count)
        has_more = count == len(at) and page.position < page.newest and count > 0
        self.end = int(at[-1]) if has_more else None

    def count_upto(self, instant: int) -> int:
        """How many of its changes are no later than an instant."""
        stamps = (page.table["timestamp"].to_numpy()[:n] for page, n in self._counted())
        return sum(int(np.searchsorted(at, instant, side="right")) for at in stamps)

    def _counted(self) -> Iterator[tuple[Changes, int]]:
        return zip(self.pages, self.counts, strict=True)


class FeedPages:
    """Reads pages of the change logs of a feed's members; for use by one thread at a time."""

    def __init__(self, parts: FeedParts, members: FeedMembers) -> None:
        self._parts = parts
        self._members = members

    def find(self, limit: int | None) -> FoundChanges:
        """Read the changes that are there behind the members' places, and put them in order.

        Args:
            limit: How many are looked for; None: more where many members have some.
        """
        with self._parts.log.pin() as version:
            behind = self._members.find_behind(version)
            limit = limit or min(max(FEED_PAGE, 4 * len(behind)), LARGEST_PAGE)
            most = max(_LEAST_READ, limit // max(1, len(behind)))
            most_bytes = PAGE_BYTES // max(1, len(behind))
            read = self._read_shared(version, behind, most)
        trimmed: list[tuple[Member, int]] = []
        runs = []
        for member in behind:
            page = read.get(member.query.id)
            if page is None:
                page = read_page(self._parts.reader, member, most, trimmed, most_bytes)
            runs.append(_Run(member, page))
        horizon = self._fill(runs, limit)
        pages = [(run.member, page) for run in runs for page in run.pages]
        counts = [count for run in runs for count in run.counts]
        if horizon is not None:
            stamp, place = horizon
            horizon = stamp, sum(len(run.pages) for run in runs[: place + 1]) - 1
        return sort_changes(pages, counts, horizon, trimmed)

    def _fill(self, runs: Sequence[_Run], limit: int) -> tuple[int, int] | None:
        """Read on where one query's many changes hold up those of all others.

        More of a query may lie at the instants of others, which have to wait for it. So where one
        query has most of the changes, a page of everybody's equal parts would give few of them.

        Returns:
            The last instant whose changes are given, and the place of the run that ends there;
            None if all changes are there.
        """
        size: int | None = None
        while True:
            ends = [(run.end, place) for place, run in enumerate(runs) if run.end is not None]
            if not ends:
                return None
            horizon = min(ends)
            given = sum(run.count_upto(horizon[0]) for run in runs)
            if given >= limit // 2:
                return horizon
            if size is None:
                size = sum(page.table.nbytes for run in runs for page in run.pages)
            if size >= PAGE_BYTES:
                return horizon
            run = runs[horizon[1]]
            assert run.member.log is not None
            position, name = run.pages[-1].position, run.member.query.name
            most, reader = limit - given, self._parts.reader
            page = reader.read(run.member.log, name, position, most, PAGE_BYTES)
            run.add(page)
            size += page.table.nbytes

    def find_upto(self, places: Places, limit: int) -> FoundChanges:
        """Read the changes behind the members' places and up to those of a cursor.

        Args:
            places: The places of the cursor.
            limit: The most changes that lie between, of one query.
        """
        trimmed: list[tuple[Member, int]] = []
        pages: list[tuple[Member, Changes]] = []
        counts: list[int] = []
        for member in self._members.find_behind(self._parts.log.version):
            assert member.log is not None
            version = self._parts.log.version
            run = find_place(places, version, member.streams, member.log)
            if run is None:
                continue
            page = read_page(self._parts.reader, member, limit, trimmed)
            while True:  # a page ends where a query has another definition
                if run.number is not None:
                    count = run.number - (page.position - len(page))
                else:
                    stamps = page.table["timestamp"].to_numpy()
                    count = int(np.searchsorted(stamps, run.upto or 0, side="right"))
                pages.append((member, page))
                counts.append(max(0, min(count, len(page))))
                if counts[-1] < len(page) or page.position >= page.newest:
                    break
                page = self._parts.reader.read(member.log, member.query.name, page.position, limit)
        return sort_changes(pages, counts, trimmed=trimmed)

    def _read_shared(
        self, version: Version, behind: Sequence[Member], most: int
    ) -> dict[int, Changes]:
        """Read the pages of all members whose changes are in shared logs, by their queries' ids."""
        logs: dict[int, list[Member]] = defaultdict(list)
        for member in behind:
            if member.log is not None and (id := member.log.shared_log) is not None:
                logs[id].append(member)
        shared = self._members.shared_pages
        found: dict[int, Changes] = {}
        for id, members in logs.items():
            wanted = [(m.log, m.query.name, m.number, m.complete) for m in members if m.log]
            since = min(m.given for m in members) + 1
            pages = self._parts.reader.read_shared(version, shared, id, wanted, since, most)
            for member, page in zip(members, pages, strict=True):
                if page is not None:
                    found[member.query.id] = page
        return found


def read_page(
    reader: ChangeReader,
    member: Member,
    most: int,
    trimmed: list[tuple[Member, int]],
    most_bytes: int = PAGE_BYTES,
) -> Changes:
    """Read a page behind a member's place, or the oldest one; then note that in `trimmed`."""
    assert member.log is not None
    name = member.query.name
    try:
        return reader.read(member.log, name, member.number, most, most_bytes)
    except MillpondError as error:
        if error.code != "POND-412":
            raise
    page = reader.read(member.log, name, OLDEST, most, most_bytes)
    trimmed.append((member, page.position - len(page)))
    return page


def sort_changes(
    pages: list[tuple[Member, Changes]],
    counts: Sequence[int],
    horizon: tuple[int, int] | None = None,
    trimmed: Sequence[tuple[Member, int]] = (),
) -> FoundChanges:
    """Put the first changes of each page in the order in which a feed gives them.

    Args:
        pages: The members' pages, in the members' order.
        counts: How many changes of each page are given.
        horizon: The instant, and the page, of the last change whose turn it may be; None: all.
        trimmed: Handed on.
    """
    if not pages:
        empty = np.empty(0, np.int64)
        return FoundChanges([], empty, empty, empty, True, trimmed)
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
    return FoundChanges(pages, owner, row, stamp, horizon is None, trimmed)
