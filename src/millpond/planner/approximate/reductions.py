"""Reductions of a query: what of it may be reduced, and the reduced query (STREAM, 5.1).

A reduced query is the query with other windows and samples on its leaves; of aggregates it is the
query that estimates them. Everything that computes queries computes it.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, replace

from millpond.catalog.tolerance import Reduction
from millpond.model.windows import Range, Unbounded, Window
from millpond.planner.approximate.estimators import Estimate, estimating_query, find_estimates
from millpond.planner.approximate.filters import FilterSurvey, mark_filters, survey_filters
from millpond.planner.approximate.safety import find_obstacle
from millpond.planner.bind.bound_query import BoundQuery, StreamLeaf


@dataclass(frozen=True)
class LeafSurvey:
    """Whether an occurrence of a stream may be reduced.

    Attributes:
        against_window: Why its window may not be shortened; None if it may.
        against_sample: Why it may not be sampled; None if it may.
    """

    against_window: str | None
    against_sample: str | None


@dataclass(frozen=True)
class Survey:
    """What of a query may be reduced.

    Attributes:
        leaves: Of each occurrence of a stream.
        estimates: The columns that are estimated if the stream is sampled; empty if the rows of a
            sampled answer are rows of the exact one.
        filters: Of each condition that asks whether rows are there.
    """

    leaves: tuple[LeafSurvey, ...]
    estimates: tuple[Estimate, ...]
    filters: tuple[FilterSurvey, ...] = ()

    def clip(self, wanted: Reduction) -> Reduction:
        """The part of a reduction that is allowed for some leaf."""
        shortened = any(leaf.against_window is None for leaf in self.leaves)
        sampled = any(leaf.against_sample is None for leaf in self.leaves)
        filtered = any(one.against is None for one in self.filters)
        return Reduction(
            wanted.window if shortened else None,
            wanted.sample if sampled else None,
            false_positives=wanted.false_positives if filtered else None,
        )


@dataclass(frozen=True)
class ReducedQuery:
    """A query that is reduced.

    Attributes:
        whole: The query as it is written.
        bound: The query to be computed.
        reduction: How far it is reduced.
        estimates: The estimated columns; then `bound` has more columns than the answer.
        filtered: The slices whose rows conditions ask a filter for.
    """

    whole: BoundQuery
    bound: BoundQuery
    reduction: Reduction
    estimates: tuple[Estimate, ...] = ()
    filtered: tuple[str, ...] = ()


def survey(bound: BoundQuery) -> Survey:
    """Find what of a query may be reduced."""
    estimates = find_estimates(bound)
    leaves = []
    for leaf in bound.streams:
        obstacle = find_obstacle(bound, leaf.table)
        against_sample = obstacle
        if not isinstance(estimates, str):
            against_sample = None
        elif obstacle is not None and "aggregate" in obstacle:
            against_sample = f"{obstacle}, and {estimates}"
        leaves.append(
            LeafSurvey(
                obstacle or _refuse_window(leaf.window),
                against_sample or _refuse_sample(leaf),
            )
        )
    known = estimates if not isinstance(estimates, str) else ()
    return Survey(tuple(leaves), known, survey_filters(bound))


def _refuse_window(window: Window) -> str | None:
    if isinstance(window, Range | Unbounded):
        return None
    return f"a window of {type(window).__name__.upper()} has no length of time to shorten"


def _refuse_sample(leaf: StreamLeaf) -> str | None:
    if leaf.sample is not None:
        return "it has a SAMPLE of its own"
    if not isinstance(leaf.window, Range | Unbounded):
        return _refuse_window(leaf.window) and "it is sampled in windows of time alone"
    return None


def reduce_query(bound: BoundQuery, found: Survey, wanted: Reduction) -> ReducedQuery | None:
    """The query reduced as far as is wanted and allowed; None if nothing of it is reduced."""
    leaves = []
    seen: Counter[str] = Counter()
    sampled = shortened = False
    for number, (leaf, known) in enumerate(zip(bound.streams, found.leaves, strict=True)):
        name, share = leaf.stream.lower(), wanted.sample_of(number)
        window, sample = leaf.window, leaf.sample
        if wanted.window is not None and known.against_window is None:
            window = shorten(leaf.window, wanted.window)
            shortened |= window != leaf.window
        if share is not None and known.against_sample is None:
            sample, sampled = share, True
        if (window, sample) != (leaf.window, leaf.sample):
            seed = leaf.seed if sample == leaf.sample else stream_seed(name, seen[name])
            leaf = replace(leaf, window=window, sample=sample, seed=seed)
        seen[name] += 1
        leaves.append(leaf)
    marked = None
    if wanted.false_positives is not None:
        marked = mark_filters(bound, wanted.false_positives / 100)
    reduction = Reduction(
        wanted.window if shortened else None,
        wanted.sample if sampled else None,
        wanted.samples if sampled else (),
        None if marked is None else wanted.false_positives,
    )
    if not reduction:
        return None
    reduced = replace(
        marked or bound, streams=tuple(leaves), aggregates=None, grouped=None, join=None
    )
    if not sampled or not found.estimates:
        filtered = tuple(one.table for one in found.filters if one.against is None)
        return ReducedQuery(bound, reduced, reduction, filtered=filtered if marked else ())
    assert wanted.sample is not None
    estimating = estimating_query(reduced, found.estimates, wanted.sample)
    return ReducedQuery(bound, estimating, reduction, found.estimates)


def measure_given_up(reduction: Reduction, whole: BoundQuery) -> float:
    """The share of what a query reads that it gives up by a reduction, from 0 to 1.

    Of windows, that of the longest one; nothing is left to speak of where it had no end.
    """
    kept = 1.0 if reduction.sample is None else reduction.sample / 100
    if reduction.window is not None:
        windows = [leaf.window for leaf in whole.streams]
        longest = max((w.size for w in windows if isinstance(w, Range)), default=0)
        is_endless = any(isinstance(w, Unbounded) for w in windows)
        kept *= 0.0 if is_endless else min(1.0, reduction.window / max(longest, 1))
    return round(1.0 - kept, 9)


def shorten(window: Window, length: int) -> Window:
    """A window of time with at most this length, in microseconds; a shorter one as it is.

    >>> shorten(Unbounded(), 5), shorten(Range(9, slide=2), 5), shorten(Range(3), 5)
    (Range(size=5, slide=None), Range(size=5, slide=2), Range(size=3, slide=None))
    """
    match window:
        case Unbounded():
            return Range(length)
        case Range(size, slide) if size > length:
            return Range(length, slide)
    return window


def stream_seed(name: str, occurrence: int) -> int:
    """The seed of a stream's reduced samples: the same for all queries, so that a small sample is
    part of a greater one; each occurrence in a query has its own."""
    return zlib.crc32(f"{name}:{occurrence}".encode())
