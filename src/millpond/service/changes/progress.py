"""How far derivations are: the elements they have still to take in, and the steps that run now.

A derivation that is far behind is advanced in steps of some hundred thousand elements
(`advance_jobs.step_end`), and its position moves with each. A worker that has no state, as after a
restart, first takes in again all that still matters: then one step is long, and the position stays
until it is done. So a step that runs tells since when, up to where, and over how many elements.
"""

from __future__ import annotations

import time as clock_time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millpond.errors import MillpondError
from millpond.model.time import format_instant
from millpond.service.answers.leaf_scan import Files
from millpond.service.changes.advance_jobs import Runnable, list_reached, sources
from millpond.service.changes.derivation import Derivation
from millpond.service.results import count_text
from millpond.state.version import SegmentRef, Version


@dataclass(frozen=True)
class RunningStep:
    """A step of a derivation that runs now.

    Attributes:
        began: When it began, by `time.monotonic`.
        upto: The instant up to which it goes.
        elements: How many elements it may read, with those that matter from before its position.
    """

    began: float
    upto: int
    elements: int

    def describe(self) -> dict[str, Any]:
        """What its control table has."""
        return {
            "step upto": format_instant(self.upto),
            "step elements": self.elements,
            "step seconds": round(clock_time.monotonic() - self.began, 3),
        }

    def __str__(self) -> str:
        seconds = clock_time.monotonic() - self.began
        over = f"{count_text(self.elements, 'element')} up to {format_instant(self.upto)}"
        return f"a step over {over} runs for {seconds:,.1f} s"


def list_steps(version: Version, due: Sequence[Runnable]) -> Mapping[int, RunningStep]:
    """List the steps that begin now, by derivation."""
    began, found = clock_time.monotonic(), {}
    for item in due:
        position = item.clock.position
        since = item.derivation.reach(position)
        elements = sum(
            segment.rows
            for name, segments in sources(version, item.derivation)
            for segment in list_reached(segments, since.get(name), position, item.upto)
        )
        found[item.derivation.id] = RunningStep(began, item.upto, elements)
    return found


def count_behind(
    files: Files, version: Version, derivation: Derivation, after: int, upto: int
) -> int:
    """Count the elements that a derivation has not taken in and that are final for it.

    Args:
        files: Opens the segments that are final in part.
        version: What there is; pinned by the caller.
        derivation: The derivation.
        after: The last instant up to which its changes are known.
        upto: The last instant that is final.
    """
    return sum(
        _count(files, segment, after, upto)
        for _, segments in sources(version, derivation)
        for segment in segments
        if segment.max_ts > after and segment.min_ts <= upto
    )


def find_step_end(
    files: Files, version: Version, derivation: Derivation, after: int, upto: int, most: int
) -> int:
    """Find the instant at which a derivation will have taken in so many further elements.

    Args:
        files: Opens the segments.
        version: What there is; pinned by the caller.
        derivation: The derivation.
        after: The last instant up to which its changes are known.
        upto: The last instant that may be returned.
        most: How many elements; those of the last instant come on top.
    """
    found = []
    for _, segments in sources(version, derivation):
        for segment in segments:
            if segment.max_ts > after and segment.min_ts <= upto:
                try:
                    ts = files.segment(segment).ts
                except MillpondError:
                    return upto  # who needs the segment reports that it is torn
                low, high = np.searchsorted(ts, (after, upto), side="right")
                found.append(ts[low:high])
    ahead = np.concatenate(found) if found else np.empty(0, np.int64)
    if len(ahead) <= most:
        return upto
    return int(np.partition(ahead, most - 1)[most - 1])


def _count(files: Files, segment: SegmentRef, after: int, upto: int) -> int:
    if segment.min_ts > after and segment.max_ts <= upto:
        return segment.rows
    try:
        ts = files.segment(segment).ts
    except MillpondError:
        return segment.rows  # who needs the segment reports that it is torn
    low, high = np.searchsorted(ts, (after, upto), side="right")
    return int(high - low)
