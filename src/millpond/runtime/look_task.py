"""Looks at the most promising part of new elements in a worker, for followed queries with a budget.

A job takes all its queries from one position to another in steps that end at the lines of their
summaries' grid (`engine/promising/step.py`), and writes what was found, and what waits. Segments,
summaries and Query SteMs that the worker keeps from job to job only save work: what waits comes
with the job, and all else follows from the kept elements.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa

from millpond.catalog.objects import SummaryDef
from millpond.engine.joins.keys import Axis, axis_of
from millpond.engine.promising.estimating import LookedStep
from millpond.engine.promising.look import Look
from millpond.engine.promising.probing import Found
from millpond.engine.promising.step import MOST_FOUND, Family, FamilyState
from millpond.engine.promising.value_index import ValueIndex
from millpond.engine.scalars.residual_query import Residual
from millpond.errors import MillpondError
from millpond.model.summaries import MOST_TOGETHER
from millpond.model.time import BEGINNING, END
from millpond.model.windows import list_delays, slide_of
from millpond.runtime.advance_job import AdvanceJob, Sink
from millpond.runtime.batch_tasks import BuiltSegment, SplitRun
from millpond.runtime.files.log_files import discard_all
from millpond.runtime.last_used import LastUsed
from millpond.runtime.look_results import Finished, finish_estimates, finish_rows
from millpond.runtime.look_state import read_state, write_state
from millpond.runtime.region_segments import EmptySegment, RegionSegment
from millpond.runtime.summary_tasks import SummaryPlan
from millpond.state.arrow_file import FileMeta, write_together
from millpond.state.segment_file import encode_elements
from millpond.state.store import new_path
from millpond.state.version import WAITING
from millpond.synopses.summaries.stream_summary import StreamSummary

_NOTHING = np.empty(0, np.int64), np.empty(0)
_residual = Residual()


#: Bytes of runs and arrival numbers of segments that a process keeps between two jobs.
MOST_VIEW_BYTES = 256 << 20
_views: LastUsed[RegionSegment] = LastUsed(1_024, MOST_VIEW_BYTES, lambda view: view.held)
_families: LastUsed[Family] = LastUsed(16)
#: By store and id, with the opening it was made in. All summaries of a pond take `MOST_TOGETHER`,
#: and their zones and sums as much again.
_summaries: LastUsed[tuple[str, StreamSummary]] = LastUsed(
    64, 2 * MOST_TOGETHER, lambda kept: kept[1].held
)

#: Writes changes of queries as segments of their change logs.
Write = Callable[[Sequence[tuple[Sink, pa.Table]]], Iterable[BuiltSegment]]


class LookJob:
    """The looks of one job; equal parts are done once for all its queries.

    Args:
        job: The job.
        write: Writes changes as segments, in their order.

    Attributes:
        failures: As of `AdvanceResult`.
    """

    def __init__(self, job: AdvanceJob, write: Write) -> None:
        self.job = job
        self._write = write
        self._written: list[BuiltSegment] = []
        self.failures: dict[int, MillpondError] = {}
        self._members: defaultdict[object, list[Sink]] = defaultdict(list)
        for sink in job.sinks:
            assert sink.look is not None
            self._members[sink.look.family].append(sink)

    def run(self) -> tuple[list[BuiltSegment], frozenset[int]]:
        """Look; return the results and what waits as segments, and whose waiting has not changed.

        Raises:
            MillpondError: STORE-602, a segment is corrupt; STORE-603, a file cannot be written.
        """
        waiting: list[tuple[pa.Table, list[tuple[int, int, int]], int]] = []
        unchanged: set[int] = set()
        for sinks in self._members.values():
            looks = [sink.look for sink in sinks if sink.look is not None]
            lines = self._find_lines(looks[0])
            if not lines:
                unchanged.update(sink.stream_id for sink in sinks)
                continue
            steps, state = self._look(sinks, looks, lines)
            done = [
                number for number, sink in enumerate(sinks) if sink.stream_id not in self.failures
            ]
            finish = finish_estimates if looks[0].kind == "aggregate" else finish_rows
            self._finish(sinks, finish(_residual, looks, done, steps, state))
            done = [n for n in done if sinks[n].stream_id not in self.failures]
            table, places = write_state(state, done, lines[-1] - 1)
            if places:
                owners = [(sinks[n].stream_id, start, rows) for n, start, rows in places]
                waiting.append((table, owners, lines[-1] - 1))
        for kept in (_views, _summaries):
            kept.trim()
        self.discard(self.failures)
        return [*self._written, *self._write_waiting(waiting)], frozenset(unchanged)

    def _write_waiting(
        self, waiting: Sequence[tuple[pa.Table, list[tuple[int, int, int]], int]]
    ) -> Iterable[BuiltSegment]:
        """Write what waits: a file for each family, in which each query has its own rows."""
        paths = [new_path(self.job.store, "segments") for _ in waiting]
        tables = [encode_elements(table) for table, _, _ in waiting]
        files = write_together(list(zip(paths, tables, strict=True)))
        for (_, owners, at), file in zip(waiting, files, strict=True):
            for stream_id, start, rows in owners:
                own = FileMeta(file.path, rows, file.bytes, file.checksum)
                run = (SplitRun(0, (), 0),)
                yield BuiltSegment(stream_id, WAITING, own, at, at, run, start=start)

    def discard(self, stream_ids: Collection[int] | None = None) -> None:
        """Remove the results that are written already, of some queries; None: of all."""
        gone = [p for p in self._written if stream_ids is None or p.stream_id in stream_ids]
        self._written = [p for p in self._written if not any(p is other for other in gone)]
        discard_all(gone, self._written)

    def _finish(self, sinks: Sequence[Sink], finished: Finished) -> None:
        """Write results behind those that are written already."""
        results: list[tuple[Sink, pa.Table]] = []
        for number, made in finished.items():
            if isinstance(made, MillpondError):
                self.failures[sinks[number].stream_id] = made
            elif sinks[number].stream_id not in self.failures:
                results.append((sinks[number], made))
        self._written += self._write(results)

    def _look(
        self, sinks: Sequence[Sink], looks: Sequence[Look], lines: Sequence[int]
    ) -> tuple[dict[int, list[LookedStep]], FamilyState]:
        """Make the steps of a family: what each query found in them, and what waits."""
        key = (self.job.life, tuple((s.stream_id, s.look.weight if s.look else 0) for s in sinks))
        family = _families.get(key, lambda: Family(looks, _residual))
        family.failures.clear()
        state = read_state([sink.waiting for sink in sinks], self.job.store, self.job.position)
        indexes = [self._index(looks[0], leaf) for leaf in range(len(looks[0].streams))]
        steps: dict[int, list[LookedStep]] = defaultdict(list)
        at = 0

        def spill(found: Mapping[int, Found]) -> None:
            """Write what was found so far; who has failed before gets nothing more."""
            for number, rows in found.items():
                steps[number].append(LookedStep(at, rows, *_NOTHING))
            done = [n for n in steps if sinks[n].stream_id not in self.failures]
            self._finish(sinks, finish_rows(_residual, looks, done, steps, state))
            steps.clear()

        is_estimate = looks[0].kind == "aggregate"
        for line in lines:
            at = line - 1
            after = max(self.job.position, line - looks[0].line - 1)
            summaries = {
                leaf: self._summarize(definition, looks[0].streams[leaf].stream, line)
                for leaf, definition in _summaries_of(looks[0]).items()
            }
            found = family.step(
                state, indexes, summaries, after, line, None if is_estimate else spill
            )
            for number in range(len(looks)) if is_estimate else found:
                listed, worth = family.listed.get(number, _NOTHING)
                steps[number].append(LookedStep(at, found.get(number), listed, worth))
            held = sum(
                len(step.found.priority)
                for own in (() if is_estimate else steps.values())
                for step in own
                if step.found is not None
            )
            if held >= MOST_FOUND:
                spill({})
        for number, error in family.failures.items():
            self.failures[sinks[number].stream_id] = error
        return steps, state

    def _find_lines(self, look: Look) -> list[int]:
        """The lines behind the elements after the job's position, up to its end."""
        found: list[np.ndarray] = []
        for leaf in look.streams:
            # An estimate also changes when elements leave the window or, with SLIDE, enter it.
            delays = list_delays(leaf.window) if look.kind == "aggregate" else ()
            slide = slide_of(leaf.window)
            own = np.array([self.job.position, self.job.upto], np.int64)
            for view, delay in product(self._list_views(leaf.stream), (None, *delays)):
                edges = own if delay is None else own // slide * slide - delay
                low, high = np.searchsorted(view.ts, edges, "right")
                due = view.ts[low:high]
                if delay is not None:
                    due = -(-(due + delay) // slide) * slide
                found.append(np.unique(due // look.line))
        lines = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
        return [(int(line) + 1) * look.line for line in lines]

    def _list_views(self, stream: str) -> list[RegionSegment]:
        store = self.job.store
        return [
            _views.get((store, f.path, f.seq_runs, f.added), lambda f=f: RegionSegment(store, f))  # type: ignore[misc]
            for f in self.job.streams.get(stream, ())
        ]

    def _index(self, look: Look, leaf: int) -> ValueIndex:
        own = look.streams[leaf]
        types = [s.schema.find(s.key) for s in look.streams]
        axis = axis_of(*(f.type if f else "" for f in (types[0], types[-1])))
        assert isinstance(axis, Axis)
        views = self._list_views(own.stream) or [EmptySegment(own.schema)]
        nulls = look.kind != "join"
        return ValueIndex(views, own.key, axis, BEGINNING, END - 1, END, with_nulls=nulls)

    def _summarize(self, definition: SummaryDef, stream: str, line: int) -> StreamSummary:
        """A summary at the last of its lines up to an instant (INV-SUMMARY-1)."""
        views = self._list_views(stream)
        type_ = next(
            field.type
            for look in (s.look for s in self.job.sinks)
            if look is not None
            for leaf in look.streams
            if leaf.stream == stream and (field := leaf.schema.find(definition.attribute))
        )
        plan = SummaryPlan.of(definition, type_)
        position = line // plan.grid.line * plan.grid.line
        key = (self.job.store, definition.id)
        life, known = _summaries.find(key) or ("", None)
        if life != self.job.life:
            known = None
        if known is not None and known.position == position:
            return known
        if known is None or known.position > position:
            found, since = plan.begin(position), int(BEGINNING)
        else:
            found, since = known.move_to(position), known.position
        for view in views:
            if view.ts[-1] >= since and view.ts[0] < position:
                found = plan.add(found, view.table, view.file.seq_runs, since)
        _summaries.put(key, (self.job.life, found))
        return found


def _summaries_of(look: Look) -> dict[int, SummaryDef]:
    """The summary of each leaf that the preference estimates."""
    return {e.leaf: replace(e.estimate.summary, file=None) for e in look.preference.estimates}
