"""Definitions of sinks: where changes are delivered to, and how far they have been."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class PendingDelivery:
    """A delivery that was begun: what it has is settled, whether it arrived is not known.

    Attributes:
        number: Its number among the sink's deliveries.
        cursor: The feed's cursor behind its last change.
        proof: A checksum of which changes it has.
        changes: How many changes it has; 0 where this was not noted.
    """

    number: int
    cursor: str
    proof: str
    changes: int = 0


@dataclass(frozen=True)
class SinkPosition:
    """How far a sink has delivered.

    Attributes:
        cursor: The feed's cursor behind everything delivered; None before the first delivery.
        deliveries: The number of the last delivery.
        changes: How many changes were delivered.
        pending: The delivery that was begun behind the cursor, if there is one.
        received: The number of the last delivery that the receiver has taken. Deliveries of which
            nothing was left before they arrived have numbers, too, so `deliveries` may be greater.
        filled: The number of the last delivery that the receiver has taken and that had changes or
            an answer; 0 if that is not known.
    """

    cursor: str | None = None
    deliveries: int = 0
    changes: int = 0
    pending: PendingDelivery | None = None
    received: int = 0
    filled: int = 0


@dataclass(frozen=True)
class SinkDef:
    """A sink: delivers the changes of queries. Sinks have names of their own, as functions do.

    Attributes:
        format: How it delivers: 'http', 'kafka', 'postgres' or 'delta'.
        options: The options of `Scope.SINK` that were given: never a key, only where one is.
        query_id: The query whose changes it delivers, if it is of one.
        query: The query's name when the sink was created.
        tag: The tag of the queries whose changes it delivers, if it is of a tag.
        owner: Their owner, if it is of an owner.
        hosts: What a client's sink may connect to (`allowed_hosts.py`); None for any host.
        text: The statement.
        key: The columns by which a row of the query's answer is found again, if its receiver keeps
            the answer and not the changes.
        dead: Why it delivers no more; None while it does.
        origin: The incarnation of the store in which it was created, if the store was restored
            since; empty: this one. Its receiver knows it by that.
        position: How far it has delivered; two definitions are equal wherever they are.
    """

    id: int
    name: str
    format: str
    options: dict[str, Any]
    query_id: int | None = None
    query: str | None = None
    tag: str | None = None
    owner: str | None = None
    hosts: tuple[str, ...] | None = None
    text: str = ""
    key: tuple[str, ...] = ()
    dead: str | None = None
    origin: str = ""
    position: SinkPosition = field(default=SinkPosition(), compare=False)

    @property
    def active(self) -> bool:
        """Whether it is to deliver."""
        return bool(self.options.get("active", True)) and self.dead is None

    def to_json(self) -> dict[str, Any]:
        """The sink, but for its id, as JSON has it."""
        body = asdict(self)
        del body["id"]
        return body

    @staticmethod
    def from_json(id: int, body: dict[str, Any]) -> SinkDef:
        """Read what `to_json` wrote."""
        position = {"received": body["position"]["deliveries"], **body["position"]}
        if position["pending"] is not None:
            position["pending"] = PendingDelivery(**position["pending"])
        hosts = None if body["hosts"] is None else tuple(body["hosts"])
        key = tuple(body.get("key", ()))
        given = {**body, "hosts": hosts, "key": key, "position": SinkPosition(**position)}
        return SinkDef(id=id, **given)
