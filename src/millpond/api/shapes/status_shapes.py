"""The shapes of what is told of the whole server and of what it consists of."""

from __future__ import annotations

from typing import Any, Literal

from millpond.api.shapes.answer_shapes import ErrorFields
from millpond.api.shapes.shape import Shape
from millpond.api.shapes.stream_shapes import StreamFigures


class Alive(Shape):
    """The server is running."""

    status: Literal["alive", "ready"]


class Ready(Shape):
    """That the pond accepts rows and shows them."""

    status: Literal["ready"]


class NotReady(Shape):
    """Why the pond does not accept rows, or does not show them, now."""

    status: Literal["not ready"]
    reason: str


class SetAside(Shape):
    """The files that opening the store set aside, because no epoch refers to them."""

    files: int
    bytes: int


class SinkFigures(Shape):
    """A sink: what it delivers to where, how it is, and what it has delivered."""

    name: str
    of: str
    to: str
    state: str
    dead: str | None
    deliveries: int
    changes: int
    failures: int


class Status(Shape):
    """An overview of the pond.

    `problems`: what is broken. `warnings`: what gives way because there is too much to do, and what
    was given up; their `code` is the action. Both say in `hint` what to do.
    """

    version: str
    ready: bool
    epoch: int
    queries: int
    followed: int
    relations: int
    uptime_s: float
    problems: list[ErrorFields]
    warnings: list[ErrorFields]
    sinks: list[SinkFigures]
    set_aside: SetAside
    runtime: dict[str, Any]
    streams: list[StreamFigures]


class Function(Shape):
    """A user-defined function: its signature, its time limit, and the cost of its calls."""

    name: str
    arguments: list[str]
    returns: str
    cost: float | None
    max_seconds: float
    trusted: bool
    calls: int
    rows: int
    seconds: float


class Functions(Shape):
    """All user-defined functions."""

    functions: list[Function]


class History(Shape):
    """Figures as the pond sampled them, `every_seconds`.

    `at` are seconds since 1970. What counts is told as its rate since the sample before; null where
    there is none.
    """

    every_seconds: float
    at: list[float]
    series: dict[str, list[float | None]]


class Entity(Shape):
    """An operator, a queue or a synopsis, with its figures and the settings that can be changed."""

    id: str
    kind: Literal["operator", "queue", "synopsis"]
    of: str
    figures: dict[str, Any]
    settings: dict[str, Any]


class Entities(Shape):
    """All entities."""

    entities: list[Entity]
