"""Shared joins as the store keeps them: cores, their uses, their pairs, the runs of their SteMs.

A *join core* is shared by queries that join the same streams by the same factors. Its pairs (the
Results Structure of joins, PSoup VLDB 2002, section 4.3) and the runs of its SteMs are caches like
matches: an invocation computes the pairs that are missing, so no answer depends on these files.

Positions say which pairs a core has. For the uses below `upto`, every tuple whose constituents all
arrived before `covered` has been looked for, unless its oldest constituent is older than `since`.
Positions are arrival numbers, which merging segments does not change.

INV-JOIN-1: a tuple of elements that arrived before `covered`, that are together in the windows
of a use below `upto` and match its predicates, and the oldest of which is not before its `since`,
is in exactly one of the core's files that are for the use; tuples of other elements are in none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from millpond.model.time import BEGINNING
from millpond.state.id_map import IdMap


@dataclass(frozen=True)
class JoinCore:
    """A join that queries share.

    Attributes:
        id: Given by the commit that adds the core; 0 before.
        key: Equal for equal joins.
        plan: The plan of the join, as the engine reads it.
        stream_ids: The streams, in the order of FROM.
        next_use: The number the core's next use gets; numbers are never used again.
        upto: Uses from here on have no pairs yet.
        covered: For each stream, the arrival number up to which pairs were looked for.
        epoch: The elements of segments of this epoch or earlier ones are covered.
        since: (use, instant), ascending: for that use and the uses after it, pairs with an older
            constituent were not looked for, or were dropped.
    """

    id: int
    key: str
    plan: bytes
    stream_ids: tuple[int, ...]
    next_use: int = 0
    upto: int = 0
    covered: tuple[int, ...] = ()
    epoch: int = 0
    since: tuple[tuple[int, int], ...] = ()

    def since_of(self, use: int) -> int:
        """Return the instant from which on a use's pairs are stored."""
        found: int = BEGINNING
        for first, instant in self.since:
            if first > use:
                break
            found = instant
        return found

    def with_since(self, use: int, instant: int) -> JoinCore:
        """Return the core with pairs of a new use, and of those after it, from an instant on."""
        if self.since and self.since[-1][1] == instant:
            return self
        return replace(self, since=(*self.since, (use, instant)))

    def with_none_before(self, instant: int) -> JoinCore:
        """Return the core when no use's pairs from before an instant are stored."""
        rising = [(0, max(self.since_of(0), instant))]
        for use, own in self.since:
            if use and max(own, instant) != rising[-1][1]:
                rising.append((use, max(own, instant)))
        return replace(self, since=tuple(rising))


@dataclass(frozen=True)
class JoinUse:
    """A use of a core by a standing query.

    Attributes:
        query_id: The query.
        core_id: The core; −1 − i is the i-th new core of the same change.
        leaves: Which of the query's leaves are the core's streams.
        spans: For each leaf how long an element can be in the window, or None for ever.
        number: The use's number among the uses of the core; given by the commit.
    """

    query_id: int
    core_id: int
    leaves: tuple[int, ...]
    spans: tuple[int | None, ...]
    number: int = 0


@dataclass(frozen=True)
class PairsRef:
    """A file of a core's pairs, for the uses in [low, upto) that existed when it was made."""

    id: int
    core_id: int
    low: int
    upto: int
    level: int
    path: str
    pairs: int
    min_oldest: int
    max_oldest: int
    checksum: str
    bytes: int


@dataclass(frozen=True)
class ArrangementRef:
    """A run of a SteM: one shard of one segment, sorted by a key."""

    segment_id: int
    key: str
    shard: int
    shards: int
    path: str
    rows: int
    checksum: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class JoinChange:
    """What an epoch changes of the shared joins.

    Attributes:
        cores: New cores (`id` 0), or cores that replace the core with that id.
        uses: New uses of cores by queries.
        drop_uses: Ids of queries that use no core any more. A core goes with its last use.
        pairs: New files of pairs, `id` 0.
        drop_pairs: Files that were folded into others, or that no window reaches.
        arrangements: New runs, of segments that may be gone meanwhile.
        drop_arrangements: Runs no core needs.
    """

    cores: Sequence[JoinCore] = ()
    uses: Sequence[JoinUse] = ()
    drop_uses: Sequence[int] = ()
    pairs: Sequence[PairsRef] = ()
    drop_pairs: Sequence[PairsRef] = ()
    arrangements: Sequence[ArrangementRef] = ()
    drop_arrangements: Sequence[ArrangementRef] = ()


NO_USERS: IdMap[int] = IdMap()


@dataclass(frozen=True, eq=False)
class Joins:
    """All shared joins, as of one epoch."""

    cores: Mapping[int, JoinCore] = field(default_factory=lambda: MappingProxyType({}))
    by_key: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    uses: IdMap[JoinUse] = field(default_factory=IdMap)
    members: Mapping[int, IdMap[int]] = field(default_factory=lambda: MappingProxyType({}))
    pairs_of: Mapping[int, tuple[PairsRef, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    runs_of: IdMap[tuple[ArrangementRef, ...]] = field(default_factory=IdMap)

    def core_of(self, query_id: int) -> tuple[JoinCore, JoinUse] | None:
        """Find the core a query uses, and its use of the core; None if it uses no core."""
        use = self.uses.get(query_id)
        return None if use is None else (self.cores[use.core_id], use)

    def core_of_key(self, key: str) -> JoinCore | None:
        id = self.by_key.get(key)
        return None if id is None else self.cores[id]

    def users(self, core_id: int) -> IdMap[int]:
        """Return a core's uses: number to query id, ascending."""
        return self.members.get(core_id, NO_USERS)

    def pairs(self, core_id: int) -> tuple[PairsRef, ...]:
        """Return a core's files, the oldest pairs first."""
        return self.pairs_of.get(core_id, ())

    def runs(self, segment_id: int) -> tuple[ArrangementRef, ...]:
        """Return the runs of a segment."""
        found: tuple[ArrangementRef, ...] = self.runs_of.get(segment_id, ())
        return found

    def files(self) -> Iterator[PairsRef | ArrangementRef]:
        """Yield every reference to a file of the shared joins."""
        for pairs in self.pairs_of.values():
            yield from pairs
        for runs in self.runs_of.values():
            yield from runs
