"""Keeps the totals that registered queries ask for: computes them ahead, and drops them.

Invocation computes totals that are not there, so nothing waits for this, and nothing is lost if it
never runs. Small segments get no files: they are soon merged, and reading them costs little.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.runtime.aggregate_task import AggregateJob, compute_totals
from millpond.service.answers.kept_totals import KeptTotals, StoredTotals
from millpond.service.answers.segment_aggregates import list_asked
from millpond.service.maintenance.segment_tasks import SegmentTasks
from millpond.service.queries.registration import Registrar
from millpond.state.aggregate_file import Measured
from millpond.state.epoch_log import EpochLog
from millpond.state.id_map import IdMap, PageSummaries
from millpond.state.version import SegmentRef, StreamState, Version

#: Segments of fewer rows get no files of totals.
STORED_ROWS = 1 << 14
#: Segments of one round: a round holds a core while batches may wait for one.
_MOST_SEGMENTS = 4
#: Files of a segment's totals from which on they are written anew as one.
_MOST_FILES = 8

#: What a text has that aggregates: a call, or groups without one.
_AGGREGATES = re.compile(r"(?i)\(|\bGROUP\b|\bDISTINCT\b")


def list_measured(
    registrar: Registrar, version: Version, query: QueryDef
) -> tuple[int, frozenset[Measured]] | None:
    """List the totals a query asks for, and of which stream; None if it asks for none.

    A query whose predicate has no slot (`materialize = 'none'`) keeps nothing.
    """
    bound = registrar.bind_or_suspend(query)
    leaves = version.leaves(query.id)
    if bound is None or len(leaves) != 1:
        return None
    if bound.aggregates is None and bound.grouped is None:
        return None
    (leaf,), (ref,) = bound.streams, leaves
    stream = version.find(leaf.stream)
    if not isinstance(stream, StreamDef) or stream.is_pseudo:
        return None
    if ref.slot is None and leaf.shapes:
        return None
    if bound.grouped is not None:
        grouped = Measured(ref.slot, None, bound.grouped.grouped.write())
        return ref.stream_id, frozenset([grouped])
    assert bound.aggregates is not None
    measured = {
        Measured(ref.slot, each.column, each.sketch) for each in list_asked(bound.aggregates)
    }
    return ref.stream_id, frozenset(measured - {Measured(None, None)})


class AggregateMaintenance:
    """The part of maintenance that keeps totals; for use by its one thread.

    Args:
        store: The store's directory.
        epochs: Its epoch log.
        registrar: Binds queries.
        kept: The totals.
        tasks: Runs tasks over segments.
        check: Called before each query that has to be bound; raises if the thread is to end.
    """

    def __init__(
        self,
        store: Path,
        epochs: EpochLog,
        registrar: Registrar,
        kept: KeptTotals,
        tasks: SegmentTasks,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._log = epochs
        self._registrar = registrar
        self._kept = kept
        self._tasks = tasks
        self._check = check
        self._queries: IdMap[QueryDef] | None = None
        self._segments: IdMap[SegmentRef] | None = None
        #: By query, its definition, and what it asks for of which stream.
        self._of_query: dict[int, tuple[QueryDef, tuple[int, frozenset[Measured]] | None]] = {}
        self._pages = PageSummaries[QueryDef, dict[int, set[Measured]]](self._list_page)
        self._version = Version()
        self._wanted: dict[int, frozenset[Measured]] = {}
        #: Per stream, its state, all matches and the wishes with which there was nothing to do.
        self._up_to_date: dict[int, tuple[StreamState, object, frozenset[Measured]]] = {}
        #: Per segment, what its last job was asked for: matches may be missing for some of it.
        self._tried: dict[int, tuple[object, frozenset[Measured]]] = {}

    def tidy(self) -> bool:
        """Find what queries ask for now, and drop all else; False if nothing had changed."""
        version = self._log.version
        queries, segments = version.queries, version.segments_by_id
        if self._kept.take_torn():
            self._up_to_date.clear()
            self._tried.clear()
        if queries is self._queries and segments is self._segments:
            return False
        if queries is not self._queries:
            self._look(version)
        self._kept.retain(self._wanted, version)
        for id in [id for id in self._tried if version.segment(id) is None]:
            del self._tried[id]
        self._queries, self._segments = queries, segments
        return True

    def _look(self, version: Version) -> None:
        if len(self._of_query) > 2 * len(version.queries) + 128:
            self._of_query = {
                id: self._of_query[id] for id in version.queries.keys() & self._of_query
            }
        wanted: defaultdict[int, set[Measured]] = defaultdict(set)
        self._version = version
        for page in self._pages.of(version.queries):
            for stream_id, asked in page.items():
                wanted[stream_id] |= asked
        self._version = Version()
        before, self._wanted = self._wanted, {}
        for id, found in wanted.items():
            asked_now = frozenset(found)
            known = before.get(id)
            self._wanted[id] = known if known == asked_now else asked_now

    def _list_page(self, queries: Iterable[QueryDef]) -> dict[int, set[Measured]]:
        """What some queries ask for, by stream; of those that are as they were it is known."""
        wanted: defaultdict[int, set[Measured]] = defaultdict(set)
        has_views = any(relation.view for relation in self._version.relations.values())
        for query in queries:
            if not has_views and not _AGGREGATES.search(query.text):
                continue  # a hundred thousand selections are not bound for this
            known = self._of_query.get(query.id)
            if known is None or known[0] is not query:
                self._check()
                own = list_measured(self._registrar, self._version, query)
                known = self._of_query[query.id] = query, own
            if known[1] is not None and known[1][1] and query.active:
                wanted[known[1][0]] |= known[1][1]
        return wanted

    def wanted(self) -> Set[int]:
        """The streams of which queries ask for totals, as of the last `tidy`."""
        return self._wanted.keys()

    def run_round(self, stream_id: int) -> bool:
        """Compute some of the totals a stream's segments lack; False if none lacks any."""
        wanted = self._wanted.get(stream_id)
        if not wanted:
            return False
        with self._log.pin() as version:
            state = version.states.get(stream_id)
            if state is None:
                return False
            now = (state, version.matches_of, wanted)
            before = self._up_to_date.get(stream_id)
            if before and all(is_now is was for is_now, was in zip(now, before, strict=True)):
                return False
            jobs = []
            segments = []
            for segment in version.segments(stream_id):
                job = self._plan(version, segment, wanted)
                if job is not None:
                    jobs.append(job)
                    segments.append(segment)
                if len(jobs) == _MOST_SEGMENTS:
                    break
            if not jobs:
                self._up_to_date[stream_id] = now
                return False
            self._compute(jobs, segments)
            return True

    def _plan(
        self, version: Version, segment: SegmentRef, wanted: frozenset[Measured]
    ) -> AggregateJob | None:
        if segment.rows < STORED_ROWS:
            return None
        refs = version.matches(segment.id)
        if self._tried.get(segment.id) == (refs, wanted):
            return None
        self._tried[segment.id] = refs, wanted
        lacking = self._kept.lacking(segment, wanted)
        if not lacking:
            return None
        if self._kept.count_files(segment) >= _MOST_FILES:
            lacking = wanted
        matches = {
            m.slot: (ref.path, ref.checksum)
            for m in lacking
            if m.slot is not None
            for ref in refs
            if ref.low <= m.slot < ref.upto
        }
        able = sorted(
            (m for m in lacking if m.slot is None or m.slot in matches),
            key=lambda m: (-1 if m.slot is None else m.slot, m.column or "", m.sketch or ""),
        )
        if not able:
            return None
        return AggregateJob(
            str(self._store),
            segment.id,
            segment.path,
            segment.checksum,
            matches,
            tuple(able),
            version.added_columns(segment.stream_id),
        )

    def _compute(self, jobs: Sequence[AggregateJob], segments: Sequence[SegmentRef]) -> None:
        done = self._tasks.run(compute_totals, jobs, segments)
        for segment, result in zip(segments if done else (), done, strict=True):
            if result.path is not None:
                stored = StoredTotals(result.path, result.bytes, result.made)
                alone = self._kept.count_files(segment) >= _MOST_FILES
                self._kept.add_file(segment, stored, alone)
