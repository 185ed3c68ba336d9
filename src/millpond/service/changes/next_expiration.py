"""The next expiration: when time alone will next bring changes to a derivation.

A derivation without new input still changes when elements leave its windows or, with SLIDE, enter
them. The timestamps of the kept elements say when. So on system time and for idle streams the
advancer sleeps until then and need not poll.
"""

from __future__ import annotations

import numpy as np

from millpond.catalog.objects import StreamDef
from millpond.model.time import END
from millpond.model.windows import list_delays, slide_of
from millpond.planner.bind.bound_query import BoundQuery
from millpond.service.answers.leaf_scan import Files
from millpond.state.version import Version


def next_expiration(files: Files, version: Version, bound: BoundQuery, position: int) -> int:
    """The first instant after a position at which a window may change by itself; END if none does.

    It looks at all elements, whatever the predicates: the instant may bring no change, but no
    change comes earlier.
    """
    soonest: int = END
    for leaf in bound.streams:
        stream = version.find(leaf.stream)
        if not isinstance(stream, StreamDef):
            continue
        segments = version.segments(stream.id, stream.kind)
        slide = slide_of(leaf.window)
        for delay in list_delays(leaf.window):
            # An element is due after the position if its own time is after this.
            since = position // slide * slide - delay
            for segment in segments:
                if segment.max_ts <= since or segment.min_ts > position:
                    continue
                at = files.segment(segment).ts
                place = int(np.searchsorted(at, since, side="right"))
                if at[place] <= position:
                    due = int(at[place]) + delay
                    # With a slide, everything is due at the first multiple of it from then on.
                    soonest = min(soonest, -(-due // slide) * slide)
    return soonest
