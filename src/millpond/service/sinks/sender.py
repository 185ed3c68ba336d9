"""The sink interface: what a kind of sink has to do, and what it is given.

A kind of sink is a `Sender`: it takes one delivery after the other and returns once the receiver
has it. What is read, in which order, how far it has come and when it is tried again is the same for
all kinds (`delivery.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from millpond.service.changes.feeds.feed_event import FeedEvent


@dataclass(frozen=True)
class Delivery:
    """What is delivered at once.

    Attributes:
        id: Names the delivery: another one with this id has the same changes.
        sink: The sink's name.
        cursor: The feed's cursor behind it.
        changes: The feed's events of kind 'change', in order.
        told: What else happened: the feed's events of other kinds but marks. Where a process died
            they may come twice.
        answer: The whole answer at the cursor, which takes the place of everything delivered
            before; there are no changes then. None for a delivery of changes.
        origin: The incarnation of the store in which the sink was created, if it is another one.
        received: The number of the last delivery that the receiver has taken, as far as the store
            knows.
        filled: The number of the last of these that had changes or an answer; 0 if unknown.
    """

    id: str
    sink: str
    cursor: str
    changes: Sequence[FeedEvent]
    told: Sequence[FeedEvent]
    answer: pa.Table | None = None
    origin: str = ""
    received: int = 0
    filled: int = 0

    @property
    def incarnation(self) -> str:
        """The incarnation of the store that makes the delivery."""
        return self.id.partition(".")[0]

    @property
    def identity(self) -> str:
        """What a receiver that keeps the sink's cursor knows the sink by.

        It is the same in a store that was restored, whose deliveries have other ids.
        """
        sink, _, _ = self.id.rpartition(".")
        return f"{self.origin}.{sink.rpartition('.')[2]}" if self.origin else sink

    @property
    def number(self) -> int:
        """The number of the delivery among those of the sink."""
        return int(self.id.rpartition(".")[2])


class DeliveryError(Exception):
    """A delivery did not arrive, or nobody knows whether it did.

    Attributes:
        is_final: Whether the receiver wants no further attempt.
        is_too_large: Whether the receiver took nothing, because the delivery is too large for it.
    """

    def __init__(self, reason: str, is_final: bool = False, is_too_large: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final
        self.is_too_large = is_too_large


class Sender(Protocol):
    """Delivers to one receiver; used by one thread at a time."""

    def send(self, delivery: Delivery) -> None:
        """Deliver; return once the receiver has it.

        Raises:
            DeliveryError: it did not arrive, or nobody knows.
        """
        ...

    def interrupt(self) -> None:
        """Have `send` fail soon, also one that is under way; called from any thread."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
