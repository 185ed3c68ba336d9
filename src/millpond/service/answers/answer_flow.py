"""Keeps the current answers of queries over the same streams and relations (PSoup-C).

PSoup (VLDB 2002, section 5): "PSoup-C continuously maintains the results corresponding to the
current input window for each query". The operators that make changes do it here: a dataflow takes
what came since the last step, and what its answers gain and lose is counted in and out of them.

Followers get changes up to the last final instant. An answer is as of NOW, which is hardly ever
final: elements of NOW, and within DELAY even older ones, may still come. So an answer has a
dataflow of its own, whose windows let elements enter late (`TimeWindow.in_order`).

INV-ANSWER-1: behind a step up to τ, the rows of a plan are its query's answer at τ, over all
elements and updates that the version of the step has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.engine.dataflow.counted_rows import CountedRows
from millpond.engine.dataflow.dataflow import Dataflow
from millpond.engine.dataflow.failures import to_millpond_error
from millpond.errors import MillpondError
from millpond.model.time import BEGINNING
from millpond.operators.protocol.node import Node
from millpond.operators.recompute import Recompute
from millpond.operators.recompute_groups import RecomputeGroups
from millpond.operators.relation_versions import RelationVersions
from millpond.operators.source import SEQUENCE, TIMESTAMP
from millpond.operators.windows.rows_window import RowsWindow
from millpond.planner.dataflow.plan import Plan
from millpond.service.answers.leaf_scan import Files
from millpond.service.ingest.relations import Relations
from millpond.service.ingest.versioned_rows import VersionedRows
from millpond.state.relation_log import changes_between, select_at
from millpond.state.segment_file import global_seq
from millpond.state.version import Version


class MustBeginAgain(Exception):
    """The dataflow cannot take in what came: its plans have to be fed from the start."""


@dataclass(frozen=True)
class Read:
    """What a dataflow has read.

    Attributes:
        streams: By name, each stream's definition, and the arrival number after the last.
        relations: By name, each relation's definition and rows.
    """

    streams: Mapping[str, tuple[StreamDef, int]]
    relations: Mapping[str, tuple[RelationDef, VersionedRows]]

    def is_same_as(self, other: Read) -> bool:
        """Whether both have the same elements and updates."""
        return (
            self.streams.keys() == other.streams.keys()
            and self.relations.keys() == other.relations.keys()
            and all(
                own[0] is other.streams[name][0] and own[1] == other.streams[name][1]
                for name, own in self.streams.items()
            )
            and all(
                own[0] is other.relations[name][0] and own[1] is other.relations[name][1]
                for name, own in self.relations.items()
            )
        )


def read_inputs(
    version: Version, relations: Relations, streams: Iterable[str], others: Iterable[str]
) -> Read:
    """Find what a version has of some streams and relations.

    Raises:
        MustBeginAgain: one of them is gone.
    """
    held: dict[str, tuple[StreamDef, int]] = {}
    for name in streams:
        stream = version.find(name)
        if not isinstance(stream, StreamDef):
            raise MustBeginAgain
        held[name] = stream, version.clock(stream.id).next_seq
    updated: dict[str, tuple[RelationDef, VersionedRows]] = {}
    for name in others:
        relation = version.find(name)
        if not isinstance(relation, RelationDef):
            raise MustBeginAgain
        updated[name] = relation, relations.read_rows(version, relation)
    return Read(held, updated)


def needs_order(plan: Plan) -> bool:
    """Whether a plan's answer can take in elements only in the order of their timestamps.

    A ROWS window counts them in that order; what a non-retroactive relation attaches to an element
    depends on the instant at which it came; and some calls show it (`SHOWING_ORDER`).
    """
    return any(
        isinstance(node, RowsWindow | RelationVersions)
        or node.timed_inputs
        or (isinstance(node, Recompute | RecomputeGroups) and node.shows_order)
        for node in plan.nodes()
    )


class AnswerFlow:
    """A dataflow, and the answers of its plans; for use by one thread at a time.

    Attributes:
        position: The instant that the answers are as of.
        read: What it has read; None before the first step.
        answers: By plan key, the rows of its answer.
        failed: By plan key, why a plan's answer is not kept.
        seconds: By plan key, how long its operators took in the last step; what plans share is
            divided among them.
    """

    def __init__(
        self, files: Files, relations: Relations, plans: Mapping[str, Plan], in_order: bool
    ) -> None:
        """Begin with some plans.

        Args:
            files: Opens segments.
            relations: Reads relations.
            plans: The plans, by their keys.
            in_order: Whether one of the plans `needs_order`.
        """
        self._files = files
        self._relations = relations
        self._in_order = in_order
        self._plans = dict(plans)
        self._flow = Dataflow(*plans.values())
        self.position = BEGINNING - 1
        self.read: Read | None = None
        self._epoch = -1
        self.answers = {key: CountedRows(plan.schema) for key, plan in plans.items()}
        self.failed: dict[str, MillpondError] = {}
        self.seconds: dict[str, float] = {}
        #: By node key, how long its operator took in all steps so far.
        self._spent: dict[str, float] = {}

    @property
    def plans(self) -> frozenset[str]:
        """The keys of the plans."""
        return frozenset(self._plans)

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory the answers and the operators' state take."""
        return self._flow.size.memory + sum(answer.nbytes for answer in self.answers.values())

    def has_read(self, version: Version) -> bool:
        """Whether it has read what a version has, and nothing else."""
        if self.read is None:
            return False
        try:
            now = read_inputs(
                version, self._relations, self.read.streams.keys(), self.read.relations.keys()
            )
        except MustBeginAgain:
            return False
        return self.read.is_same_as(now)

    def read_answer(self, key: str) -> pa.Table | None:
        """The rows of a plan's answer; None if they are not kept."""
        rows = self.answers.get(key)
        return None if rows is None else rows.read()

    def drop(self, keys: Iterable[str]) -> None:
        """Drop plans."""
        for key in keys:
            self._plans.pop(key, None)
            self.answers.pop(key, None)
            self.failed.pop(key, None)
            if key in self._flow.sinks:
                self._flow.detach(key)

    def take_over(self, other: AnswerFlow) -> None:
        """Take over another dataflow's plans; it has read the same, up to the same instant."""
        self._flow.attach(other._flow)
        self._plans.update(other._plans)
        self.answers.update(other.answers)
        self.failed.update(other.failed)

    def step(self, version: Version, upto: int) -> bool:
        """Take in what a version has up to an instant.

        Args:
            version: A version that is pinned, no older than that of the step before.
            upto: The instant; not before `position`.

        Returns:
            Whether there was anything to do.

        Raises:
            MustBeginAgain: this dataflow cannot take in what came.
            MillpondError: STORE-602 for a corrupt segment.
        """
        flow = self._flow
        now = read_inputs(version, self._relations, flow.needs, flow.relations)
        before = self.read
        if before is not None:
            self._check(before, now)
            if upto == self.position and now.is_same_as(before):
                return False
        tables = {
            name: self._read_stream(version, name, columns, upto)
            for name, columns in flow.needs.items()
        }
        for name, columns in flow.relations.items():
            tables[name] = self._read_updates(now, name, columns, upto)
        gained = flow.move_answers(_Given(tables), upto)
        self.position, self.read, self._epoch = upto, now, version.epoch
        self._divide_time()
        for key, changes in gained.items():
            try:
                self.answers[key].add(changes)
            except Exception as error:
                self.failed[key] = to_millpond_error(error)
                flow.detach(key)
        self.failed.update(flow.failed)
        for key in self.failed:
            self.answers.pop(key, None)
        return True

    def _divide_time(self) -> None:
        """Divide the time of the last step among the plans."""
        spent = {key: work.seconds for key, work in self._flow.list_work().items()}
        last = {key: seconds - self._spent.get(key, 0.0) for key, seconds in spent.items()}
        self._spent.update(spent)
        readers = Counter(node.key for plan in self._plans.values() for node in plan.nodes())
        self.seconds = {
            key: sum(last.get(node.key, 0.0) / readers[node.key] for node in plan.nodes())
            for key, plan in self._plans.items()
        }

    def _check(self, before: Read, now: Read) -> None:
        """Check that what was read is still there, and can be added to.

        Raises:
            MustBeginAgain: a stream or relation is another one, or its clock was set back.
        """
        for name, (stream, number) in before.streams.items():
            found = now.streams.get(name)
            if found is not None and (found[0] is not stream or found[1] < number):
                raise MustBeginAgain
        for name, (relation, rows) in before.relations.items():
            known = now.relations.get(name)
            if known is None:
                continue
            if known[0] is not relation or (self._in_order and known[1] is not rows):
                raise MustBeginAgain

    # -- input -------------------------------------------------------------------------------------

    def _read_stream(
        self, version: Version, name: str, columns: Sequence[str], upto: int
    ) -> pa.Table:
        """Read a stream's elements up to an instant that were not read yet.

        Those up to `position` have been read that came before the step before.
        """
        stream = version.find(name)
        assert isinstance(stream, StreamDef)
        known = 0 if self.read is None else self.read.streams[name][1]
        wanted = [*columns, TIMESTAMP, SEQUENCE]
        parts: list[pa.Table] = []
        for ref in version.segments(stream.id, stream.kind):
            is_known = self.read is not None and ref.epoch <= self._epoch
            if ref.min_ts > upto or (is_known and ref.max_ts <= self.position):
                continue
            opened = self._files.segment(ref)
            low: int | None = self.position + 1
            if not is_known:
                low = self.position
                if self.read is None or ref.min_ts < low:
                    low = self._find_reach(name, upto)
            first = 0 if low is None else int(np.searchsorted(opened.ts, low, side="left"))
            last = int(np.searchsorted(opened.ts, upto, side="right"))
            if first >= last:
                continue
            rows = opened.table.select(wanted).slice(first, last - first)
            numbers = global_seq(opened.local_seq[first:last], ref.seq_runs)
            ts = opened.ts[first:last]
            if self.read is not None:
                is_new = (numbers >= known) | (ts > self.position)
                if self._in_order and bool((is_new & (ts < self.position)).any()):
                    raise MustBeginAgain
                if not is_new.all():
                    chosen = pa.array(np.flatnonzero(is_new))
                    rows, numbers = rows.take(chosen), numbers[is_new]
            place = rows.schema.get_field_index(SEQUENCE)
            parts.append(rows.set_column(place, SEQUENCE, pa.array(numbers)))
        if not parts:
            return pa.table({column: pa.nulls(0) for column in wanted})
        found = pa.concat_tables(parts).combine_chunks()
        ts, numbers = found[TIMESTAMP].to_numpy(), found[SEQUENCE].to_numpy()
        if len(ts) > 1 and not bool((np.diff(ts) > 0).all()):
            found = found.take(pa.array(np.lexsort((numbers, ts)))).combine_chunks()
        return found

    def _find_reach(self, name: str, at: int) -> int | None:
        """The least timestamp of a stream's element that may be in a window from an instant on.

        None: every one may. (`Plan.reach` leaves out what makes no changes any more.)
        """
        windows = {n.key: n for p in self._plans.values() for n in p.nodes() if n.is_window}
        found = [n.reach(at - 1) for n in windows.values() if _find_source(n) == name]
        return None if None in found else min(low for low in found if low is not None)

    def _read_updates(self, now: Read, name: str, columns: Sequence[str], upto: int) -> pa.Table:
        """Read a relation's changes from `position` up to an instant, as they are known now."""
        rows = now.relations[name][1].table
        if self.read is None:
            return changes_between(rows.slice(0, 0), rows, BEGINNING - 1, upto, columns)
        known = select_at(self.read.relations[name][1].table, self.position)
        return changes_between(known, rows, max(self.position, BEGINNING) - 1, upto, columns)


def _find_source(node: Node) -> str:
    """The name of the stream below a window."""
    while node.feed is None:
        (node,) = node.inputs
    return node.feed[1]


class _Given:
    """The input of a step, which is not cut."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._tables = tables

    def find_end(self, after: int, upto: int, size: int) -> int:
        return upto

    def measure(self, after: int, upto: int) -> int:
        return 0

    def read(self, name: str, after: int, upto: int) -> pa.Table | None:
        return self._tables.get(name)
