"""Finds the first instant at which a node of a dataflow can be computed.

A query's changes begin at an instant at which its answer may not be computable: a ratio over a
stream without elements divides by zero. Such instants are not delivered (SEMANTICS, section 5), so
the changes begin with the first instant after them. A node's answer at an instant is what a new
operator gives for its inputs' rows at that instant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from millpond.errors import MillpondError
from millpond.operators.group_by import GroupedDelta
from millpond.operators.protocol.delta import Delta
from millpond.operators.protocol.node import Node, Operator, Scalars
from millpond.operators.structures.evaluation import net_weights

#: How many instants are tried at once; whoever asks goes on from the last one.
_MOST = 256


def is_of_the_rows(error: BaseException) -> bool:
    """Whether an expression failed on rows, so that it may succeed on other rows."""
    if isinstance(error, MillpondError):
        return error.code in ("POND-404", "POND-411")
    return isinstance(error, pa.ArrowException)


def restrict(inputs: Sequence[Delta], since: int) -> list[Delta]:
    """Restrict deltas to what holds from an instant on."""
    return [i if isinstance(i, GroupedDelta) else _net(i.since(since)) for i in inputs]


def find_first_instant(
    node: Node,
    inputs: Sequence[Delta],
    since: int,
    upto: int,
    scalars: Scalars,
    start: Callable[[Node], Operator],
) -> int:
    """Find the first instant from `since` on at which a node can be computed.

    Args:
        node: The node; it failed over these inputs.
        inputs: The inputs' deltas, complete from `since` up to `upto`.
        since: The first instant to try.
        upto: The last one.
        scalars: Evaluates the expressions; `since` is another one afterwards.
        start: Makes a new operator of a node.

    Returns:
        The instant, or `upto` + 1 if there is none; after many that were tried in vain, the next
        one to try; `since` if what is raised has nothing to do with the rows.
    """
    moments = np.unique(
        np.concatenate([[since], *(part for i in inputs for part in (i.at, i.until))])
    )
    moments = moments[(moments >= since) & (moments <= upto)]
    for count, at in enumerate(moments.tolist()):
        if count == _MOST:
            return int(at)
        bags = [_net(i.where((i.at <= at) & (at < i.until)).since(at)) for i in inputs]
        scalars.since = at  # an operator need not compute what is before
        try:
            if isinstance(inputs[0], GroupedDelta):
                (grouping,) = node.inputs
                bags = [start(grouping).advance(bags, at, scalars)]
            start(node).advance(bags, at, scalars)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if not is_of_the_rows(error):
                return since
        else:
            return int(at)
    return upto + 1


def _net(delta: Delta) -> Delta:
    return net_weights(delta).in_order() if bool((delta.weight < 0).any()) else delta
