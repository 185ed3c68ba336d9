"""Windows whose rows are filtered: in how many slices of time, and how much more is read for them.

A filter that is made anew, after a restart, has to have the bits of the one before. So it is given
all rows of the slices that are still there: the window below it is a slice longer than it was
written, and `Plan.reach` and retention know.
"""

from __future__ import annotations

import math

from millpond.model.windows import Range, Unbounded, Window
from millpond.operators.filtered_semijoin import Slicing
from millpond.operators.project import Project
from millpond.operators.protocol.node import Node
from millpond.operators.sample import Sample
from millpond.operators.select import Select
from millpond.operators.windows.time_window import TimeWindow

#: Operators that look at one row at a time.
_ROW_BY_ROW = (Project, Sample, Select)


def find_window(node: Node) -> Window | None:
    """The window whose rows are those of a node; None if there is none, or it is in steps."""
    while isinstance(node, _ROW_BY_ROW):
        node = node.input
    if not isinstance(node, TimeWindow) or not node.in_order:
        return None
    below = node.input
    while isinstance(below, _ROW_BY_ROW):
        below = below.input
    if below.feed is None:
        return None
    window = node.window
    is_range = isinstance(window, Range) and window.slide is None
    return window if is_range or isinstance(window, Unbounded) else None


def slice_window(window: Window, share: float) -> Slicing:
    """How a filter of a window's rows is cut, so that no row counts for a greater share longer.

    >>> from millpond.model.windows import Range
    >>> slice_window(Range(1_000_000), 0.01)
    Slicing(share=0.01, length=10000, slices=102, ahead=10000)
    """
    if not isinstance(window, Range):
        return Slicing(share, None, 1)
    slices = math.ceil(1 / share)
    length = max(1, window.size // slices)
    # The window's own, one that it ends in, and the one that is ahead.
    return Slicing(share, length, math.ceil(window.size / length) + 2, length)


def lengthen_window(node: Node, more: int) -> Node:
    """The node over the rows of a window that is longer, by microseconds."""
    if isinstance(node, TimeWindow):
        if not isinstance(node.window, Range):
            return node
        longer = Range(node.window.size + more)
        return TimeWindow(node.input, longer, node.text, node.names, node.keep, node.in_order)
    return node.over_inputs([lengthen_window(below, more) for below in node.inputs])
