"""`INVOKE query BUDGET …`: the most promising part of an answer, and a cursor for the rest.

The framework of promising tuples (section 2): identify the regions, rank them, look at them in that
order while the budget lasts. An answer in parts is a function of the version, the query, the
instant and the probes; nothing is kept between calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from millpond.catalog.objects import StreamDef
from millpond.engine.promising.scaling import scale
from millpond.engine.scalars.residual_query import Limits, Residual
from millpond.errors import MillpondError
from millpond.model.budget import Budget
from millpond.model.time import BEGINNING
from millpond.model.windows import interval
from millpond.planner.bind.preference import BoundPreference, PartialShape
from millpond.service.answers.leaf_scan import LeafView
from millpond.service.answers.partial.cursor import ResumePoint, read_place
from millpond.service.answers.partial.join import JoinRun
from millpond.service.answers.partial.joined_pieces import JoinedPieces
from millpond.service.answers.partial.looking import LookedLeaf, spend
from millpond.service.answers.partial.selection import SelectionRun
from millpond.service.answers.summary_states import SummaryStates
from millpond.service.queries.join_use import SlicedRows
from millpond.service.queries.prepared import PreparedQuery
from millpond.service.results import Part
from millpond.state.version import Version

#: Evaluates a query over the slices of its leaves, or over joined rows.
Finish = Callable[[Version, PreparedQuery, dict[str, pa.Table], SlicedRows | None], pa.Table]


@dataclass(frozen=True, eq=False)
class PartialAnswers:
    """Answers in parts; safe to use from any thread."""

    incarnation: str
    summaries: SummaryStates
    residual: Residual
    finish: Finish
    ceilings: Limits | None = None

    def read(
        self,
        version: Version,
        query: PreparedQuery,
        streams: Sequence[StreamDef],
        after: str | None,
    ) -> ResumePoint | None:
        """The place a cursor stands for. Raises POND-412."""
        if after is None:
            return None
        asked = _describe(version, query, streams)
        return read_place(after, self.incarnation, asked, len(query.bound.streams))

    def answer(
        self,
        version: Version,
        query: PreparedQuery,
        streams: Sequence[StreamDef],
        views: Sequence[Sequence[LeafView]],
        instant: int,
        budget: Budget,
        place: ResumePoint | None,
    ) -> tuple[pa.Table, Part]:
        """Answer with what a budget finds.

        Args:
            version: Pinned by the caller.
            query: The query.
            streams: The streams of its leaves.
            views: The kept segments of each leaf.
            instant: The answer's instant; that of `place`, if there is one.
            budget: The budget.
            place: Where to go on; None to begin.

        Raises:
            MillpondError: CQL-224, the query cannot be answered in parts; POND-403, elements of an
                earlier part are not kept any more; POND-404, its preference cannot be computed.
        """
        begun = time.perf_counter()
        bound, shape = query.bound, query.bound.partial
        if isinstance(shape, str):
            raise MillpondError(
                "CQL-224",
                "this query has no answers in parts",
                detail=f"{shape[:1].upper()}{shape[1:]}.",
                hint="Leave out BUDGET for the whole answer.",
            )
        if shape.kind == "join" and bound.preference is None:
            raise MillpondError(
                "CQL-224",
                "a join is answered in parts by a preference only",
                hint="Write WITH PREFERENCE DESC SUMMARY(name).ESTIMATE.COUNT(key) behind it.",
            )
        leaves = self._list_leaves(version, query, streams, views, instant, place)
        done, given = (place.done, place.rows) if place is not None else (0, 0)
        if shape.kind == "join":
            table, made, share, whole = self._join(
                version, query, shape, leaves, budget, done, begun
            )
        else:
            table, made, share, whole = self._select(
                version, query, shape, leaves[0], budget, done, begun
            )
        given += table.num_rows
        rows = 1.0 if shape.kind == "aggregate" else given / share if share else float(given)
        alone = place is None or shape.kind == "aggregate"
        if whole:
            return table, Part(1.0, made, rows, True, None, alone)
        where = ResumePoint(instant, done + made, given, self._marks(version, leaves, place))
        cursor = where.write(self.incarnation, _describe(version, query, streams))
        return table, Part(share, made, rows, False, cursor, alone)

    # -- selections and aggregates ---------------------------------------------------------------

    def _select(
        self,
        version: Version,
        query: PreparedQuery,
        shape: PartialShape,
        leaf: LookedLeaf,
        budget: Budget,
        done: int,
        begun: float,
    ) -> tuple[pa.Table, int, float, bool]:
        """Give the rows, the probes made, the share given so far, and whether that is all."""
        run = SelectionRun(leaf, self.residual, query.bound.preference)
        # An aggregate is of everything looked at, also before the cursor.
        if shape.kind == "aggregate" and done:
            run.look(0, done)
        made = self._spend(run.look, budget, done, begun)
        total = run.total
        table = self.finish(version, query, {leaf.leaf.table: run.rows()}, None)
        seen = min(done + made, total)
        if shape.kind == "aggregate":
            rest = self._sum_rest(run, shape, query.bound.preference, seen)
            matched = sum(part.num_rows for part in run.tables)
            table = scale(table, shape.aggregates, seen, total, rest, matched)
        return table, made, seen / total if total else 1.0, seen >= total

    @staticmethod
    def _sum_rest(
        run: SelectionRun, shape: PartialShape, preference: BoundPreference | None, seen: int
    ) -> dict[int, float]:
        """By SUM of the column that ranks, the sum over the elements that were not looked at."""
        ranked = preference.attributes[0] if preference is not None else None
        own = [
            n for n, column in enumerate(shape.summed) if column is not None and column == ranked
        ]
        return dict.fromkeys(own, run.sum_rest(seen)) if own else {}

    # -- joins -------------------------------------------------------------------------------------

    def _join(
        self,
        version: Version,
        query: PreparedQuery,
        shape: PartialShape,
        leaves: Sequence[LookedLeaf],
        budget: Budget,
        done: int,
        begun: float,
    ) -> tuple[pa.Table, int, float, bool]:
        """Give the rows, the probes made, the share given so far, and whether that is all."""
        preference = query.bound.preference
        assert preference is not None
        assert shape.keys is not None
        pieces = JoinedPieces(
            lambda rows: self.finish(version, query, {}, rows),
            leaves,
            query.limits.cap(self.ceilings),
        )
        run = JoinRun(leaves, shape.keys, self.residual, preference, pieces.receive)
        made = self._spend(run.look, budget, done, begun)
        table = pieces.read()
        passed = run.count_passed(done + made)
        return table, made, passed / run.total if run.total else 1.0, passed == run.total

    @staticmethod
    def _spend(look: Callable[[int, int], int], budget: Budget, done: int, begun: float) -> int:
        made = 0
        for step in spend(budget, begun):
            own = look(done + made, step)
            made += own
            if own < step:
                break
        return made

    # -- leaves --------------------------------------------------------------------------------

    def _list_leaves(
        self,
        version: Version,
        query: PreparedQuery,
        streams: Sequence[StreamDef],
        views: Sequence[Sequence[LeafView]],
        instant: int,
        place: ResumePoint | None,
    ) -> list[LookedLeaf]:
        found = []
        for number, (leaf, stream) in enumerate(zip(query.bound.streams, streams, strict=True)):
            low, high = interval(leaf.window, instant)
            low = BEGINNING if low is None else low
            clock = version.clock(stream.id)
            position, before = None, clock.next_seq
            if place is not None:
                position, before, kept_from = place.leaves[number]
                if clock.kept_from > max(low, kept_from):
                    raise MillpondError(
                        "POND-403",
                        f'elements of stream "{stream.name}" are not kept any more',
                        detail="The parts of an answer are one answer only while all of it is "
                        "kept.",
                        hint="INVOKE again without AFTER.",
                    )
            summary = None
            ranked = query.bound.preference
            for estimate in ranked.estimates if ranked is not None else ():
                if estimate.leaf == number:
                    definition = version.summaries.get(estimate.estimate.summary.name.lower())
                    definition = definition or estimate.estimate.summary
                    summary = self.summaries.at(version, definition, position)
            own = [
                view
                for view in views[number]
                if view.max_ts >= low and view.min_ts <= high and view.arrived[0] < before
            ]
            factors = query.factors[number]
            found.append(LookedLeaf(leaf, stream, factors, own, low, high, before, summary))
        return found

    @staticmethod
    def _marks(
        version: Version, leaves: Sequence[LookedLeaf], place: ResumePoint | None
    ) -> tuple[tuple[int, int, int], ...]:
        if place is not None:
            return place.leaves
        return tuple(
            (
                leaf.summary.position if leaf.summary is not None else 0,
                leaf.before,
                version.clock(leaf.stream.id).kept_from,
            )
            for leaf in leaves
        )


def _describe(version: Version, query: PreparedQuery, streams: Sequence[StreamDef]) -> str:
    """What an answer follows from besides its place: equal while the answer can be gone on with.

    Streams and summaries that were made again, and streams whose clock was set back, have other
    elements and zones under the same names.
    """
    preference = query.bound.preference
    names = [e.estimate.summary.name.lower() for e in preference.estimates] if preference else []
    summaries = [own.id for name in names if (own := version.summaries.get(name)) is not None]
    return f"{query.bound.canonical} {[(s.id, s.resets) for s in streams]} {summaries}"
