"""Expirations made explicit: a negative tuple for every row when its time has come.

What the windows do in the negative tuple approach (Update patterns, 2.3.1), as an operator of its
own: the planner puts it on an edge whose reader does not take rows with expirations. Behind it
every `until` is END and every delta is sorted by instant, so that its reader sees plain signed
changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millpond.model.patterns import Pattern
from millpond.model.time import END
from millpond.operators.delta import Delta
from millpond.operators.expiry import PARTITIONS, Expiring, expiring
from millpond.operators.node import Operator, Scalars, Unary


@dataclass(frozen=True, eq=False)
class Expire(Unary):
    """Negative tuples for its input's expirations."""

    partitions: int = PARTITIONS

    name = "expire"
    carries_expirations = False
    announces = True
    identity = ()

    @property
    def state(self) -> str:
        if self.input.pattern <= Pattern.WEAKEST:
            return "queue"
        return f"{self.partitions} partitions by expiration"

    def operator(self) -> Operator:
        return Expiry(expiring(self.input.pattern, self.partitions))


class Expiry:
    """`Expire` at work: the rows that have not left yet."""

    def __init__(self, waiting: Expiring) -> None:
        self._waiting = waiting

    def advance(self, inputs: Sequence[Delta], upto: int, scalars: Scalars) -> Delta:
        (delta,) = inputs
        return self.explicit(delta, upto)

    def explicit(self, delta: Delta, upto: int) -> Delta:
        """The delta with the expirations up to an instant as rows of their own."""
        self._waiting.add(delta.where(delta.until < END))
        left = self._waiting.due(upto)
        if not left and delta.is_explicit:
            return delta
        arrived = Delta.of(delta.rows, delta.at, None, delta.weight)
        return Delta.together(
            [arrived, *(Delta.of(d.rows, d.until, None, -d.weight) for d in left)]
        )

    def size(self) -> int:
        return self._waiting.size()
