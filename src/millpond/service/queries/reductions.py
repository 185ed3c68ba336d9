"""Reductions of standing queries: static ones, at registration, and what a query may be given now.

A query's windows are granted `query_memory` bytes times its weight. If they are expected to hold
more, the query is reduced within what it tolerates before it begins (STREAM, section 5.1). Of a
query with several windows, each is sampled by as much as gives the best precision (section 5.3).
How far is kept with the query, as its option `reduced`, so it is durable with the registration's
epoch.
Without tolerance, and before its streams have elements, a query is registered exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from millpond.catalog.objects import REDUCED, given_options
from millpond.catalog.option_values import parse_memory
from millpond.catalog.options import OPTIONS
from millpond.catalog.tolerance import Reduction
from millpond.model.windows import Range, Rows, Unbounded, Window
from millpond.operators.protocol.precision import Precision
from millpond.planner.approximate.allocation import allocate, round_down, share_equally
from millpond.planner.approximate.precision import PrecisionModel
from millpond.planner.approximate.reductions import ReducedQuery, Survey, reduce_query, survey
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.dataflow.filtered_windows import slice_window
from millpond.service.queries.options import tolerance_of
from millpond.service.queries.prepared import stream_of
from millpond.state.version import Version
from millpond.synopses.sliced_filter import predict_bits

_UNBOUNDED = "unbounded"

#: Makes the model that predicts how exact a reduced query's answers are; None if there is none.
ModelPrecision = Callable[[Version, BoundQuery], PrecisionModel | None]


def granted_bytes(version: Version, options: Mapping[str, Any]) -> int | None:
    """How many bytes a query with these options may have in its windows; None: any number."""
    given = version.settings.get("query_memory", OPTIONS["query_memory"].default)
    if given == _UNBOUNDED:
        return None
    return int(parse_memory(given) * float(options.get("weight", 1)))


def predict_bytes(version: Version, bound: BoundQuery, number: int, window: Window) -> float | None:
    """How many bytes the elements in a window over a stream of a query are expected to have.

    The rate is that of the kept elements. None: the stream has no elements yet.
    """
    stream = stream_of(version, bound.streams[number])
    segments = version.segments(stream.id, stream.kind)
    if not segments:
        return None
    kept = float(sum(segment.bytes for segment in segments))
    if isinstance(window, Unbounded):
        return kept
    if isinstance(window, Rows):
        return kept * min(1.0, window.count / sum(segment.rows for segment in segments))
    if not isinstance(window, Range):
        return kept
    since = min(segment.min_ts for segment in segments)
    upto = max(segment.max_ts for segment in segments)
    return kept * min(1.0, window.size / (upto - since + 1))


def decide(
    version: Version,
    bound: BoundQuery,
    options: Mapping[str, Any],
    model_precision: ModelPrecision,
) -> Reduction:
    """Choose how far a query is reduced when it is registered.

    Filters come first, if they save anything, because they miss nothing; streams are sampled before
    windows are shortened, because a sample says what is missing.
    """
    tolerance, granted = tolerance_of(options), granted_bytes(version, options)
    if not tolerance or granted is None:
        return Reduction()
    found = survey(bound)
    least = found.clip(tolerance.least)
    needed = predict_query(version, bound, found, Reduction())
    if not least or needed is None or needed <= granted:
        return Reduction()
    chosen = Reduction()
    if least.false_positives is not None:
        filtered = Reduction(false_positives=least.false_positives)
        saved = predict_query(version, bound, found, filtered)
        chosen = filtered if saved is not None and saved < needed else chosen
    divided = None
    if least.sample is not None and not chosen:
        divided = _divide(version, bound, found, least.sample / 100, granted, model_precision)
    if divided is not None:
        chosen = divided
    elif least.sample is not None and not _fits(version, bound, found, chosen, granted):
        share = least.sample
        for percent in _falling(100.0, share):
            share = percent
            if _fits(version, bound, found, replace(chosen, sample=percent), granted):
                break
        chosen = replace(chosen, sample=share)
    if least.window is not None and not _fits(version, bound, found, chosen, granted):
        longest = max(_length(version, bound, n) for n in range(len(bound.streams)))
        length = least.window
        for micros in _falling(float(longest), float(least.window)):
            length = int(micros)
            if _fits(version, bound, found, replace(chosen, window=length), granted):
                break
        chosen = replace(chosen, window=length)
    reduced = reduce_query(bound, found, chosen)
    return Reduction() if reduced is None else reduced.reduction


def _divide(
    version: Version,
    bound: BoundQuery,
    found: Survey,
    lowest: float,
    granted: int,
    model_precision: ModelPrecision,
) -> Reduction | None:
    """Divide the grant among several windows for the best precision; None: nothing is predicted."""
    divided = _find_shares(version, bound, found, lowest)
    if divided is None or (model := model_precision(version, bound)) is None:
        return None
    needs, least = divided
    shares = allocate(model.predict, needs, least, granted)
    if shares is None:
        return None
    rounded = [round_down(share, own) for share, own in zip(shares, least, strict=True)]
    return Reduction.of_shares(rounded)


def _find_shares(
    version: Version, bound: BoundQuery, found: Survey, lowest: float
) -> tuple[list[float], list[float]] | None:
    """The bytes and the least share of each window; None if fewer than two may be sampled."""
    may = [leaf.against_sample is None for leaf in found.leaves]
    if sum(may) < 2 or found.estimates:
        return None
    given = [predict_bytes(version, bound, n, leaf.window) for n, leaf in enumerate(bound.streams)]
    needs = [need for need in given if need is not None]
    if len(needs) < len(given):
        return None
    return needs, [lowest if own else 1.0 for own in may]


def predict_precision(
    version: Version,
    bound: BoundQuery,
    options: Mapping[str, Any],
    reduction: Reduction,
    model_precision: ModelPrecision,
) -> tuple[Precision, Precision | None] | None:
    """Predict how exact a reduced query's answers are; None where there is no formula.

    Returns:
        The precision, and that of equal shares of the memory where there is memory to divide.
    """
    found = survey(bound)
    reduced = reduce_query(bound, found, reduction) if reduction else None
    if reduced is None or reduced.estimates:
        return None
    if (model := model_precision(version, reduced.bound if reduced.filtered else bound)) is None:
        return None
    shares = []
    for number, (whole, leaf) in enumerate(zip(bound.streams, reduced.bound.streams, strict=True)):
        needs = predict_bytes(version, bound, number, whole.window)
        has = predict_bytes(version, bound, number, leaf.window)
        part = 1.0 if leaf.sample == whole.sample else (leaf.sample or 100.0) / 100
        shares.append(part * (has / needs if has and needs else 1.0))
    predicted = model.predict(shares)
    granted = granted_bytes(version, options)
    least = tolerance_of(options).least.sample
    if predicted is None:
        return None
    if granted is None or least is None or reduction.window is not None:
        return predicted, None
    divided = _find_shares(version, bound, found, least / 100)
    equal = None if divided is None else model.predict(share_equally(*divided, granted))
    return predicted, equal


def _falling(first: float, last: float) -> list[float]:
    """Steps from below `first` down to `last`, each three quarters of the one before."""
    steps = []
    value = first * 0.75
    while value > last:
        steps.append(float(f"{value:.2g}"))
        value *= 0.75
    return [*(step for step in steps if step > last), last]


def _length(version: Version, bound: BoundQuery, number: int) -> int:
    window = bound.streams[number].window
    if isinstance(window, Range):
        return window.size
    stream = stream_of(version, bound.streams[number])
    segments = version.segments(stream.id, stream.kind)
    if not isinstance(window, Unbounded) or not segments:
        return 0
    return max(s.max_ts for s in segments) - min(s.min_ts for s in segments) + 1


def _fits(
    version: Version, bound: BoundQuery, found: Survey, wanted: Reduction, granted: int
) -> bool:
    needed = predict_query(version, bound, found, wanted)
    return needed is not None and needed <= granted


def predict_query(
    version: Version, bound: BoundQuery, found: Survey, wanted: Reduction
) -> float | None:
    """How many bytes a query's windows are expected to hold if it is reduced; None: not known."""
    reduced = reduce_query(bound, found, wanted) if wanted else None
    leaves = bound.streams if reduced is None else reduced.bound.streams
    total = 0.0
    for number, leaf in enumerate(leaves):
        needed = predict_bytes(version, bound, number, leaf.window)
        if needed is None:
            return None
        if reduced is not None and leaf.table in reduced.filtered:
            needed *= _filtered_share(version, bound, number, leaf.window, reduced.reduction)
        total += needed * (1.0 if leaf.sample is None else leaf.sample / 100)
    return total


