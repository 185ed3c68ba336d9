"""Maintenance of shared joins: builds and probes SteMs in the background, as epochs come.

A core is brought up to date in rounds: new uses probe what was covered before them (new queries
probe old data), then everything that arrived since probes and is probed (new data probes old
data, and what is new of the other streams). Each round is one job for each shard and one commit. So
a reader sees all of a round or none; invocation joins what is lacking.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from millpond.engine.eddy.eddy import Ledger
from millpond.engine.joins.plan import ArrangementKey, JoinPlan
from millpond.model.time import BEGINNING
from millpond.runtime import join_tasks
from millpond.runtime.files.pair_files import BuiltPairs, FoldPairsJob, fold_pairs
from millpond.runtime.join_segments import BuiltRun
from millpond.runtime.join_tasks import ProbeJob, ProbeResult
from millpond.service.ingest.segment_refs import relative_path
from millpond.service.maintenance.join_rounds import (
    JoinSettings,
    Round,
    find_round_of_elements,
    find_round_of_uses,
    jobs_of,
    needed_from,
)
from millpond.service.maintenance.segment_tasks import SegmentTasks
from millpond.state.arrow_file import FileMeta
from millpond.state.epoch.epoch_change import EpochChange, StaleChange
from millpond.state.epoch_log import EpochLog
from millpond.state.join_state import ArrangementRef, JoinChange, JoinCore, PairsRef
from millpond.state.version import Version

log = logging.getLogger("millpond.joins")

#: Files of one level and one range of uses from which on they are folded.
_MOST_FILES = 8
#: Pairs beyond which a file is not folded further.
_LARGE = 16_000_000


class JoinMaintenance:
    """The part of maintenance that is about joins; for use by its one thread.

    Args:
        store: The store's directory.
        epochs: Its epoch log.
        tasks: Runs tasks over segments.
    """

    def __init__(
        self,
        store: Path,
        epochs: EpochLog,
        tasks: SegmentTasks,
        settings: JoinSettings | None = None,
    ) -> None:
        self._store = store
        self._log = epochs
        self._tasks = tasks
        self.settings = settings or JoinSettings()
        #: What the eddies learnt, by core.
        self.ledgers: dict[int, Ledger] = {}
        #: Cores with a factor that cannot be evaluated over every element, and why: a query that
        #: guards it with another predicate is joined at invocation.
        self.failed: dict[int, str] = {}
        self._plans: dict[int, JoinPlan] = {}
        self._tidied: object = None

    def plan(self, core: JoinCore) -> JoinPlan:
        """A core's plan."""
        found = self._plans.get(core.id)
        if found is None:
            found = self._plans[core.id] = JoinPlan.unpack(core.plan)
        return found

    def run_rounds(self) -> bool:
        """Do a round of each kind of every core; False when there was nothing to do.

        So queries that keep coming keep no element waiting.
        """
        busy = [self._run_round(find) for find in (find_round_of_uses, find_round_of_elements)]
        return any(busy)

    def _run_round(self, find: Callable[[Version, JoinCore], Round | None]) -> bool:
        """Do one round of every core that has one, in one job."""
        with self._log.pin() as version:
            cores = self._choose_cores(version)
            due = [(core, found) for core in cores if (found := find(version, core))]
            jobs = [self._jobs(version, core, found) for core, found in due]
            touched = {s for core, _ in due for id in core.stream_ids for s in version.segments(id)}
            every = [job for own in jobs for job in own]
            probed: list[ProbeResult] = (
                self._tasks.run(join_tasks.probe, every, touched) if every else []
            )
            if len(probed) != len(every):
                return True
            at_work = {core.id for core, _ in due}
            idle = [core for core in version.joins.cores.values() if core.id not in at_work]
            busy = [
                self._drop_unneeded_pairs(version, core) or self._fold(version, core)
                for core in idle
            ]
        rest = iter(probed)
        for (core, found), own in zip(due, jobs, strict=True):
            self._finish(core, found, [next(rest) for _ in own])
        return bool(due) or any(busy)

    def _choose_cores(self, version: Version) -> list[JoinCore]:
        """The cores to keep up to date: if there are too many, those that most queries use."""
        cores = [
            core
            for core in version.joins.cores.values()
            if core.id not in self.failed
            # What a corrupt segment held cannot be known, and invocation says so.
            and not any(
                not self._tasks.is_readable(s)
                for id in core.stream_ids
                for s in version.segments(id)
            )
        ]
        if len(cores) > self.settings.max_cores:
            cores.sort(key=lambda core: (-len(version.joins.users(core.id)), core.id))
        return cores[: self.settings.max_cores]

    def _finish(self, core: JoinCore, due: Round, probed: list[ProbeResult]) -> None:
        """Commit what the jobs of a core found, or react to their failure."""
        if any(item.failed for item in probed):
            self._give_up(core.id, probed)
            return
        self._learn(core.id, probed)
        exploded: dict[int, int] = {}
        for item in probed:
            exploded.update(item.exploded)
        if exploded:
            self._discard_all(probed)
            self._explode(due, exploded)
            return
        with suppress(StaleChange):  # queries came or went meanwhile
            self._commit(core, due, probed)

    def keys(self, core: JoinCore) -> list[tuple[int, ArrangementKey]]:
        """List the (stream, key) pairs of the SteMs that a core may probe."""
        return list(self.plan(core).stems())

    def _give_up(self, core_id: int, probed: Sequence[ProbeResult]) -> None:
        self._discard_all(probed)
        self.failed[core_id] = next(item.failed for item in probed if item.failed)
        log.info("a join is left to invocation: %s", self.failed[core_id])

    def _jobs(self, version: Version, core: JoinCore, due: Round) -> list[ProbeJob]:
        learnt = self.ledgers.get(core.id, Ledger()).accounts
        return jobs_of(version, core, due, self.plan(core), self.settings, learnt, str(self._store))

    def _learn(self, core_id: int, probed: Iterable[ProbeResult]) -> None:
        ledger = self.ledgers.setdefault(core_id, Ledger())
        for item in probed:
            for name, account in item.accounts.items():
                ledger.accounts[name] = account
            ledger.visits += item.visits
            ledger.routed += item.routed

    def _explode(self, due: Round, exploded: dict[int, int]) -> None:
        """Store no pairs for uses that have too many of them: invocation joins them.

        They stay without until their query is defined or activated anew.
        """
        gone = [use.query_id for use in due.uses if use.number in exploded]

        def change(now: Version) -> EpochChange:
            left = [id for id in gone if now.joins.core_of(id) is not None]
            return EpochChange(kind="implicit", joins=JoinChange(drop_uses=left))

        with suppress(StaleChange):
            self._log.commit(change)
        for use in due.uses:
            query = self._log.version.queries.get(use.query_id)
            if use.number in exploded and query is not None:
                log.warning(
                    "the pairs of query %s are not stored: its join finds %s in one batch, and at"
                    " most %s are stored; its answers are joined when they are asked for",
                    query.name,
                    f"{exploded[use.number]:,}",
                    f"{self.settings.max_pairs:,}",
                )

    def _commit(self, core: JoinCore, due: Round, probed: Sequence[ProbeResult]) -> None:
        pairs = [_pairs_ref(core, due, found) for item in probed for found in item.pairs]
        runs = {
            (run.segment_id, run.key, run.shard): _run_ref(run)
            for item in probed
            for run in item.runs
        }

        def change(now: Version) -> EpochChange:
            current = now.joins.cores.get(core.id)
            if current is None or replace(current, next_use=core.next_use) != core:
                raise StaleChange(f"join {core.id} is not what it was")
            after = (
                current.with_since(due.low, due.since)
                if due.upto > core.upto
                else current.with_none_before(due.since)
            )
            after = replace(
                after, upto=max(core.upto, due.upto), covered=due.limit, epoch=due.epoch
            )
            return EpochChange(
                kind="probe",
                joins=JoinChange(
                    cores=[after],
                    pairs=pairs,
                    arrangements=[r for r in runs.values() if not _has(now, r)],
                ),
            )

        try:
            self._log.commit(change)
        except BaseException:
            self._discard_all(probed)
            raise
        self._discard(r.file for item in probed for r in item.runs if not self._refers(r))

    def _refers(self, run: BuiltRun) -> bool:
        name = relative_path(run.file.path)
        return any(r.path == name for r in self._log.version.joins.runs(run.segment_id))

    def _discard_all(self, probed: Iterable[ProbeResult]) -> None:
        for item in probed:
            self._discard(file.file for file in item.pairs)
            self._discard(run.file for run in item.runs)

    @staticmethod
    def _discard(files: Iterable[FileMeta]) -> None:
        for file in files:
            file.path.unlink(missing_ok=True)

    # -- forgetting ----------------------------------------------------------------------------

    def _drop_unneeded_pairs(self, version: Version, core: JoinCore) -> bool:
        """Drop files all of whose tuples have a constituent that left every window."""
        uses = [version.joins.uses[id] for id in version.joins.users(core.id).values()]
        needed = min((needed_from(version, core, use) for use in uses), default=BEGINNING)
        gone = [file for file in version.joins.pairs(core.id) if file.max_oldest < needed]
        if not gone:
            return False

        def change(now: Version) -> EpochChange:
            current = now.joins.cores.get(core.id)
            if current != core:
                raise StaleChange(f"join {core.id} is not what it was")
            after = current.with_none_before(needed)
            return EpochChange(kind="expire", joins=JoinChange(cores=[after], drop_pairs=gone))

        with suppress(StaleChange):
            self._log.commit(change)
        return True

    def _fold(self, version: Version, core: JoinCore) -> bool:
        """Fold many small files of pairs for the same uses into one."""
        alike: dict[tuple[int, int, int], list[PairsRef]] = {}
        for file in version.joins.pairs(core.id):
            if file.pairs < _LARGE:
                alike.setdefault((file.low, file.upto, file.level), []).append(file)
        chosen = next((files for files in alike.values() if len(files) >= _MOST_FILES), None)
        if chosen is None:
            return False
        job = FoldPairsJob(str(self._store), tuple((file.path, file.checksum) for file in chosen))
        (folded,) = self._tasks.run(fold_pairs, [job], ()) or (None,)
        if folded is None:
            return False
        first = chosen[0]
        ref = replace(
            first,
            id=0,
            level=first.level + 1,
            path=relative_path(folded.file.path),
            pairs=folded.file.rows,
            min_oldest=min(file.min_oldest for file in chosen),
            max_oldest=max(file.max_oldest for file in chosen),
            checksum=folded.file.checksum,
            bytes=folded.file.bytes,
        )

        def change(now: Version) -> EpochChange:
            if any(file not in now.joins.pairs(core.id) for file in chosen):
                raise StaleChange("files of pairs are not there any more")
            return EpochChange(kind="fold", joins=JoinChange(pairs=[ref], drop_pairs=chosen))

        with suppress(StaleChange):
            try:
                self._log.commit(change)
            except BaseException:
                self._discard([folded.file])
                raise
        return True

    def tidy(self) -> bool:
        """Drop the runs that no core needs: a SteM is dropped with the last query that needs it."""
        with self._log.pin() as version:
            joins = version.joins
            if joins.cores.keys() == self._tidied:
                return False
            needed: dict[int, set[tuple[str, int]]] = {}
            for core in joins.cores.values():
                for leaf, key in self.plan(core).stems():
                    shards = self.settings.shards if key.values else 1
                    needed.setdefault(core.stream_ids[leaf], set()).add((key.text, shards))
            gone = []
            for segment_id, runs in joins.runs_of.items():
                segment = version.segment(segment_id)
                own = needed.get(segment.stream_id, set()) if segment is not None else set()
                gone += [r for r in runs if (r.key, r.shards) not in own]
            if gone:
                self._log.commit(EpochChange(kind="tidy", joins=JoinChange(drop_arrangements=gone)))
            self._tidied = set(joins.cores)
            for id in self._plans.keys() - joins.cores.keys():
                del self._plans[id]
                self.ledgers.pop(id, None)
            return bool(gone)


def _has(version: Version, run: ArrangementRef) -> bool:
    own = (run.key, run.shard, run.shards)
    return any((r.key, r.shard, r.shards) == own for r in version.joins.runs(run.segment_id))


def _pairs_ref(core: JoinCore, due: Round, found: BuiltPairs) -> PairsRef:
    return PairsRef(
        0,
        core.id,
        due.low,
        due.upto,
        0,
        relative_path(found.file.path),
        found.file.rows,
        found.min_oldest,
        found.max_oldest,
        found.file.checksum,
        found.file.bytes,
    )


def _run_ref(run: BuiltRun) -> ArrangementRef:
    return ArrangementRef(
        run.segment_id,
        run.key,
        run.shard,
        run.shards,
        relative_path(run.file.path),
        run.file.rows,
        run.file.checksum,
        run.file.bytes,
    )
