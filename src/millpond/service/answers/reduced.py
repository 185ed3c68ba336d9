"""Answers of reduced queries: what they lack, and the bounds of what was estimated.

A bound needs the range of a column's values. It is that of all elements in the segments the window
overlaps, sampled or not; it is computed once for each segment and column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.catalog.objects import StreamDef
from millpond.model.loss import Bounds, Cause, Loss
from millpond.model.windows import interval
from millpond.planner.approximate.estimators import AVG, COUNT, Estimate
from millpond.planner.approximate.reductions import ReducedQuery
from millpond.service.answers.leaf_scan import Files
from millpond.service.queries.prepared import PreparedQuery
from millpond.state.segment_file import get_column
from millpond.state.version import Version
from millpond.synopses.sample_bounds import bound_counts, bound_means, bound_sums

#: The ends of intervals, one for each row; NaN where there is no interval.
Ends = tuple[np.ndarray, np.ndarray]


def reduction_losses(reduced: ReducedQuery, at: int) -> Iterator[Loss]:
    """What a reduced query does not read, or not as it is, of the windows as written."""
    for whole, leaf in zip(reduced.whole.streams, reduced.bound.streams, strict=True):
        (low, _), (since, upto) = interval(whole.window, at), interval(leaf.window, at)
        if leaf.window != whole.window and since is not None:
            yield Loss(leaf.stream, Cause.SHORTENED, low, since - 1)
        if leaf.sample != whole.sample:
            yield Loss(leaf.stream, Cause.SAMPLED, since, upto, kept=leaf.sample)
        if leaf.table in reduced.filtered:
            wrong = reduced.reduction.false_positives
            yield Loss(leaf.stream, Cause.FILTERED, since, upto, wrong=wrong)


class ReducedAnswers:
    """Makes answers of what reduced queries give; safe to use from any thread."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def finish(
        self,
        version: Version,
        query: PreparedQuery,
        reduced: ReducedQuery,
        streams: Sequence[StreamDef],
        table: pa.Table,
        at: int,
        lacks: bool,
    ) -> tuple[pa.Table, Bounds | None] | None:
        """The answer's columns, and the bounds of its estimates.

        With `lacks`, elements are missing that were never sampled (expired, shed, damaged). The
        sample says nothing of these, so there are no bounds then, and no interval is narrow.

        Returns:
            None if an interval is wider than the query tolerates.
        """
        if not reduced.estimates:
            return table, None
        shown = len(query.bound.output.names)
        answer, measures = table.select(list(range(shown))), list(table.columns[shown:])
        if lacks:
            return None if query.tolerance.error is not None else (answer, None)
        assert reduced.reduction.sample is not None
        share = reduced.reduction.sample / 100
        delta = 1 - query.tolerance.confidence / 100
        bounds = {}
        for estimate in reduced.estimates:
            taken = 1 if estimate.function == COUNT else 2
            own = [_floats(column) for column in measures[:taken]]
            measures = measures[taken:]
            values = _floats(answer.column(estimate.place))
            span = self._range(version, reduced, streams[0], estimate, at)
            ends = _bound(estimate, values, own, share, span, delta)
            if query.tolerance.error is not None and _is_wide(values, ends, query.tolerance.error):
                return None
            bounds[query.bound.output.names[estimate.place]] = _cells(ends)
        return answer, Bounds(query.tolerance.confidence / 100, bounds)

    def _range(
        self,
        version: Version,
        reduced: ReducedQuery,
        stream: StreamDef,
        estimate: Estimate,
        at: int,
    ) -> tuple[float, float] | None:
        """The least and greatest value a column has where the window may reach; None: not known."""
        column = estimate.column
        if column is None:
            return None
        low, high = interval(reduced.bound.streams[0].window, at)
        found = [(np.inf, -np.inf)]
        for ref in version.segments(stream.id, stream.kind):
            if ref.min_ts > high or (low is not None and ref.max_ts < low):
                continue
            opened = self._files.segment(ref)

            def compute(table: pa.Table = opened.table) -> np.ndarray:
                values = get_column(table, column).cast(pa.float64(), safe=False)
                ends = pc.min_max(values)
                if ends["min"].as_py() is None:
                    return np.array([np.inf, -np.inf])
                if pc.any(pc.is_nan(values)).as_py():
                    return np.array([np.nan, np.nan])
                return np.array([ends["min"].as_py(), ends["max"].as_py()])

            least, greatest = opened.get_or_compute(("range", column), compute)
            found.append((float(least), float(greatest)))
        ends = np.array(found)
        least, greatest = float(ends[:, 0].min()), float(ends[:, 1].max())
        return (least, greatest) if np.isfinite([least, greatest]).all() else None


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    """Numbers as float64; NaN for NULL."""
    return np.asarray(
        pc.fill_null(column.cast(pa.float64(), safe=False), np.nan).to_numpy(), dtype=np.float64
    )


def _bound(
    estimate: Estimate,
    values: np.ndarray,
    measures: list[np.ndarray],
    share: float,
    span: tuple[float, float] | None,
    delta: float,
) -> Ends:
    """The intervals of one column."""
    if estimate.function == COUNT:
        return bound_counts(measures[0], share, delta)
    if span is None:
        nothing = np.full(len(values), np.nan)
        return nothing, nothing
    least, greatest = span
    if estimate.function == AVG:
        count, variance = measures
        return bound_means(values, variance, np.maximum(count, 1), greatest - least, delta)
    total, squares = measures
    return bound_sums(total, squares, share, max(abs(least), abs(greatest)), delta)


def _is_wide(values: np.ndarray, ends: Ends, error: float) -> bool:
    """Whether an interval reaches farther from its estimate than so many per cent of it."""
    low, high = ends
    reach = np.maximum(values - low, high - values)
    with np.errstate(invalid="ignore"):
        return bool((~(reach <= np.abs(values) * error / 100)).any())


def _cells(ends: Ends) -> list[tuple[float, float] | None]:
    return [
        None if low != low or high != high else (low, high)
        for low, high in zip(ends[0].tolist(), ends[1].tolist(), strict=True)
    ]
