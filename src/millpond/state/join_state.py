"""What the store knows of shared joins: cores, who uses them, their pairs, their SteMs' runs.

A *join core* is what queries that join the same streams by the same factors share. Its pairs (the
Results Structure of joins, PSoup VLDB 2002, section 4.3) and the runs of its SteMs are caches like
matches: what is missing is found at invocation, and nothing here decides an answer.

Which pairs a core has is said by positions: every tuple whose constituents all arrived before
`covered` has been looked for, for the uses below `upto`, if its oldest constituent is not older
than what `since` says. Positions are arrival numbers, which merging segments does not change.

INV-JOIN-1: a tuple of elements that arrived before `covered`, that are together in the windows
of a use below `upto` and match its predicates, and the oldest of which is not before its `since`,
is in exactly one of the core's files that are for the use; tuples of other elements are in none.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from sqlite3 import Connection
from types import MappingProxyType

from millpond.model.time import BEGINNING
from millpond.state.bucket_map import BucketMap
from millpond.state.database import Database


class StaleJoin(Exception):
    """The core a change is about is not what it was."""


@dataclass(frozen=True)
class JoinCore:
    """A join that queries share.

    Attributes:
        id: Given by the commit that adds it; 0 before.
        key: Equal for equal joins.
        plan: What joins, as the engine reads it.
        stream_ids: The streams, in the order of FROM.
        next_use: The number its next use gets; numbers are never used again.
        upto: Uses from here on have no pairs yet.
        covered: For each stream, the arrival number up to which pairs were looked for.
        epoch: The epoch up to which: what a segment of it or before holds, is covered.
        since: (use, instant), ascending: for that use and those after it, pairs with an older
            constituent were not looked for, or are forgotten.
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
        """From which instant on pairs are there for a use."""
        found: int = BEGINNING
        for first, instant in self.since:
            if first > use:
                break
            found = instant
        return found


@dataclass(frozen=True)
class JoinUse:
    """A standing query is an instance of a core.

    Attributes:
        query_id: The query.
        core_id: The core; −1 − i is the i-th of the cores that come with the same change.
        leaves: Which of the query's leaves are the core's streams.
        spans: For each of them how long an element can be in the window, or None for ever.
        number: Among the uses of the core; given by the commit.
    """

    query_id: int
    core_id: int
    leaves: tuple[int, ...]
    spans: tuple[int | None, ...]
    number: int = 0


@dataclass(frozen=True)
class PairsRef:
    """A file of a core's pairs, for the uses in [low, upto) that were there when it was made."""

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
    """What an epoch changes of it.

    Attributes:
        cores: New ones (`id` 0), or what is to take the place of the one with that id.
        uses: Queries that use a core from now on.
        drop_uses: Ids of queries that use none any more. A core goes with its last use.
        pairs: New files, `id` 0.
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


_NO_USERS: BucketMap[int, int] = BucketMap()


@dataclass(frozen=True, eq=False)
class Joins:
    """All of it, as of one epoch."""

    cores: Mapping[int, JoinCore] = field(default_factory=lambda: MappingProxyType({}))
    by_key: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    uses: BucketMap[int, JoinUse] = field(default_factory=BucketMap)
    members: Mapping[int, BucketMap[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    pairs_of: Mapping[int, tuple[PairsRef, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    runs_of: BucketMap[int, tuple[ArrangementRef, ...]] = field(default_factory=BucketMap)

    def core_of(self, query_id: int) -> tuple[JoinCore, JoinUse] | None:
        """The core a query uses, and how."""
        use = self.uses.get(query_id)
        return None if use is None else (self.cores[use.core_id], use)

    def core_of_key(self, key: str) -> JoinCore | None:
        id = self.by_key.get(key)
        return None if id is None else self.cores[id]

    def users(self, core_id: int) -> BucketMap[int, int]:
        """A core's uses: number to query id, ascending."""
        return self.members.get(core_id, _NO_USERS)

    def pairs(self, core_id: int) -> tuple[PairsRef, ...]:
        """A core's files, the oldest pairs first."""
        return self.pairs_of.get(core_id, ())

    def runs(self, segment_id: int) -> tuple[ArrangementRef, ...]:
        """The runs of a segment."""
        found: tuple[ArrangementRef, ...] = self.runs_of.get(segment_id, ())
        return found

    def paths(self) -> Iterator[tuple[str, int]]:
        """Every file referred to, and its length."""
        for files in self.pairs_of.values():
            yield from ((f.path, f.bytes) for f in files)
        for runs in self.runs_of.values():
            yield from ((r.path, r.bytes) for r in runs)


