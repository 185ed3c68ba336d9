"""Expirations made explicit: a negative tuple for every row when it expires.

In the negative tuple approach (Update patterns, 2.3.1) the windows do this; here it is an operator
of its own. The planner puts it on an edge whose reader does not accept rows with expirations. In
its output every `until` is END and every delta is sorted by instant, so that its reader sees plain
signed changes. When a row expires is said by the windows (`windows/`); rows
wait for that in `structures/expiration_queues.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from millpond.model.kept_property import kept_property
from millpond.model.patterns import Pattern
from millpond.model.time import END
from millpond.operators.protocol.cost_model import (
    ARRIVED,
    DEALT,
    LOOKED_AT,
    PARTITIONED,
    QUEUED,
    STEPPED,
    EdgeEstimate,
    StreamStatistics,
    estimate_wakeups,
)
from millpond.operators.protocol.delta import Delta
from millpond.operators.protocol.node import Node, Operator, Scalars, Unary
from millpond.operators.protocol.precision import Precision
from millpond.operators.protocol.sharding import Sharding
from millpond.operators.structures.expiration_queues import (
    ARRIVAL_ORDER,
    PARTITIONS,
    SMALL,
    ExpirationQueue,
    make_expiration_queue,
)


@dataclass(frozen=True, eq=False)
class Expire(Unary):
    """Negative tuples for its input's expirations.

    Attributes:
        input: The rows.
        partitions: The number of partitions by expiration in which rows wait if they do not
            expire in the order they came; ARRIVAL_ORDER for none.
    """

    partitions: int = PARTITIONS

    name = "expire"
    carries_expirations = False
    announces = True

    @property
    def state(self) -> str:
        if self.input.pattern <= Pattern.WEAKEST:
            return "queue"
        if self.partitions == ARRIVAL_ORDER:
            return "rows in order of arrival"
        return f"{self.partitions} partitions by expiration"

    @kept_property
    def logical_key(self) -> str:
        return self.input.logical_key

    @property
    def identity(self) -> tuple[int, ...]:
        return () if self.input.pattern <= Pattern.WEAKEST else (self.partitions,)

    def estimate(self, inputs: Sequence[EdgeEstimate], known: StreamStatistics) -> EdgeEstimate:
        (given,) = inputs
        # A negative tuple that cancels the rest of a row's life expires too, when the row would.
        return replace(given, arrivals=given.changes, negatives=given.changes)

    def estimate_work(
        self, inputs: Sequence[EdgeEstimate], own: EdgeEstimate, known: StreamStatistics
    ) -> float:
        (given,) = inputs
        stepped = STEPPED * estimate_wakeups(own.changes, known)
        if self.input.pattern <= Pattern.WEAKEST:
            return QUEUED * given.changes + stepped
        if self.partitions == ARRIVAL_ORDER:
            each = ARRIVED * given.changes + LOOKED_AT * given.rows * known.steps
            return each + stepped
        looked_at = min(SMALL + given.rows / (2 * self.partitions), given.rows)
        dealt = DEALT * self.partitions * given.changes / SMALL
        each = PARTITIONED * given.changes + dealt + LOOKED_AT * looked_at * known.steps
        return each + stepped

    def estimate_precision(
        self, inputs: Sequence[Precision], edges: Sequence[EdgeEstimate]
    ) -> Precision | None:
        return inputs[0]

    def find_sharding(self, inputs: Sequence[Sharding]) -> Sharding:
        return inputs[0]

    def operator(self) -> Operator:
        return Expiration(make_expiration_queue(self.input.pattern, self.partitions))


class Expiration:
    """Runs `Expire`: keeps the rows that have not expired yet."""

    def __init__(self, waiting: ExpirationQueue) -> None:
        self._waiting = waiting

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        return self.announce_due(delta, upto)

    def announce_due(self, delta: Delta, upto: int) -> Delta:
        """Replace the delta's expirations by negative tuples, for those due up to an instant."""
        if len(delta):
            self._waiting.add(delta.where(delta.until < END))
        left = self._waiting.take_due(upto)
        if not left and delta.is_explicit:
            return delta
        arrived = Delta.of(delta.rows, delta.at, None, delta.weight)
        return Delta.together([arrived, *left])

    def size(self) -> int:
        return self._waiting.size()


def announce_expirations(node: Node) -> Node:
    """Put an `Expire` over a node whose rows carry expirations."""
    return Expire(node) if node.carries_expirations else node
