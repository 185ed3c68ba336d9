"""Releasing rows by constraints of streams: the rules a node has, what its operator did by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millpond.model.constraints import Constraint

#: The constraints of streams, by the streams' names.
Constraints = Mapping[str, Sequence[Constraint]]


@dataclass(frozen=True)
class ReleaseRule:
    """A constraint by which an operator releases rows of one of its inputs.

    Attributes:
        constraint: The constraint.
        stream: The stream whose constraint it is.
        side: Which input's rows are released; of a join 0 is the left side, 1 the right.
        place: Of an order: which of the keys is ordered.
    """

    constraint: Constraint
    stream: str
    side: int
    place: int = 0


@dataclass(frozen=True)
class ReleaseFigures:
    """What one rule of one operator did.

    Attributes:
        rule: The rule.
        observed: The least k that no row broke; None for UNIQUE. In rows, or in microseconds where
            the declared k is a length of time.
        violations: How many rows broke the constraint.
        held: Rows of the rule's input that the operator holds.
        released: Rows, about, that it would hold besides without constraints.
        recalled: Rows that it had to read back, in all.
    """

    rule: ReleaseRule
    observed: int | None
    violations: int
    held: int
    released: int
    recalled: int
