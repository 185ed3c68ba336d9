"""Joins in a worker: probes the SteMs with new elements and writes the tuples that are found.

Like all tasks, probe jobs are functions of the files they are given, write files nobody sees before
the driver commits them, and can be run again anywhere.

A probe job is for one shard of one core. For every stream in turn, the stream's new elements start
as composites of one element and probe the SteMs of the other streams. They see all elements of
streams before theirs in the order of FROM, and only the old elements of streams after theirs. So
every tuple with a new constituent is found once, from the last stream that has a new constituent
(CACQ, section 3.3.1: build before probe, by sequence number).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from millpond.engine.eddy.eddy import Eddy, Ledger
from millpond.engine.eddy.routing import Account, policy
from millpond.engine.joins.arrangement import Places, shard_range
from millpond.engine.joins.join import MORSEL, Composites, PairLimit, Reach, SteMProbe, TooManyPairs
from millpond.engine.joins.join_stem import JoinSteM, StemPart
from millpond.engine.joins.keys import Mask, Numbers, combine_columns
from millpond.engine.joins.plan import JoinPlan
from millpond.engine.joins.stretched_pairs import StretchedPairs, lay_stretched, number_arrivals
from millpond.errors import MillpondError
from millpond.runtime.files.pair_files import BuiltPairs, write_pairs
from millpond.runtime.join_segments import (
    ArrivalNumbers,
    BuiltRun,
    SegmentPart,
    StoredRuns,
    query_sets,
)
from millpond.state.arrow_file import write_arrow
from millpond.state.segment_file import open_segment
from millpond.state.store import new_path

#: How many tuples a file of pairs gets before it is written.
_FILE_PAIRS = 8_000_000


@dataclass(frozen=True)
class ProbeJob:
    """Find the tuples with a new constituent, in one shard.

    Attributes:
        store: The store's directory.
        core_id: The core.
        plan: The core's join.
        shard: Which shard, of `shards`.
        shards: How many shards there are.
        leaves: For each stream its segments.
        old: For each stream the arrival number from which on elements are new.
        limit: For each stream the arrival number from which on elements are left out.
        uses: For each use its number and its slot on each stream (None: every element matches).
        spans: For each stream the span of its largest window.
        most: How many pairs the job may find.
        policy: The routing policy's name.
        accounts: The driver's accounts of the modules.
    """

    store: str
    core_id: int
    plan: JoinPlan
    shard: int
    shards: int
    leaves: tuple[tuple[SegmentPart, ...], ...]
    old: tuple[int, ...]
    limit: tuple[int, ...]
    uses: tuple[tuple[int, tuple[int | None, ...]], ...]
    spans: tuple[int | None, ...]
    most: int
    policy: str = "ticket"
    accounts: dict[str, Account] = field(default_factory=dict)


@dataclass(frozen=True)
class ProbeResult:
    """What a probe job found.

    Attributes:
        pairs: The files of pairs.
        runs: The runs that were missing and are now written.
        accounts: The eddy's new accounts of the modules.
        visits: Tuples × modules visited.
        routed: How many tuples started a probe.
        exploded: The uses whose own join has more pairs than a job may find, with the least number
            of their pairs; then there are no files.
        failed: Why a factor could not be evaluated; then there are no files either.
    """

    pairs: tuple[BuiltPairs, ...] = ()
    runs: tuple[BuiltRun, ...] = ()
    accounts: dict[str, Account] = field(default_factory=dict)
    visits: int = 0
    routed: int = 0
    exploded: dict[int, int] = field(default_factory=dict)
    failed: str = ""


def probe(job: ProbeJob) -> ProbeResult:
    """Run a probe job."""
    work = _ProbeTask(job)
    try:
        written = list(work.files(job.uses))
    except TooManyPairs as error:
        return ProbeResult(runs=tuple(work.built), exploded=work.find_excessive_uses(error))
    except MillpondError as error:
        if error.code not in ("POND-404", "POND-411"):
            raise
        return ProbeResult(failed=error.detail or error.primary)
    return ProbeResult(
        tuple(written),
        tuple(work.built),
        work.ledger.accounts,
        work.ledger.visits,
        work.ledger.routed,
    )


class _ProbeTask:
    """One probe job while it runs."""

    def __init__(self, job: ProbeJob) -> None:
        self.job = job
        self.plan = job.plan
        self.built: list[BuiltRun] = []
        #: With two streams, a shard's tuples probe only their own shard of the SteMs.
        self.sharded = job.shards > 1 and len(job.leaves) == 2
        self.ledger = Ledger()
        for name, account in job.accounts.items():
            self.ledger.accounts[name] = account

    def files(self, uses: Sequence[tuple[int, tuple[int | None, ...]]]) -> Iterator[BuiltPairs]:
        """Join and write."""
        stems = [self._stem(leaf, [slots[leaf] for _, slots in uses]) for leaf in self.leaves]
        budget = PairLimit(self.job.most)
        for start in self.leaves:
            module = self._find_only_probe(stems, start, budget, len(uses))
            if module is None:
                yield from self._write_tuples(self._tuples(stems, start, budget, len(uses)))
            else:
                yield from self._write_all_stretches(stems, start, module)

    def _find_only_probe(
        self, stems: list[JoinSteM], start: int, budget: PairLimit, uses: int
    ) -> SteMProbe | None:
        """Find the one probe of a join of two streams whose pairs can be written as stretches."""
        if len(stems) != 2 or max(self.job.limit) >= 2**32:
            return None
        leaf = 1 - start
        step = self.plan.step(frozenset([start]), leaf)
        if step is None or step.filters or step.key.order != self.plan.time_of(leaf):
            return None
        if any(part.sets is not None for part in stems[leaf].parts):
            return None
        before = self._before(start, leaf)
        chosen = []
        for number in self._choose_parts(stems[start], start, leaf):
            first, last = stems[leaf].parts[number].arrived
            if first >= before:
                continue
            if last >= before:
                return None
            chosen.append(number)
        return SteMProbe(self.plan, leaf, stems, budget, Reach(self.job.spans), uses, None, chosen)

    def _write_all_stretches(
        self, stems: list[JoinSteM], start: int, module: SteMProbe
    ) -> Iterator[BuiltPairs]:
        """Join two streams and write the pairs of the stretches."""
        waiting: list[StretchedPairs] = []
        known: dict[StemPart, tuple[Places, int]] = {}
        count = 0
        time_of = self.plan.time_of(start)
        for morsel in self._gather_new(stems, start):
            begun = time.perf_counter_ns()
            places, came = morsel.places[start], count
            arrivals = stems[start].arrivals(places)
            stamps = stems[start].gather(time_of, places).numbers
            for part, run, batch, found in module.probe_stretches(morsel):
                own, when = arrivals[batch.place], stamps[batch.place]
                if part not in known:
                    known[part] = number_arrivals(part.every_arrival)
                waiting.append(StretchedPairs.of(found, own, when, run, known[part]))
                count += found.pairs
            spent = time.perf_counter_ns() - begun
            self.ledger.routed += len(morsel)
            self.ledger.visits += len(morsel)
            self.ledger.set_predicates(module.name, module.predicates)
            self.ledger.count_visit(module.name, len(morsel), count - came, spent)
            if count >= _FILE_PAIRS:
                yield self._write_stretches(waiting, start)
                waiting, count = [], 0
        if count:
            yield self._write_stretches(waiting, start)

    def _write_stretches(self, waiting: list[StretchedPairs], start: int) -> BuiltPairs:
        table, low, high = lay_stretched(waiting, start)
        path = new_path(self.job.store, "pairs")
        return BuiltPairs(write_arrow(path, table, sync=False, whole=False), low, high)

    def _write_tuples(
        self, tuples: Iterable[tuple[list[JoinSteM], Composites]]
    ) -> Iterator[BuiltPairs]:
        """Write the tuples an eddy gives."""
        waiting: list[tuple[list[Numbers], Numbers]] = []
        count = 0
        for stems, found in tuples:
            places = [found.places[leaf] for leaf in range(len(stems))]
            arrivals = [s.arrivals(p) for s, p in zip(stems, places, strict=True)]
            waiting.append((arrivals, _find_oldest(self.plan, stems, places)))
            count += len(found)
            if count >= _FILE_PAIRS:
                yield self._write(waiting)
                waiting, count = [], 0
        if count:
            yield self._write(waiting)

    def find_excessive_uses(self, error: TooManyPairs) -> dict[int, int]:
        """Find the uses that find too many pairs by themselves; if none does, return all uses."""
        blamed = {}
        for use in self.job.uses if len(self.job.uses) > 1 else ():
            try:
                for _ in self.tuples([use]):
                    pass
            except TooManyPairs as own:
                blamed[use[0]] = own.pairs
        return blamed or {use[0]: error.pairs for use in self.job.uses}

    def _write(self, waiting: list[tuple[list[Numbers], Numbers]]) -> BuiltPairs:
        arrivals = [
            np.concatenate([a[leaf] for a, _ in waiting]) for leaf in range(len(self.job.leaves))
        ]
        return write_pairs(self.job.store, arrivals, np.concatenate([o for _, o in waiting]))

    def tuples(
        self, uses: Sequence[tuple[int, tuple[int | None, ...]]]
    ) -> Iterator[tuple[list[JoinSteM], Composites]]:
        """Yield the joined tuples, morsel by morsel."""
        stems = [self._stem(leaf, [slots[leaf] for _, slots in uses]) for leaf in self.leaves]
        budget = PairLimit(self.job.most)
        for start in self.leaves:
            yield from self._tuples(stems, start, budget, len(uses))

    def _before(self, start: int, leaf: int) -> int:
        """Return the arrival number from which on a leaf's elements are hidden from `start`'s."""
        return self.job.limit[leaf] if leaf < start else self.job.old[leaf]

    def _tuples(
        self, stems: list[JoinSteM], start: int, budget: PairLimit, uses: int
    ) -> Iterator[tuple[list[JoinSteM], Composites]]:
        reach = Reach(self.job.spans)
        modules = []
        for leaf in self.leaves:
            if leaf != start:
                before = self._before(start, leaf)
                chosen = self._choose_parts(stems[start], start, leaf)
                modules.append(
                    SteMProbe(self.plan, leaf, stems, budget, reach, uses, before, chosen)
                )
        eddy: Eddy[Composites] = Eddy(policy(self.job.policy, self.job.shard), self.ledger)
        for found in eddy.route(self._gather_new(stems, start), modules):
            yield stems, found

    @property
    def leaves(self) -> range:
        return range(len(self.job.leaves))

    def _stem(self, leaf: int, slots: list[int | None]) -> JoinSteM:
        parts: list[StemPart] = []
        offset = 0
        for own in self.job.leaves[leaf]:
            table = open_segment(Path(self.job.store) / own.path, own.checksum, own.added)
            sets = query_sets(self.job.store, own, table.num_rows, slots)
            runs = StoredRuns(
                self.job.store, own, self.job.shard, self.job.shards, self.sharded, self.built
            )
            arrivals = ArrivalNumbers(table, own)
            parts.append(StemPart(table, offset, arrivals, own.is_old, sets, runs))
            offset += table.num_rows
        return JoinSteM(parts)

    def _choose_parts(self, starting: JoinSteM, start: int, leaf: int) -> list[int]:
        """Choose the parts that are near enough in time to the elements that start the probe."""
        fresh = [
            own
            for part, own in zip(starting.parts, self.job.leaves[start], strict=True)
            if not part.is_old
        ]
        if not fresh:
            return []
        # Its own span limits which later elements an element joins; theirs limit the earlier ones.
        behind, ahead = self.job.spans[leaf], self.job.spans[start]
        low = None if behind is None else min(own.min_ts for own in fresh) - behind
        high = None if ahead is None else max(own.max_ts for own in fresh) + ahead
        return [
            number
            for number, own in enumerate(self.job.leaves[leaf])
            if (low is None or own.max_ts > low) and (high is None or own.min_ts < high)
        ]

    def _find_fresh(self, part: StemPart, leaf: int) -> Numbers:
        """Find the rows of a part that are new and may be in an answer."""
        if part.is_old:
            return np.zeros(0, np.int64)
        arrival = part.every_arrival
        fresh: Mask = (arrival >= self.job.old[leaf]) & (arrival < self.job.limit[leaf])
        if part.sets is not None:
            fresh &= part.sets.any(axis=1)
        return np.flatnonzero(fresh)

    def _gather_new(self, stems: list[JoinSteM], leaf: int) -> Iterator[Composites]:
        """Yield the new elements of a stream in this shard, which start the probe."""
        stem = stems[leaf]
        for part in stem.parts:
            rows = self._find_fresh(part, leaf)
            if self.job.shards > 1 and len(rows):
                rows = rows[self._are_own(part, leaf, rows)]
            for first in range(0, len(rows), MORSEL):
                chosen = rows[first : first + MORSEL]
                sets = None if part.sets is None else part.sets[chosen]
                yield Composites({leaf: chosen + part.offset}, len(chosen), sets)

    def _are_own(self, part: StemPart, leaf: int, rows: Numbers) -> Mask:
        """Mark the rows of this shard: by the key they probe with first, or in turn."""
        job = self.job
        steps = [self.plan.step(frozenset([leaf]), other) for other in self.leaves if other != leaf]
        step = next(s for s in steps if s is not None)
        if not step.probes:
            in_turn: Mask = rows % job.shards == job.shard
            return in_turn
        keys, _ = combine_columns([part.numbers(o.value) for o in step.probes])
        low, high = shard_range(job.shard, job.shards)
        own: Mask = (keys[rows] >= np.uint64(low)) & (keys[rows] <= np.uint64(high))
        return own


def _find_oldest(plan: JoinPlan, stems: list[JoinSteM], places: list[Numbers]) -> Numbers:
    stamps = [
        stem.gather(plan.time_of(leaf), own).numbers
        for leaf, (stem, own) in enumerate(zip(stems, places, strict=True))
    ]
    oldest = stamps[0]
    for own in stamps[1:]:
        oldest = np.minimum(oldest, own)
    return oldest
