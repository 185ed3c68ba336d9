"""The members of a feed, and the cursors that say how far each was given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.service.changes.feeds.feed_cursor import (
    BEFORE_ALL,
    Places,
    Run,
    Streams,
    write_group,
)


@dataclass
class Member:
    """A query of a feed, and how far its changes were given.

    Attributes:
        query: The query as the feed knows it.
        state: Its state: 'active', 'inactive' or 'suspended'.
        log: Its change log; None while it has none.
        streams: The streams it reads.
        number: The number of the last change given.
        given: The instant up to which every change was given.
        is_inside: Whether some changes of the instant after `given` were given too.
        complete: The instant up to which the feed may give changes now.
    """

    query: QueryDef
    state: str
    log: StreamDef | None = None
    streams: Streams = field(default_factory=Streams)
    number: int = 0
    given: int = BEFORE_ALL
    is_inside: bool = False
    complete: int = BEFORE_ALL


def group_by_streams(members: Sequence[Member]) -> dict[Streams, Sequence[Member]]:
    """The members by the streams they read; the members are in order, so groups lie together."""
    if members and members[0].streams == members[-1].streams:
        return {members[0].streams: members}
    found: dict[Streams, list[Member]] = defaultdict(list)
    for member in members:
        found[member.streams].append(member)
    return {**found}


def find_places(members: Iterable[Member]) -> Places:
    """How far each member was given, as a cursor says it; the members are in order."""
    places: dict[Streams, list[Run]] = {}
    for streams, group in group_by_streams(list(members)).items():
        runs = places[streams] = []
        for _, last, given, _, number in _find_spans(group, by_complete=False):
            if number is not None:
                runs.append(Run(last, None, number))
            else:
                runs.append(Run(last, given))
    return places


class CursorWriter:
    """Writes the cursor of each change of a page.

    After a change of log L at instant t, in the order (instant, streams, log): of the logs before L
    every change up to t was given, of those behind L every change before t; but of no log more than
    it is complete, and of none less than was given before.
    """

    def __init__(self, head: str, members: Sequence[Member]) -> None:
        self._head = head
        self._members = members
        self._groups = group_by_streams(members)
        self._order = list(self._groups)
        self._texts: dict[tuple[Streams, int], str] = {}
        self._spans = {streams: _find_spans(group) for streams, group in self._groups.items()}

    def write(self, member: Member, stamp: int, number: int) -> str:
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

    def settle(self, last: Member, stamp: int) -> None:
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


def _find_spans(
    members: Sequence[Member], by_complete: bool = True
) -> list[tuple[int, int, int, int, int | None]]:
    """Neighbours with equal places together: first and last log, given, complete, number.

    A member that was given some changes of an instant is by itself. With `by_complete` neighbours
    are complete up to the same instant, too.
    """
    count = len(members)
    given = np.fromiter((m.given for m in members), np.int64, count)
    inside = np.fromiter((m.is_inside for m in members), bool, count)
    begins = np.ones(count, bool)
    begins[1:] = (np.diff(given) != 0) | inside[1:] | inside[:-1]
    if by_complete:
        complete = np.fromiter((m.complete for m in members), np.int64, count)
        begins[1:] |= np.diff(complete) != 0
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], count) - 1
    spans = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        first, last = members[start], members[end]
        assert first.log is not None
        assert last.log is not None
        number = first.number if first.is_inside else None
        spans.append((first.log.id, last.log.id, first.given, first.complete, number))
    return spans
