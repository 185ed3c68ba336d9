"""Looks at the most promising part of new elements in a worker, for followed queries with a budget.

A job takes all its queries from one position to another in steps that end at the lines of their
summaries' grid (`engine/promising/step.py`), and writes what was found, and what waits. Segments,
summaries and Query SteMs that the worker keeps from job to job only save work: what waits comes
with the job, and all else follows from the kept elements.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from millpond.catalog.objects import SummaryDef
from millpond.engine.joins.arrangement import SortedRun
from millpond.engine.joins.keys import Axis, Numbers, axis_of
from millpond.engine.promising.estimating import LookedStep
from millpond.engine.promising.look import Look
from millpond.engine.promising.probing import Found
from millpond.engine.promising.step import MOST_FOUND, Family, FamilyState
from millpond.engine.promising.value_index import ValueIndex
from millpond.engine.scalars.residual_query import Residual
from millpond.errors import MillpondError
from millpond.model.schema import Schema
from millpond.model.time import BEGINNING, END
from millpond.model.windows import list_delays, slide_of
from millpond.runtime.advance_job import AdvanceJob, SegmentFile, Sink
from millpond.runtime.batch_tasks import BuiltSegment, SplitRun
from millpond.runtime.look_results import Finished, finish_estimates, finish_rows
from millpond.runtime.look_state import read_state, write_state
from millpond.runtime.summary_tasks import SummaryPlan
from millpond.state.arrow_file import write_together
from millpond.state.segment_file import global_seq, open_segment
from millpond.state.store import new_path
from millpond.state.version import WAITING
from millpond.synopses.summaries.stream_summary import StreamSummary

T = TypeVar("T")

_NOTHING = np.empty(0, np.int64), np.empty(0)


class _Kept:
    """What this process keeps from job to job; the least recently used goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            found: T | None = self._kept.get(key)
        if found is None:
            found = make()
        self.put(key, found)
        return found

    def find(self, key: Hashable) -> Any:
        with self._lock:
            return self._kept.get(key)

    def put(self, key: Hashable, value: object) -> None:
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)


_views, _families, _summaries = _Kept(1_024), _Kept(16), _Kept(64)
_residual = Residual()


class RegionSegment:
    """A kept segment, as regions are looked for in it."""

    def __init__(self, store: str, file: SegmentFile) -> None:
        self.file = file
        self.table = open_segment(Path(store) / file.path, file.checksum)
        self.ts: np.ndarray = self.table["__ts"].to_numpy()
        self._runs: dict[str, SortedRun] = {}

    @cached_property
    def _arrivals(self) -> Numbers:
        return global_seq(self.table["__seq"].to_numpy(), self.file.seq_runs)

    @property
    def arrived(self) -> tuple[int, int]:
        return int(self._arrivals.min()), int(self._arrivals.max())

    def sequence(self, rows: np.ndarray) -> np.ndarray:
        return self._arrivals[rows]

    def get_run(self, key: str, arrange: Callable[[], SortedRun]) -> SortedRun:
        found = self._runs.get(key)
        if found is None:
            found = self._runs[key] = arrange()
        return found


class EmptySegment(RegionSegment):
    """No elements of a stream, with its columns: what a join looks through before there are any."""

    def __init__(self, schema: Schema) -> None:
        self.table = schema.to_arrow().empty_table()
        self.ts = np.empty(0, np.int64)
        self._runs = {}

    @property
    def arrived(self) -> tuple[int, int]:
        return int(BEGINNING), int(BEGINNING)

    def sequence(self, rows: np.ndarray) -> np.ndarray:
        return rows


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
        waiting: list[tuple[Sink, pa.Table]] = []
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
            for number in done:
                table = write_state(state, number, lines[-1] - 1)
                if table is not None and sinks[number].stream_id not in self.failures:
                    waiting.append((sinks[number], table))
        paths = [new_path(self.job.store, "segments") for _ in waiting]
        tables = [table for _, table in waiting]
        files = write_together(list(zip(paths, tables, strict=True)))
        built = [
            BuiltSegment(
                sink.stream_id, WAITING, file, *_ends(table), (SplitRun(0, (), 0),)
            )
            for (sink, table), file in zip(waiting, files, strict=True)
        ]  # fmt: skip
        self.discard(self.failures)
        return [*self._written, *built], frozenset(unchanged)

    def discard(self, stream_ids: Collection[int] | None = None) -> None:
        """Remove the results that are written already, of some queries; None: of all."""
        gone = [p for p in self._written if stream_ids is None or p.stream_id in stream_ids]
        for piece in gone:
            piece.discard()
        self._written = [p for p in self._written if not any(p is other for other in gone)]

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
            _views.get((store, f.path, f.seq_runs), lambda f=f: RegionSegment(store, f))  # type: ignore[misc]
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
        key = (self.job.store, self.job.life, definition.id)
        known: StreamSummary | None = _summaries.find(key)
        if known is not None and known.position == position:
            return known
        if known is None or known.position > position:
            found, since = plan.begin(position), int(BEGINNING)
        else:
            found, since = known.move_to(position), known.position
        for view in views:
            if view.ts[-1] >= since and view.ts[0] < position:
                found = plan.add(found, view.table, view.file.seq_runs, since)
        _summaries.put(key, found)
        return found


def _summaries_of(look: Look) -> dict[int, SummaryDef]:
    """The summary of each leaf that the preference estimates."""
    return {e.leaf: replace(e.estimate.summary, file=None) for e in look.preference.estimates}


def _ends(table: pa.Table) -> tuple[int, int]:
    at = int(table["__ts"][0].as_py())
    return at, at
