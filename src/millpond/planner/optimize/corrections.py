"""Estimates corrected by what operators were seen to give as they ran.

A sample says little of how columns depend on each other, and of what joins. So where an operator
ran, its estimate is multiplied by what it gave, divided by what it should have given. A factor
counts for all forms of the operator, and for joins in any order: it is found by what is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from millpond.operators.expire import Expire
from millpond.operators.join import Join
from millpond.operators.protocol.cost_model import EdgeEstimate, StreamStatistics
from millpond.operators.protocol.node import Node, hash_text
from millpond.operators.windows.shared_window import KeptElements, SharedWindow

#: By `name_result`.
Corrections = Mapping[str, float]

#: What adds and loses no row: `Expire` and the windows that are shared tell of expirations, which
#: are fewer than arrivals until a window is full.
_FORMS = (Expire, KeptElements, SharedWindow)

#: Changes a second that are taken for none; an estimate is corrected by no larger factor.
_LEAST_RATE, _MOST_FACTOR = 1e-3, 1e6


def name_result(node: Node) -> str:
    """Name what a node of one query computes: equal for all orders in which items are joined."""
    if isinstance(node, Join) and node.sums is None:
        items = sorted(_list_items(node))
        if len(set(items)) == len(items):
            return hash_text(f"joined {items}")
    return node.logical_key


def correct_output(node: Node, own: EdgeEstimate, corrections: Corrections) -> EdgeEstimate:
    """Correct the estimate of a node's output."""
    if not corrections or isinstance(node, _FORMS):
        return own
    factor = corrections.get(name_result(node), 1.0)
    return replace(own, arrivals=own.arrivals * factor, negatives=own.negatives * factor)


def find_corrections(
    nodes: Iterable[Node], rates: Mapping[str, float], known: StreamStatistics
) -> dict[str, float]:
    """Find by how much the estimates of a query's operators are to be corrected.

    Args:
        nodes: The operators that run, inputs before those that read them.
        rates: By node key, the changes that an operator gave, a second of stream time.
        known: The statistics from which is estimated.
    """
    flows: dict[str, EdgeEstimate] = {}
    found: dict[str, float] = {}
    for node in nodes:
        own = node.estimate([flows[i.key] for i in node.inputs], known)
        if not isinstance(node, _FORMS) and node.key in rates:
            factor = (rates[node.key] + _LEAST_RATE) / (own.changes + _LEAST_RATE)
            found[name_result(node)] = min(max(factor, 1 / _MOST_FACTOR), _MOST_FACTOR)
        flows[node.key] = correct_output(node, own, found)
    return found


def _list_items(node: Node) -> Iterator[str]:
    """List the logical keys of what a tree of joins joins."""
    if isinstance(node, Join):
        for below in node.inputs:
            yield from _list_items(below)
    else:
        yield node.logical_key
