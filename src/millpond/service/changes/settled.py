"""Derivations that have nothing new, in groups that read the same.

Of thousands of derivations hardly one has something new after a registration, or after a push to a
stream that most of them do not read. What a derivation may still gain follows from what it reads
and from how far that is final, and both are the same for a whole group. So the schedule asks each
group, and looks at its members one by one only when something has changed for the group.

INV-SETTLED-1: a derivation in a group is one that the schedule, if it looked, would find not due.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter, is_not

from millpond.catalog.objects import StreamDef
from millpond.model.time import END
from millpond.service.changes.advance_jobs import sources
from millpond.service.changes.derivation import Derivation, SharingKey
from millpond.state.version import SegmentRef, Version

#: What the members of a group have in common: their sharing key, and the names of what they read.
GroupKey = tuple[SharingKey, frozenset[str]]
#: The last instant that is final for a derivation.
Target = Callable[[Derivation], int]


@dataclass(eq=False)
class SettledGroup:
    """Derivations that read the same and have nothing new.

    Attributes:
        example: One of them; what it reads, and how far that is final, holds for all.
        segments: The segments of each stream they read.
        upto: The last instant up to which they have all their changes.
        until: The first instant at which one of them may be due, unless other segments come.
        soonest: The first instant at which time alone may bring changes to one of them.
        members: Their definitions, by their ids.
    """

    example: Derivation
    segments: tuple[tuple[SegmentRef, ...], ...]
    upto: int
    until: int
    soonest: int = END
    members: dict[int, StreamDef] = field(default_factory=dict)


class Settled:
    """The groups; for use by one thread, but for `find_upto`."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, SettledGroup] = {}
        self._definitions: dict[int, StreamDef] = {}
        self._group_of: dict[int, SettledGroup] = {}

    def find_upto(self, stream_id: int) -> int | None:
        """The last instant up to which a derivation has all its changes; None: it is in no group.

        May be called from any thread.
        """
        group = self._group_of.get(stream_id)
        return None if group is None else group.upto

    def groups(self) -> Iterator[SettledGroup]:
        """The groups."""
        yield from self._groups.values()

    def list_others(
        self, streams: Iterable[StreamDef], wanted: Collection[int] = ()
    ) -> list[StreamDef]:
        """The streams that are in no group as they are defined now, or are wanted."""
        every = list(streams)
        # Nearly all of thousands are in a group: compared without a line of Python for each.
        known = map(self._definitions.get, map(attrgetter("id"), every))
        others = list(compress(every, map(is_not, known, every)))
        if wanted:
            there = {s.id for s in others}
            others += [s for s in every if s.id in wanted and s.id not in there]
        return others

    def release(self, streams: Iterable[StreamDef]) -> dict[int, int]:
        """Take those of some streams out of their groups that were altered; return as `refresh`."""
        left: dict[int, int] = {}
        for stream in streams:
            known = self._definitions.get(stream.id)
            if known is not None and known is not stream:
                left[stream.id] = self._group_of[stream.id].upto
                self.remove(stream.id)
        return left

    def refresh(self, version: Version, target: Target) -> dict[int, int]:
        """Dissolve the groups that may have something new.

        Returns:
            By former member, the last instant up to which it has all its changes.
        """
        for gone in [id for id in self._definitions if id not in version.streams]:
            self.remove(gone)
        left: dict[int, int] = {}
        for key, group in list(self._groups.items()):
            try:
                upto, segments = target(group.example), _segments_of(version, group.example)
            except Exception:  # a stream is gone: whoever looks at the members finds out why
                left |= self._dissolve(key)
                continue
            if upto >= group.until or any(map(is_not, segments, group.segments)):
                left |= self._dissolve(key)
            else:
                group.upto = max(group.upto, upto)
        return left

    def dissolve_sharing(self, keys: Collection[SharingKey]) -> dict[int, int]:
        """Dissolve the groups with some sharing keys; return as `refresh`."""
        left: dict[int, int] = {}
        for key in [key for key in self._groups if key[0] in keys]:
            left |= self._dissolve(key)
        return left

    def settle(self, version: Version, derivation: Derivation, upto: int, until: int) -> None:
        """Put a derivation into its group, if it can be in one.

        Args:
            version: What the derivation was looked at in.
            derivation: The derivation; it is not due.
            upto: The last instant that is final for it.
            until: The first instant after that at which it may be due by itself.
        """
        if derivation.must_record_position or derivation.eager_expiration:
            return
        reads = {leaf.stream for leaf in derivation.bound.streams} | derivation.plan.needs.keys()
        key = (derivation.sharing_key, frozenset(reads))
        group = self._groups.get(key)
        if group is None:
            segments = _segments_of(version, derivation)
            begin = min((s.min_ts for own in segments for s in own if s.max_ts > upto), default=END)
            group = SettledGroup(derivation, segments, upto, max(begin, upto + 1))
            self._groups[key] = group
        if group.upto == upto < until:
            stream = derivation.stream
            group.until, group.soonest = min(group.until, until), min(group.soonest, until)
            group.members[stream.id] = self._definitions[stream.id] = stream
            self._group_of[stream.id] = group

    def remove(self, stream_id: int) -> None:
        """Take a derivation out of its group."""
        self._definitions.pop(stream_id, None)
        group = self._group_of.pop(stream_id, None)
        if group is not None:
            del group.members[stream_id]

    def dissolve_all(self) -> dict[int, int]:
        """Dissolve all groups; return as `refresh`."""
        left: dict[int, int] = {}
        for key in list(self._groups):
            left |= self._dissolve(key)
        return left

    def _dissolve(self, key: GroupKey) -> dict[int, int]:
        group = self._groups.pop(key)
        for id in group.members:
            del self._definitions[id], self._group_of[id]
        return dict.fromkeys(group.members, group.upto)


def _segments_of(version: Version, derivation: Derivation) -> tuple[tuple[SegmentRef, ...], ...]:
    return tuple(segments for _, segments in sources(version, derivation))
