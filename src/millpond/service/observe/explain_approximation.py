"""EXPLAIN APPROXIMATION: what of a query may be reduced, what that saves, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from millpond.catalog.tolerance import Reduction
from millpond.operators.protocol.precision import Precision
from millpond.planner.approximate.reductions import Survey, reduce_query, survey
from millpond.planner.bind.bound_query import BoundQuery
from millpond.planner.explain.logical_plan import window_text
from millpond.service.queries.options import static_reduction, tolerance_of
from millpond.service.queries.reductions import (
    ModelPrecision,
    granted_bytes,
    predict_bytes,
    predict_precision,
    predict_query,
)
from millpond.state.version import Version


def describe_approximation(
    version: Version,
    bound: BoundQuery,
    options: Mapping[str, Any],
    model_precision: ModelPrecision,
    measured: str = "",
) -> str:
    """Describe what of a query may be reduced, and how far it is.

    Args:
        version: What there is.
        bound: The query.
        options: Its options.
        model_precision: Makes the model that predicts how exact it is.
        measured: How exact its answer is now, if that was measured.
    """
    lines = [*_lines(version, bound, options)]
    reduced = static_reduction(options)
    predicted = predict_precision(version, bound, options, reduced, model_precision)
    if predicted is not None:
        own, equal = predicted
        beside = (
            "" if equal is None else f"; by equal shares of memory: {describe_precision(equal)}"
        )
        lines.append(f"predicted: {describe_precision(own)}{beside}")
    if measured:
        lines.append(f"measured: {measured}")
    return "\n".join(lines)


def describe_precision(precision: Precision) -> str:
    """Say how exact answers are.

    >>> describe_precision(Precision(0.125, 0.01))
    '12.5 % of the rows missing, 1.13 % wrong'
    """
    wrong = precision.false_positives
    return f"{precision.missing * 100:.3g} % of the rows missing, {wrong * 100:.3g} % wrong"


def measure_precision(exact: pa.Table, given: pa.Table) -> Precision:
    """Compare the rows of an answer with those of the exact one.

    >>> exact, given = pa.table({"a": [1, 1, 2, 3]}), pa.table({"a": [1, 2, 4]})
    >>> measure_precision(exact, given)
    Precision(missing=0.5, wrong=0.25)
    """
    whole, part = (Counter(map(repr, table.to_pylist())) for table in (exact, given))
    rows = max(whole.total(), 1)
    return Precision((whole - part).total() / rows, (part - whole).total() / rows)


def _lines(version: Version, bound: BoundQuery, options: Mapping[str, Any]) -> Iterator[str]:
    found, tolerance = survey(bound), tolerance_of(options)
    granted, reduced = granted_bytes(version, options), static_reduction(options)
    yield f"tolerates: {tolerance}"
    yield f"granted: {'any number of bytes' if granted is None else _bytes(granted)}"
    yield f"needs: {_bytes(predict_query(version, bound, found, Reduction()))} in its windows"
    yield f"reduced to: {reduced}" if reduced else "reduced: no, it is exact"
    if least := found.clip(tolerance.least):
        needed = predict_query(version, bound, found, least)
        yield f"at the least: {least}, {_bytes(needed)}"
    for number, leaf in enumerate(bound.streams):
        needed = predict_bytes(version, bound, number, leaf.window)
        yield f"{leaf.stream} {window_text(leaf.window)}: {_bytes(needed)}"
        known = found.leaves[number]
        yield f"  window: {_verdict(known.against_window, 'may be shortened')}"
        yield f"  sample: {_verdict(known.against_sample, _what_a_sample_gives(bound, found))}"
    for one in found.filters:
        filtered = "a filter may answer it in the changes; invocations are exact"
        yield f"{one.condition}: {_verdict(one.against, filtered)}"
    if not bound.streams:
        yield "it reads no stream"
    yield from _changes(bound, found)


def _verdict(obstacle: str | None, what: str) -> str:
    return what if obstacle is None else f"refused: {obstacle}"


def _what_a_sample_gives(bound: BoundQuery, found: Survey) -> str:
    if not found.estimates:
        return "may be sampled; the rows of a sample are rows of the answer"
    names = [bound.output.names[e.place] for e in found.estimates]
    return f"may be sampled; {', '.join(names)}: estimated, with bounds"


def _changes(bound: BoundQuery, found: Survey) -> Iterator[str]:
    reduced = reduce_query(bound, found, Reduction(None, 50.0))
    if reduced is not None and reduced.estimates:
        yield "changes: exact, because estimates have none"


def _bytes(number: float | None) -> str:
    if number is None:
        return "an unknown number of bytes"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if number >= size:
            return f"{number / size:,.3g} {unit}"
    return f"{number:,.0f} bytes"