def _filtered_share(
    version: Version, bound: BoundQuery, number: int, window: Window, reduction: Reduction
) -> float:
    """How many bytes a filter of a window's rows takes for each byte of the rows.

    As if each row were a key of its own.
    """
    assert reduction.false_positives is not None
    stream = stream_of(version, bound.streams[number])
    segments = version.segments(stream.id, stream.kind)
    each = sum(s.bytes for s in segments) / max(sum(s.rows for s in segments), 1)
    slicing = slice_window(window, reduction.false_positives / 100)
    return predict_bits(slicing.share, slicing.slices) / 8 / max(each, 1.0)


def with_static_reduction(
    version: Version,
    bound: Callable[[], BoundQuery],
    options: dict[str, Any],
    model_precision: ModelPrecision,
) -> dict[str, Any]:
    """A query's options with the reduction it has from now on; `bound` binds its text."""
    kept = given_options(options) if options else options
    if not tolerance_of(kept):
        return kept
    chosen = decide(version, bound(), kept, model_precision)
    return {**kept, REDUCED: str(chosen)} if chosen else kept


def reduce_changes(bound: BoundQuery, reduction: Reduction) -> ReducedQuery | None:
    """The reduced query whose changes are made instead of a query's; None if it is not reduced.

    Changes have no estimates: those of an estimated query are exact.
    """
    if not reduction:
        return None
    reduced = reduce_query(bound, survey(bound), reduction)
    return None if reduced is None or reduced.estimates else reduced
