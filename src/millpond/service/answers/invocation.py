"""Invocation: computes the answer of a query at an instant, from the kept segments.

PSoup (VLDB 2002, section 3.3): the window is applied to the Results Structure, rows are fetched
from the Data SteM, and projection, duplicate elimination and whatever else SQL says are done just
in time. No Spark job is involved, and everything read belongs to one pinned version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from millpond.catalog.objects import RelationDef, StreamDef
from millpond.catalog.tolerance import Reduction
from millpond.confined.room import Room
from millpond.confined.turns import Turn
from millpond.engine.invocation.window_slices import SegmentView, WindowSlice, full_since
from millpond.engine.joins.projection import JoinedRows
from millpond.engine.scalars.residual_query import (
    Limits,
    OwnFunctions,
    Residual,
    too_many_rows_error,
)
from millpond.errors import MillpondError
from millpond.model.budget import Budget
from millpond.model.loss import Bounds, Cause, Loss, merge_losses
from millpond.model.time import LAST, format_instant
from millpond.model.windows import Rows, interval
from millpond.planner.bind.bound_query import BoundQuery
from millpond.service.answers.approximations import bound_approximations
from millpond.service.answers.estimate_functions import estimate_functions
from millpond.service.answers.evaluation import Evaluation
from millpond.service.answers.grouped_aggregates import SegmentGroups
from millpond.service.answers.kept_answers import KeptAnswers
from millpond.service.answers.kept_totals import KeptTotals
from millpond.service.answers.leaf_scan import Files, LeafView
from millpond.service.answers.leaf_slices import (
    find_leaf_slice,
    measure_rows,
    read_leaf_slice,
)
from millpond.service.answers.losses import Losses
from millpond.service.answers.partial.partial_answers import PartialAnswers
from millpond.service.answers.present import Present
from millpond.service.answers.reduced import ReducedAnswers, reduction_losses
from millpond.service.answers.segment_aggregates import SegmentAggregates
from millpond.service.answers.spread_scan import SpreadScans
from millpond.service.answers.stored_join import StoredJoin
from millpond.service.answers.summary_states import SummaryStates
from millpond.service.events import Events, FollowerNeeds, noting_damage
from millpond.service.ingest.floors import FloorsInFlight
from millpond.service.ingest.intake import Intake
from millpond.service.ingest.relations import Relations
from millpond.service.ingest.sequencer import Sequencer
from millpond.service.queries.prepared import PreparedQuery, stream_of
from millpond.service.results import Answer
from millpond.state.epoch_log import EpochLog
from millpond.state.version import SegmentRef, Version
from millpond.work import check_work, hold_memory

#: How many bytes of rows the large evaluations at once may have: each needs three times as many,
#: for the rows, a sorted copy and an answer, so 256 MB in all.
_ROWS_AT_ONCE = (256 << 20) // 3
#: Of a table of so few bytes it does not matter which rows of its buffers it has.
_SMALL = 1 << 16


class Invoker:
    """Answers prepared queries; safe to use from any thread."""

    def __init__(
        self,
        store: Path,
        log: EpochLog,
        sequencer: Sequencer,
        floors: FloorsInFlight,
        relations: Relations,
        residual: Residual,
        intake: Intake,
        events: Events,
        followers: FollowerNeeds,
        scans: SpreadScans,
        ceilings: Limits | None = None,
    ) -> None:
        self._log = log
        self.scans = scans
        self._ceilings = ceilings
        self._sequencer = sequencer
        self._floors = floors
        self._relations = relations
        self._residual = residual
        self._intake = intake
        self._followers = followers
        self.present = Present(log, floors, relations, followers)
        self._events = events
        self.files = Files(store, events, lambda id: log.version.added_columns(id))
        self.losses = Losses(self.files, intake, followers)
        self.kept_answers = KeptAnswers(self.files, relations)
        self._room = Room(
            _ROWS_AT_ONCE,
            "too many queries of many rows wait to be evaluated",
            "Ask again in a second, or narrow the query's window.",
        )
        self.summaries = SummaryStates(store, self.files)
        self.partial = PartialAnswers(
            log.incarnation, self.summaries, residual, self._finish_part, ceilings
        )
        self.totals = KeptTotals(store)
        self._aggregates = SegmentAggregates(self.totals, scans)
        self._groups = SegmentGroups(self.totals, scans)
        self._reduced = ReducedAnswers(self.files)
        #: How far a query is reduced that tolerates it: as it was registered, or more for now.
        self.choose_reduction: Callable[[PreparedQuery], Reduction] = lambda query: query.reduction

    def invoke(
        self,
        query: PreparedQuery,
        at: int | None = None,
        budget: Budget | None = None,
        after: str | None = None,
    ) -> Answer:
        """R(τ) at `at`, or as of now (SEMANTICS, section 5); with a budget, a part of it.

        Raises:
            MillpondError: POND-403 when `at` is before everything, POND-404 and POND-405 from
                evaluation, POND-406 when a derived stream has stopped before `at`, STORE-602 for a
                corrupt segment.
        """
        with noting_damage(self._events):
            return self._answer(query, at, budget, after)

    def _answer(
        self, query: PreparedQuery, at: int | None, budget: Budget | None, after: str | None
    ) -> Answer:
        part = None
        bounds: Bounds | None = None
        reading = self._floors.capture()
        with self._log.pin() as version:
            streams = [stream_of(version, leaf) for leaf in query.bound.streams]
            place = self.partial.read(version, query, streams, after)
            now = self.present.now_of(version, query.bound, streams, reading)
            # At the end of time, whatever holds until then would hold no more.
            instant = now if at is None else min(at, LAST)
            if place is not None:
                instant = place.at
                if at is not None and at != instant:
                    raise MillpondError(
                        "CQL-103",
                        "a cursor goes on at the instant of its answer",
                        detail=f"That is {format_instant(instant)}, and not the instant asked for.",
                        hint="Leave out AT, or leave out AFTER to begin anew.",
                    )
            for stream in streams:
                gap = self._followers.find_gap(version, stream, instant) if stream.derived else None
                if gap is not None:
                    raise gap
            if budget is not None:
                losses, views = self._view_leaves(version, query, streams, instant)
                table, part = self.partial.answer(
                    version, query, streams, views, instant, budget, place
                )
                loss = _bound_rows(query.bound, losses)
            elif (less := self._compute_reduced(version, query, streams, instant)) is not None:
                table, loss, bounds = less
            elif query.kept and query.id is not None:
                table, loss = self._read_kept(
                    query.id, version, query, streams, instant, at is None
                )
            else:
                table, loss = self._compute(version, query, streams, instant)
            if not loss:
                bounds = bounds or bound_approximations(query.bound, table)
            heartbeats = [self._sequencer.heartbeat(version, s, reading) for s in streams]
            epoch = version.epoch
        return Answer(
            table,
            instant,
            final=all(instant < h for h in heartbeats) if heartbeats else instant <= now,
            loss=loss,
            bounds=bounds,
            query=query.name,
            epoch=epoch,
            part=part,
            estimated=tuple(sorted({e.summary.name for e in query.bound.estimates.values()})),
        )

    def _compute(
        self, version: Version, query: PreparedQuery, streams: Sequence[StreamDef], instant: int
    ) -> tuple[pa.Table, tuple[Loss, ...]]:
        """Compute the rows, and what is missing of that which the query reads."""
        check_work()
        slices: dict[str, pa.Table] = {}
        if query.bound.aggregates is not None:
            return self._aggregate(version, query, streams[0], instant)
        if query.bound.grouped is not None:
            merged = self._aggregate_groups(version, query, streams[0], instant)
            if merged is not None:
                return merged
        losses, views_of = self._view_leaves(version, query, streams, instant)
        joined = self._read_stored_join(version, query, streams, views_of, instant)
        found = query.bound.join.leaves if joined is not None and query.bound.join else ()
        windows: dict[int, WindowSlice] = {}
        for number, leaf in enumerate(query.bound.streams):
            if number not in found:
                check_work()
                spread = self._spread(version, query, number, streams[number], instant)
                windows[number] = find_leaf_slice(spread or views_of[number], leaf, instant)
        for occurrence in query.bound.relations:
            relation = version.find(occurrence.relation)
            if not isinstance(relation, RelationDef):
                raise MillpondError("CQL-201", f'no relation "{occurrence.relation}" any more')
            if occurrence.hidden:
                slices[occurrence.table] = self._relations.versions(
                    version, relation, occurrence.columns, occurrence.hidden
                )
                continue
            slices[occurrence.table] = self._relations.at(
                version, relation, instant, occurrence.columns
            )
        own = estimate_functions(version, self.summaries, query.bound.estimates)
        size = sum(relation.nbytes for relation in slices.values())
        size += measure_rows(query.bound, windows, joined, views_of)
        with self._room.hold(size):
            for number, window in windows.items():
                check_work()
                leaf = query.bound.streams[number]
                slices[leaf.table] = read_leaf_slice(window, leaf, streams[number])
            return self._finish(query, slices, joined, own), _bound_rows(query.bound, losses)

    def _compute_reduced(
        self, version: Version, query: PreparedQuery, streams: Sequence[StreamDef], instant: int
    ) -> tuple[pa.Table, tuple[Loss, ...], Bounds | None] | None:
        """Compute the answer of a query that is reduced; None if it is to be answered exactly."""
        if not query.tolerance:
            return None
        found = query.reduce(self.choose_reduction(query))
        if found is None:
            return None
        prepared, reduced = found
        table, loss = self._compute(version, prepared, streams, instant)
        given = self._reduced.finish(
            version, query, reduced, streams, table, instant, lacks=bool(loss)
        )
        if given is None:
            return None
        table, bounds = given
        own = reduction_losses(reduced, instant)
        return table, merge_losses([*loss, *own]), bounds

    def _view_leaves(
        self, version: Version, query: PreparedQuery, streams: Sequence[StreamDef], instant: int
    ) -> tuple[list[Loss], list[list[LeafView]]]:
        """What is missing of what the query reads, and the kept segments of its leaves."""
        losses: list[Loss] = []
        views_of: list[list[LeafView]] = []
        for number, stream in enumerate(streams):
            views = self._views(version, query, number, stream, instant)
            losses += self._find_loss(version, query, number, stream, views, instant)
            views_of.append(views)
        return losses, views_of

    def _aggregate(
        self, version: Version, query: PreparedQuery, stream: StreamDef, at: int
    ) -> tuple[pa.Table, tuple[Loss, ...]]:
        """Compute the answer of a query that is aggregates of one stream, from its totals."""
        losses = self._find_loss(version, query, 0, stream, (), at)
        view_of = self._view_maker(version, query, 0, stream)
        return self._aggregates.answer(query, version, stream, at, view_of), losses

    def _aggregate_groups(
        self, version: Version, query: PreparedQuery, stream: StreamDef, at: int
    ) -> tuple[pa.Table, tuple[Loss, ...]] | None:
        """Compute the answer of a query by group from totals; None: it is computed from rows."""
        losses = self._find_loss(version, query, 0, stream, (), at)
        view_of = self._view_maker(version, query, 0, stream)
        table = self._groups.answer(query, version, stream, at, view_of)
        if table is None:
            return None
        limits = query.limits.cap(self._ceilings)
        if table.num_rows > limits.rows:
            raise too_many_rows_error(limits)
        hold_memory(table.nbytes)
        return narrow_integers(table), losses

    def _read_kept(
        self,
        id: int,
        version: Version,
        query: PreparedQuery,
        streams: Sequence[StreamDef],
        instant: int,
        is_current: bool,
    ) -> tuple[pa.Table, tuple[Loss, ...]]:
        """The answer as it is kept, if it is; else like `_compute`."""
        is_whole = all(self.losses.is_whole(version, stream) for stream in streams)
        # An answer that lacks something says what, and that is what a kept one does not know.
        if is_whole or not self._view_leaves(version, query, streams, instant)[0]:
            rows = self.kept_answers.read(version, query, streams, instant, is_current)
            if rows is not None:
                return self._hand_out(query, self.kept_answers.of(id).order, rows), ()
        started = time.perf_counter()
        found = self._compute(version, query, streams, instant)
        self.kept_answers.of(id).seconds_to_answer = time.perf_counter() - started
        return found

    def _hand_out(self, query: PreparedQuery, order: str, rows: pa.Table) -> pa.Table:
        """Give out kept rows, sorted, if they are not too many."""
        limits = query.limits.cap(self._ceilings)
        if rows.num_rows > limits.rows:
            raise too_many_rows_error(limits)
        if order:
            sql = f"SELECT * FROM kept ORDER BY {order}"
            rows = self._residual.evaluate(sql, {"kept": rows}, limits)
        else:
            hold_memory(_count_bytes(rows))
        return narrow_integers(rows)

    def _read_stored_join(
        self,
        version: Version,
        query: PreparedQuery,
        streams: Sequence[StreamDef],
        views: Sequence[list[LeafView]],
        at: int,
    ) -> JoinedRows | None:
        """The joined rows, from stored pairs; None if they must come from the windows' slices."""
        found = version.joins.core_of(query.id) if query.id is not None else None
        if found is None or query.join is None or query.bound.join is None:
            return None
        core, use = found
        if core.key != query.join.key:  # altered since the query was prepared
            return None
        leaves = query.bound.join.leaves
        stored = StoredJoin(query.join, self.files, version, core, use.number, use.spans)
        return stored.rows(
            query.bound,
            [views[leaf] for leaf in leaves],
            [streams[leaf].schema.to_arrow() for leaf in leaves],
            at,
        )

    def _finish_part(
        self,
        version: Version,
        query: PreparedQuery,
        slices: dict[str, pa.Table],
        joined: JoinedRows | None,
    ) -> pa.Table:
        """The rows of a part of a query's slices, or of joined rows."""
        if joined is not None and (query.join is None or len(query.join.links) > 1):
            query = replace(query, join=None)  # every factor is applied again
        own = estimate_functions(version, self.summaries, query.bound.estimates)
        with self._room.hold(sum(table.nbytes for table in slices.values())):
            return self._finish(query, slices, joined, own)

    def _finish(
        self,
        query: PreparedQuery,
        slices: dict[str, pa.Table],
        joined: JoinedRows | None = None,
        own: OwnFunctions | None = None,
    ) -> pa.Table:
        bound = query.bound
        limits = query.limits.cap(self._ceilings)
        if bound.projection is not None:
            (table,) = slices.values()
            if table.num_rows > limits.rows:
                raise too_many_rows_error(limits)
            hold_memory(_count_bytes(table))
            return _project(table, bound.streams[0].columns, bound.projection)
        return self._residual.turns.run(
            lambda turn: self._evaluate(query, slices, joined, own, turn), limits.memory
        )

    def _evaluate(
        self,
        query: PreparedQuery,
        slices: Mapping[str, pa.Table],
        joined: JoinedRows | None,
        own: OwnFunctions | None,
        turn: Turn,
    ) -> pa.Table:
        """Evaluate a query over its slices, or over stored joined rows, in a turn."""
        limits = query.limits.cap(self._ceilings)
        evaluation = Evaluation(self._residual, query, slices, limits, own, turn)
        return narrow_integers(evaluation.evaluate(joined))

    def _views(
        self, version: Version, query: PreparedQuery, number: int, stream: StreamDef, at: int
    ) -> list[LeafView]:
        """The kept segments of a leaf's stream, as the leaf sees them."""
        view_of = self._view_maker(version, query, number, stream)
        return [
            view_of(ref) for ref in version.segments(stream.id, stream.kind) if ref.min_ts <= at
        ]

    def _spread(
        self, version: Version, query: PreparedQuery, number: int, stream: StreamDef, at: int
    ) -> Sequence[SegmentView] | None:
        """The rows of a leaf's window as workers have read them; None if the driver is to."""
        segments = version.segments(stream.id, stream.kind)
        most = query.limits.cap(self._ceilings).memory
        return self.scans.read_leaf(version, query, number, stream, segments, at, most)

    def _view_maker(
        self, version: Version, query: PreparedQuery, number: int, stream: StreamDef
    ) -> Callable[[SegmentRef], LeafView]:
        """Make the function that gives a segment as a leaf sees it."""
        leaf = query.bound.streams[number]
        seed = query.seed + number if leaf.seed is None else leaf.seed
        sample = None if leaf.sample is None else (seed, leaf.sample)
        slot, factors = query.slots[number], query.factors[number]
        if slot is not None and version.slot(stream.id, slot) is None:
            slot = None  # dropped since the query was prepared: newer matches leave it out
        return lambda ref: LeafView(self.files, version, ref, stream.schema, factors, slot, sample)

    def _find_loss(
        self,
        version: Version,
        query: PreparedQuery,
        number: int,
        stream: StreamDef,
        views: Sequence[LeafView],
        at: int,
    ) -> tuple[Loss, ...]:
        """What is missing of the elements that could be in a leaf's window at an instant."""
        if stream.is_pseudo or self.losses.is_whole(version, stream):
            return ()
        kept_from = version.clock(stream.id).kept_from
        if at < kept_from:
            raise MillpondError(
                "POND-403",
                f'the instant {format_instant(at)} of stream "{stream.name}" is not kept',
                detail=f"Everything is kept from {format_instant(kept_from)} on.",
                hint="Ask for a later instant, or give the stream a longer RETAIN.",
            )
        leaf, slot = query.bound.streams[number], query.slots[number]
        low, high = interval(leaf.window, at)
        if isinstance(leaf.window, Rows):
            # If the window is full, no missing element from before its first row could be in it.
            low = full_since(views, leaf.window, at, leaf.after_shape is not None)
            if leaf.after_shape is not None:
                slot = None  # the window counts elements that do not match, too
        return self.losses.find(version, stream, low, high, slot)


