"""The promise of regions: the preference's value for every value in every zone, at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.engine.joins.keys import Numbers
from millpond.engine.scalars.residual_query import Limits, Residual
from millpond.planner.bind.preference import BoundPreference
from millpond.synopses.summaries.protocol import Estimates
from millpond.synopses.summaries.stream_summary import StreamSummary

#: More regions than any summary has of that many values.
_MANY = 1 << 62


def prioritize(
    residual: Residual,
    preference: BoundPreference,
    matrices: list[Estimates],
    values: dict[int, pa.ChunkedArray],
    expected: Estimates,
) -> Estimates:
    """Compute the preference where anything is expected; 0 elsewhere: float64[zones, values].

    Args:
        residual: Evaluates the preference's expression.
        preference: The preference.
        matrices: For each of its estimates one number a region, float64[zones or 1, values].
        values: The values themselves, by the leaf whose attribute they are.
        expected: How many elements are expected of each region: float64[zones, values].

    Raises:
        MillpondError: POND-404, it cannot be computed.
    """
    out = np.zeros(expected.shape)
    zone, value = np.nonzero(expected > 0)
    if not len(zone):
        return out
    columns = [np.broadcast_to(m, expected.shape)[zone, value] for m in matrices]
    if preference.sql == "(e0)":
        out[zone, value] = columns[0]
        return out
    table = pa.table(
        {f"e{n}": column for n, column in enumerate(columns)}
        | {f"v{leaf}": own.take(pa.array(value)) for leaf, own in values.items()}
    )
    sql = f"SELECT CAST({preference.sql} AS DOUBLE) AS priority FROM regions"
    found = residual.evaluate(sql, {"regions": table}, Limits(rows=_MANY))
    priority = found["priority"].to_numpy()
    out[zone, value] = np.where(found["priority"].is_null().to_numpy(), np.nan, priority)
    return out


def estimate_regions(
    summary: StreamSummary, kind: str, counts: Estimates, codes: Numbers
) -> Estimates:
    """An estimate about the values in each zone: float64[zones, values].

    Args:
        summary: The summary.
        kind: 'count', 'frequency' or 'error'.
        counts: `summary.count_by_zone(codes)`.
        codes: The values.
    """
    match kind:
        case "frequency":
            return counts / np.maximum(summary.zones.cells[:, :1], 1)
        case "error":
            return summary.kind.error(summary.zones.cells, codes)
    return counts


def merge_zones(summary: StreamSummary, low: int, high: int) -> StreamSummary:
    """The zones that a window reaches, as a summary of one zone."""
    zones = summary.zones
    reached = (zones.edges[1:] > low) & (zones.edges[:-1] <= high)
    to = np.where(reached, 0, -1)
    cells = summary.kind.collapse(zones.cells, to, 1)
    edges = np.array([zones.edges[0], zones.edges[-1]], np.int64)
    return StreamSummary(
        summary.kind, summary.grid, summary.position, edges, np.full(1, 2, np.int64), cells
    )