@dataclass(frozen=True, kw_only=True)
class SettledJoins:
    """A change with numbers given and its consequences spelled out."""

    cores: tuple[JoinCore, ...] = ()
    drop_cores: tuple[int, ...] = ()
    uses: tuple[JoinUse, ...] = ()
    drop_uses: tuple[JoinUse, ...] = ()
    pairs: tuple[PairsRef, ...] = ()
    drop_pairs: tuple[PairsRef, ...] = ()
    arrangements: tuple[ArrangementRef, ...] = ()
    drop_arrangements: tuple[ArrangementRef, ...] = ()
    unreferenced: tuple[str, ...] = ()
    next_id: int = 1

    @property
    def is_nothing(self) -> bool:
        return not (
            self.cores
            or self.drop_cores
            or self.uses
            or self.drop_uses
            or self.pairs
            or self.drop_pairs
            or self.arrangements
            or self.drop_arrangements
        )


def settle_joins(
    change: JoinChange,
    joins: Joins,
    next_id: int,
    dropped: Iterable[int],
    gone: set[int],
    has_segment: Mapping[int, object],
) -> SettledJoins:
    """What a change means for what is there.

    Args:
        change: The change.
        joins: What is there.
        next_id: The next free number of cores and files.
        dropped: Ids of definitions that are dropped in the same epoch.
        gone: Ids of segments that go in the same epoch.
        has_segment: The segments that are there before it.

    Raises:
        StaleJoin: a core it is about is gone.
    """
    cores: dict[int, JoinCore] = {}
    named: list[int] = []
    for core in change.cores:
        if core.id == 0:
            core = replace(core, id=next_id)
            next_id += 1
        elif core.id not in joins.cores:
            raise StaleJoin(f"join {core.id} is not there any more")
        cores[core.id] = core
        named.append(core.id)
    left = [u for q in {*change.drop_uses, *dropped} if (u := joins.uses.get(q)) is not None]
    uses = []
    for use in change.uses:
        id = named[-1 - use.core_id] if use.core_id < 0 else use.core_id
        used_core = cores.get(id) or joins.cores.get(id)
        if used_core is None:
            raise StaleJoin(f"join {id} is not there any more")
        uses.append(replace(use, core_id=id, number=used_core.next_use))
        cores[id] = replace(used_core, next_use=used_core.next_use + 1)
        if (old := joins.uses.get(use.query_id)) is not None and old not in left:
            left.append(old)
    used = {u.core_id for u in uses}
    leaving: defaultdict[int, int] = defaultdict(int)
    for use in left:
        leaving[use.core_id] += 1
    drop_cores = tuple(
        id for id, count in leaving.items() if id not in used and len(joins.users(id)) <= count
    )
    for id in drop_cores:
        cores.pop(id, None)
    live = (joins.cores.keys() | cores.keys()) - set(drop_cores)
    pairs = []
    for file in change.pairs:
        if file.core_id in live:
            pairs.append(replace(file, id=next_id))
            next_id += 1
    drop_pairs = {f.id: f for f in change.drop_pairs if f in joins.pairs(f.core_id)}
    for id in drop_cores:
        drop_pairs.update((f.id, f) for f in joins.pairs(id))
    runs = [r for r in change.arrangements if r.segment_id in has_segment]
    runs = [r for r in runs if r.segment_id not in gone]
    drop_runs = {r.path: r for r in change.drop_arrangements if r in joins.runs(r.segment_id)}
    for id in gone:
        drop_runs.update((r.path, r) for r in joins.runs(id))
    return SettledJoins(
        cores=tuple(cores.values()),
        drop_cores=drop_cores,
        uses=tuple(uses),
        drop_uses=tuple(left),
        pairs=tuple(pairs),
        drop_pairs=tuple(drop_pairs.values()),
        arrangements=tuple(runs),
        drop_arrangements=tuple(drop_runs.values()),
        unreferenced=(
            *({f.path for f in change.pairs} - {f.path for f in pairs}),
            *({r.path for r in change.arrangements} - {r.path for r in runs}),
            *(f.path for f in drop_pairs.values()),
            *drop_runs,
        ),
        next_id=next_id,
    )


