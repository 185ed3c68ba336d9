"""Looks at the most promising part of new elements in a worker, for followed queries with a budget.

A job takes all its queries from one position to another in steps that end at the lines of their
summaries' grid (`engine/promising/step.py`), and writes what was found, and what waits. Segments,
summaries and Query SteMs that the worker keeps from job to job only save work: what waits comes
with the job, and all else follows from the kept elements.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from millpond.catalog.objects import SummaryDef
from millpond.engine.joins.arrangement import SortedRun
from millpond.engine.joins.keys import Axis, Numbers, axis_of
from millpond.engine.promising.look import PRIORITY, STEP, Look
from millpond.engine.promising.probing import Found
from millpond.engine.promising.step import Family, FamilyState
from millpond.engine.promising.value_index import ValueIndex
from millpond.engine.promising.waiting import REGION
from millpond.engine.scalars.residual_query import Limits, Residual
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING, END
from millpond.runtime.advance_job import AdvanceJob, SegmentFile, Sink
from millpond.runtime.batch_tasks import BuiltSegment, SplitRun
from millpond.runtime.summary_tasks import SummaryPlan
from millpond.state.arrow_file import write_together
from millpond.state.segment_file import global_seq, open_segment
from millpond.state.store import new_path
from millpond.state.version import WAITING
from millpond.synopses.summaries.stream_summary import StreamSummary

T = TypeVar("T")

#: Rows of a result; more than a step can find.
_MANY = 1 << 62


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


class LookJob:
    """The looks of one job; equal parts are done once for all its queries.

    Attributes:
        failures: As of `AdvanceResult`.
    """

    def __init__(self, job: AdvanceJob) -> None:
        self.job = job
        self.failures: dict[int, MillpondError] = {}
        self._members: defaultdict[object, list[Sink]] = defaultdict(list)
        for sink in job.sinks:
            assert sink.look is not None
            self._members[sink.look.family].append(sink)

    def run(self) -> tuple[list[tuple[Sink, pa.Table]], list[BuiltSegment], frozenset[int]]:
        """Look; return the results of each query, what waits, and whose waiting has not changed.

        Raises:
            MillpondError: STORE-602, a segment is corrupt; STORE-603, a file cannot be written.
        """
        results: list[tuple[Sink, pa.Table]] = []
        waiting: list[tuple[Sink, pa.Table]] = []
        unchanged: set[int] = set()
        for sinks in self._members.values():
            looks = [sink.look for sink in sinks if sink.look is not None]
            lines = self._find_lines(looks[0])
            if not lines:
                unchanged.update(sink.stream_id for sink in sinks)
                continue
            found, state = self._look(sinks, looks, lines)
            for number, (sink, look) in enumerate(zip(sinks, looks, strict=True)):
                if sink.stream_id in self.failures:
                    continue
                try:
                    results.append((sink, _finish(look, found[number])))
                except MillpondError as error:
                    self.failures[sink.stream_id] = error
                    continue
                table = _write_state(state, number, lines[-1] - 1)
                if table is not None:
                    waiting.append((sink, table))
        paths = [new_path(self.job.store, "segments") for _ in waiting]
        tables = [table for _, table in waiting]
        files = write_together(list(zip(paths, tables, strict=True)))
        built = [
            BuiltSegment(
                sink.stream_id, WAITING, file, *_ends(table), (SplitRun(0, (), 0),)
            )
            for (sink, table), file in zip(waiting, files, strict=True)
        ]  # fmt: skip
        return results, built, frozenset(unchanged)

    def _look(
        self, sinks: Sequence[Sink], looks: Sequence[Look], lines: Sequence[int]
    ) -> tuple[dict[int, list[tuple[int, Found]]], FamilyState]:
        """Make the steps of a family: what each query found by step, and what waits."""
        key = (self.job.life, tuple((s.stream_id, s.look.weight if s.look else 0) for s in sinks))
        family = _families.get(key, lambda: Family(looks, _residual))
        family.failures.clear()
        state = self._read_state(sinks)
        indexes = [self._index(looks[0], leaf) for leaf in range(len(looks[0].streams))]
        found: dict[int, list[tuple[int, Found]]] = defaultdict(list)
        for line in lines:
            after = max(self.job.position, line - looks[0].line - 1)
            summaries = {
                leaf: self._summarize(definition, looks[0].streams[leaf].stream, line)
                for leaf, definition in _summaries_of(looks[0]).items()
            }
            for number, rows in family.step(state, indexes, summaries, after, line).items():
                found[number].append((line - 1, rows))
        for number, error in family.failures.items():
            self.failures[sinks[number].stream_id] = error
        return found, state

    def _find_lines(self, look: Look) -> list[int]:
        """The lines behind the elements after the job's position, up to its end."""
        found: list[np.ndarray] = []
        for leaf in look.streams:
            for view in self._list_views(leaf.stream):
                low, high = np.searchsorted(view.ts, (self.job.position, self.job.upto), "right")
                found.append(np.unique(view.ts[low:high] // look.line))
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
        views = self._list_views(own.stream)
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

    def _read_state(self, sinks: Sequence[Sink]) -> FamilyState:
        """What waits, of all queries of a family."""
        state = FamilyState.of(len(sinks))
        parts = []
        for number, sink in enumerate(sinks):
            if sink.waiting is None:
                continue
            path, checksum = sink.waiting
            table = open_segment(Path(self.job.store) / path, checksum)
            rows = np.empty(table.num_rows, REGION)
            for name in REGION.names or ():
                rows[name] = table[name].to_numpy()
            # The first row is of the query itself (`_write_state`).
            head, rows = rows[0], rows[1:].copy()
            state.clocks[number], state.carried[number] = head["results"], head["priority"]
            state.fallen[number] = head["done"]
            rows["query"] = number
            parts.append(rows)
        state.waiting = np.concatenate([state.waiting, *parts])
        return state


def _write_state(state: FamilyState, number: int, at: int) -> pa.Table | None:
    """What a query carries to its next step, as a segment's table; None if that is nothing.

    The first row is of the query itself: its clock, its carried budget, what fell out.
    """
    own = state.waiting[state.waiting["query"] == number]
    if not len(own) and not state.fallen[number]:
        return None
    head = np.zeros(1, REGION)
    head["results"], head["priority"] = state.clocks[number], state.carried[number]
    head["done"] = state.fallen[number]
    rows = np.concatenate([head, own])
    columns = {name: pa.array(np.ascontiguousarray(rows[name])) for name in REGION.names or ()}
    columns["__ts"] = pa.array(np.full(len(rows), at, np.int64))
    columns["__seq"] = pa.array(np.arange(len(rows), dtype=np.int64))
    return pa.table(columns)


def _finish(look: Look, found: Sequence[tuple[int, Found]]) -> pa.Table:
    """What was found as changes: `__at`, `__sign`, the answer's columns and the priority."""
    tables: dict[str, pa.Table] = {}
    for number, leaf in enumerate(look.streams):
        parts = [rows.tables[number] for _, rows in found]
        if not parts:
            parts = [leaf.schema.to_arrow().empty_table().select(list(leaf.columns))]
        tables[leaf.table] = pa.concat_tables(parts)
    first = look.streams[0].table
    priority = np.concatenate([np.empty(0), *(rows.priority for _, rows in found)])
    steps = [np.full(len(rows.priority), at, np.int64) for at, rows in found]
    at = np.concatenate([np.empty(0, np.int64), *steps])
    tables[first] = (
        tables[first].append_column(PRIORITY, pa.array(priority)).append_column(STEP, pa.array(at))
    )
    answer = _residual.evaluate(look.sql, tables, Limits(rows=_MANY))
    columns = answer.columns
    if len(columns) != len(look.columns) + 1:
        raise MillpondError("INTERNAL-901", "a result has other columns than the query")
    signs = pa.array(np.ones(answer.num_rows, np.int8))
    names = ["__at", "__sign", *look.columns]
    return pa.Table.from_arrays([columns[-1], signs, *columns[:-1]], names=names)


def _summaries_of(look: Look) -> dict[int, SummaryDef]:
    """The summary of each leaf that the preference estimates."""
    return {e.leaf: replace(e.estimate.summary, file=None) for e in look.preference.estimates}


def _ends(table: pa.Table) -> tuple[int, int]:
    at = int(table["__ts"][0].as_py())
    return at, at
