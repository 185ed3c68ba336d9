"""The functions that estimates in a SELECT list call: each asks a summary about many values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.catalog.objects import FunctionDef
from millpond.engine.joins.keys import Axis, axis_of, code_column
from millpond.planner.resolve.estimates import NamedEstimate
from millpond.service.answers.summary_states import SummaryStates
from millpond.state.version import Version
from millpond.synopses.summaries.protocol import Estimates, Numbers
from millpond.synopses.summaries.stream_summary import StreamSummary

#: Arrow arrays in, an Arrow array out.
Function = Callable[..., pa.Array]


def estimate_functions(
    version: Version, states: SummaryStates, estimates: Mapping[str, NamedEstimate]
) -> dict[str, tuple[FunctionDef, Function]]:
    """Make the functions that a query's residual calls, by their names in DuckDB.

    Raises:
        MillpondError: CQL-201, a stream is gone; STORE-602, a segment is corrupt.
    """
    found = {}
    for inside, estimate in estimates.items():
        definition = version.summaries.get(estimate.summary.name.lower(), estimate.summary)
        found[inside] = estimate.signature, _make_function(estimate, states.at(version, definition))
    return found


def _make_function(estimate: NamedEstimate, summary: StreamSummary) -> Function:
    axis = axis_of(estimate.type, estimate.type)
    assert axis is not None

    def answer(*arguments: Any) -> pa.Array:
        length = len(arguments[0]) if arguments else 1
        asked = [_code(argument, axis) for argument in arguments]
        codes = [own for own, _ in asked]
        values = ask(summary, estimate.kind, codes, length)
        known = np.ones(length, np.bool_)
        for _, own in asked:
            known &= own
        return pa.array(values, pa.float64(), mask=~known)

    return answer


def ask(summary: StreamSummary, kind: str, codes: list[Numbers], length: int) -> Estimates:
    """Answer one question about the whole summary, for many values: float64[length]."""
    top, total = summary.top, float(summary.top[0, 0])
    match kind:
        case "total":
            return np.full(length, total)
        case "confidence":
            return np.full(length, float(summary.kind.confidence(top)[0]))
        case "error" if len(codes) == 2:
            return summary.kind.error_between(top, *codes)[0]
        case "error":
            return summary.kind.error(top, codes[0])[0]
    counts = summary.kind.count(top, codes[0]) if len(codes) == 1 else None
    if counts is None:
        counts = summary.kind.count_between(top, *codes)
    return counts[0] / max(total, 1) if kind == "frequency" else counts[0]


def _code(column: Any, axis: Axis) -> tuple[Numbers, np.ndarray]:
    """The codes of values, and which are known."""
    coded = code_column(column, axis)
    known = np.ones(len(column), np.bool_) if coded.nulls is None else ~coded.nulls
    return np.ascontiguousarray(coded.numbers), known