def _count_bytes(table: pa.Table) -> int:
    """Count the bytes of a table; of a small one that may be those of the buffers it is part of."""
    most: int = table.get_total_buffer_size()  # counting those of the rows takes a hundred times
    return most if most < _SMALL else table.nbytes


def _project(
    table: pa.Table, columns: Sequence[str], projection: Sequence[tuple[str, str]]
) -> pa.Table:
    """Give a slice the columns of the answer, under their names there."""
    if tuple(column for column, _ in projection) == tuple(columns):
        if all(column == name for column, name in projection):
            return table
        return table.rename_columns([name for _, name in projection])
    chosen = [table[column] for column, _ in projection]
    return pa.Table.from_arrays(chosen, names=[name for _, name in projection])


def _bound_rows(bound: BoundQuery, losses: Sequence[Loss]) -> tuple[Loss, ...]:
    """The losses of a query's leaves, with a bound on missing rows where the query is a selection.

    A row of a selection from a window of time is there because of one element. So at most as many
    rows are missing as elements were shed, and no row is wrong.
    """
    found = merge_losses(losses)
    is_selection = bound.projection is not None and not isinstance(bound.streams[0].window, Rows)
    if not is_selection or bound.streams[0].sample is not None:
        return found
    return tuple(
        replace(loss, missing=loss.elements)
        if loss.cause is Cause.SHED and loss.stream.lower() == bound.streams[0].stream.lower()
        else loss
        for loss in found
    )


def narrow_integers(table: pa.Table) -> pa.Table:
    """Whole numbers DuckDB widened to 128 bits (sums) as 64 bits, where they fit."""
    for i, field in enumerate(table.schema):
        if field.type == pa.decimal128(38, 0):
            try:
                table = table.set_column(i, field.name, pc.cast(table.column(i), pa.int64()))
            except pa.ArrowInvalid:
                continue
    return table
