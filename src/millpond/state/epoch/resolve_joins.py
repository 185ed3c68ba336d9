"""Resolves changes of shared joins, as `resolve_change` does for the rest of an epoch.

A change states what its author wants. The resolved change has the numbers filled in and lists the
consequences: a core and its files go with the last use of the core, and runs go with their
segments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from millpond.state.id_map import IdMap
from millpond.state.join_state import (
    NO_USERS,
    ArrangementRef,
    JoinChange,
    JoinCore,
    Joins,
    JoinUse,
    PairsRef,
)


class StaleJoin(Exception):
    """The core that a change refers to has changed or gone meanwhile."""


@dataclass(frozen=True, kw_only=True)
class ResolvedJoins:
    """A change of shared joins with its numbers filled in and its consequences listed."""

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


def resolve_joins(
    change: JoinChange,
    joins: Joins,
    next_id: int,
    dropped: Iterable[int],
    gone: set[int],
    has_segment: Mapping[int, object],
) -> ResolvedJoins:
    """Resolve a change against the current shared joins.

    Args:
        change: The change.
        joins: The current shared joins.
        next_id: The next free number of cores and files.
        dropped: Ids of definitions that the same epoch drops.
        gone: Ids of segments that the same epoch drops.
        has_segment: The segments before the epoch.

    Raises:
        StaleJoin: a core that the change refers to is gone.
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
    return ResolvedJoins(
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


def next_joins(joins: Joins, change: ResolvedJoins) -> Joins:
    """Make the shared joins after a change."""
    if change.is_nothing:
        return joins
    cores = {id: core for id, core in joins.cores.items() if id not in change.drop_cores}
    cores.update((core.id, core) for core in change.cores)
    members = {id: own for id, own in joins.members.items() if id in cores}
    for use in change.drop_uses:
        if use.core_id in members:
            members[use.core_id] = members[use.core_id].with_changes({}, drop=[use.number])
    for use in change.uses:
        own = members.get(use.core_id, NO_USERS)
        members[use.core_id] = own.with_changes({use.number: use.query_id})
    pairs_of = {id: own for id, own in joins.pairs_of.items() if id in cores}
    gone = {file.id for file in change.drop_pairs}
    for id in {f.core_id for f in (*change.pairs, *change.drop_pairs)} & cores.keys():
        kept = [f for f in joins.pairs(id) if f.id not in gone]
        kept += [f for f in change.pairs if f.core_id == id]
        pairs_of[id] = tuple(sorted(kept, key=lambda f: (f.min_oldest, f.id)))
    return Joins(
        MappingProxyType(cores),
        MappingProxyType({core.key: id for id, core in cores.items()}),
        joins.uses.with_changes(
            {use.query_id: use for use in change.uses},
            drop=[use.query_id for use in change.drop_uses],
        ),
        MappingProxyType(members),
        MappingProxyType(pairs_of),
        _with_runs(joins.runs_of, change),
    )


def _with_runs(
    runs: IdMap[tuple[ArrangementRef, ...]], change: ResolvedJoins
) -> IdMap[tuple[ArrangementRef, ...]]:
    if not change.arrangements and not change.drop_arrangements:
        return runs
    put: dict[int, tuple[ArrangementRef, ...]] = {}
    gone = {run.path for run in change.drop_arrangements}
    for id in {r.segment_id for r in (*change.arrangements, *change.drop_arrangements)}:
        kept = [r for r in runs.get(id, ()) if r.path not in gone]
        put[id] = (*kept, *(r for r in change.arrangements if r.segment_id == id))
    empty = [id for id, own in put.items() if not own]
    return runs.with_changes({id: own for id, own in put.items() if own}, drop=empty)
