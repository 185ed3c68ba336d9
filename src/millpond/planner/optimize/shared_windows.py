"""Followed windows over one synopsis, whatever their lengths and columns (Bulletin 2.2).

Where a window's expirations are announced, its elements are kept below it, by a node that windows
of all lengths share. It is the last step of planning: what a plan costs, and what somebody chose of
its operators, is said of the window itself.
"""

from __future__ import annotations

from millpond.model.patterns import Pattern
from millpond.operators.expire import Expire
from millpond.operators.protocol.node import Node
from millpond.operators.windows.shared_window import KeptElements, SharedWindow
from millpond.operators.windows.time_window import TimeWindow


def share_windows(root: Node) -> Node:
    """Put a window over kept elements wherever a plan announces a window's expirations.

    A query that has a window for itself has its elements, too. Elements come in the order of their
    timestamps (`TimeWindow.in_order`).
    """
    done: dict[str, Node] = {}

    def visit(node: Node) -> Node:
        if node.key not in done:
            inputs = tuple(map(visit, node.inputs))
            found = node if inputs == node.inputs else node.over_inputs(inputs)
            done[node.key] = _share(found) or found
        return done[node.key]

    return visit(root)


def _share(node: Node) -> Node | None:
    window = node.input if isinstance(node, Expire) else None
    if not isinstance(window, TimeWindow) or window.pattern is not Pattern.WEAKEST:
        return None
    kept: Node = KeptElements(window.input)
    if node.owner:
        kept = kept.own_by(node.owner)
    found: Node = SharedWindow(kept, window.window, window.text, window.names, window.keep)
    if node.owner:
        found = found.own_by(node.owner)
    # It is the same operator in another form: what was chosen of one holds for the other.
    found.__dict__["logical_key"] = window.logical_key
    return found