def succeed_joins(joins: Joins, change: SettledJoins) -> Joins:
    """What is there after a change."""
    if change.is_nothing:
        return joins
    cores = {id: core for id, core in joins.cores.items() if id not in change.drop_cores}
    cores.update((core.id, core) for core in change.cores)
    members = {id: own for id, own in joins.members.items() if id in cores}
    for use in change.drop_uses:
        if use.core_id in members:
            members[use.core_id] = members[use.core_id].changed({}, drop=[use.number])
    for use in change.uses:
        own = members.get(use.core_id, _NO_USERS)
        members[use.core_id] = own.changed({use.number: use.query_id})
    pairs_of = {id: own for id, own in joins.pairs_of.items() if id in cores}
    gone = {file.id for file in change.drop_pairs}
    for id in {f.core_id for f in (*change.pairs, *change.drop_pairs)} & cores.keys():
        kept = [f for f in joins.pairs(id) if f.id not in gone]
        kept += [f for f in change.pairs if f.core_id == id]
        pairs_of[id] = tuple(sorted(kept, key=lambda f: (f.min_oldest, f.id)))
    return Joins(
        MappingProxyType(cores),
        MappingProxyType({core.key: id for id, core in cores.items()}),
        joins.uses.changed(
            {use.query_id: use for use in change.uses},
            drop=[use.query_id for use in change.drop_uses],
        ),
        MappingProxyType(members),
        MappingProxyType(pairs_of),
        _with_runs(joins.runs_of, change),
    )


def _with_runs(
    runs: BucketMap[int, tuple[ArrangementRef, ...]], change: SettledJoins
) -> BucketMap[int, tuple[ArrangementRef, ...]]:
    if not change.arrangements and not change.drop_arrangements:
        return runs
    put: dict[int, tuple[ArrangementRef, ...]] = {}
    gone = {run.path for run in change.drop_arrangements}
    for id in {r.segment_id for r in (*change.arrangements, *change.drop_arrangements)}:
        kept = [r for r in runs.get(id, ()) if r.path not in gone]
        put[id] = (*kept, *(r for r in change.arrangements if r.segment_id == id))
    empty = [id for id, own in put.items() if not own]
    return runs.changed({id: own for id, own in put.items() if own}, drop=empty)


def write_joins(connection: Connection, change: SettledJoins) -> None:
    """The rows of a change, deletions first."""
    many = connection.executemany
    for table, column, keys in (
        ("join_core", "id", list(change.drop_cores)),
        ("join_use", "query_id", [u.query_id for u in change.drop_uses]),
        ("pairs", "id", [f.id for f in change.drop_pairs]),
        ("arrangement", "path", [r.path for r in change.drop_arrangements]),
    ):
        if keys:
            many(f"DELETE FROM {table} WHERE {column} = ?", [(key,) for key in keys])
    many("INSERT OR REPLACE INTO join_core VALUES (?, ?, ?, ?)", map(_core_row, change.cores))
    many(
        "INSERT OR REPLACE INTO join_use VALUES (?, ?, ?, ?, ?)",
        [
            (u.query_id, u.core_id, json.dumps(u.leaves), json.dumps(u.spans), u.number)
            for u in change.uses
        ],
    )
    many(
        "INSERT INTO pairs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [tuple(vars(file).values()) for file in change.pairs],
    )
    many(
        "INSERT INTO arrangement VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [tuple(vars(run).values()) for run in change.arrangements],
    )


def _core_row(core: JoinCore) -> tuple[int, str, bytes, str]:
    body = {
        "stream_ids": core.stream_ids,
        "next_use": core.next_use,
        "upto": core.upto,
        "covered": core.covered,
        "epoch": core.epoch,
        "since": core.since,
    }
    return core.id, core.key, core.plan, json.dumps(body, separators=(",", ":"))


def read_joins(database: Database) -> Joins:
    """What the last committed epoch left."""
    cores = []
    for id, key, plan, text in database.read("SELECT id, key, plan, body FROM join_core"):
        body = json.loads(text)
        cores.append(
            JoinCore(
                id,
                key,
                plan,
                tuple(body["stream_ids"]),
                body["next_use"],
                body["upto"],
                tuple(body["covered"]),
                body["epoch"],
                tuple((use, instant) for use, instant in body["since"]),
            )
        )
    return succeed_joins(
        Joins(),
        SettledJoins(
            cores=tuple(cores),
            uses=tuple(
                JoinUse(id, core_id, tuple(json.loads(leaves)), tuple(json.loads(spans)), number)
                for id, core_id, leaves, spans, number in database.read("SELECT * FROM join_use")
            ),
            pairs=tuple(PairsRef(*row) for row in database.read("SELECT * FROM pairs")),
            arrangements=tuple(
                ArrangementRef(*row)
                for row in database.read(
                    "SELECT segment_id, key, shard, shards, path, rows, checksum, bytes"
                    " FROM arrangement ORDER BY path"
                )
            ),
        ),
    )
