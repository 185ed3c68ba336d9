"""The shapes of what is told of streams and relations."""

from __future__ import annotations

from millpond.api.shapes.answer_shapes import Column
from millpond.api.shapes.shape import Instant, Shape


class StreamFigures(Shape):
    """The figures and the state of a stream.

    `rows` came in all; `kept` of them have not been evicted; `rejected` did not become elements.
    `slots` is the number of distinct predicates that its elements are matched with.
    """

    name: str
    rows: int
    rejected: int
    kept: int
    heartbeat: Instant | None
    segments: int
    slots: int
    state: str
    reason: str | None


class Stream(Shape):
    """A stream: its declaration, its figures and its state. Lengths of time are microseconds."""

    id: int
    name: str
    columns: list[Column]
    timestamp_by: str | None
    delay_us: int
    idle_after_us: int | None
    ahead_us: int | None
    retain_us: int | None
    retain_rows: int | None
    overload: str
    derived: bool
    source: str | None
    cql: str
    rows: int = 0
    rejected: int = 0
    kept: int = 0
    heartbeat: Instant | None = None
    segments: int = 0
    slots: int = 0
    state: str = "running"
    reason: str | None = None


class Streams(Shape):
    """All streams."""

    streams: list[Stream]


class Relation(Shape):
    """A relation's declaration."""

    id: int
    name: str
    columns: list[Column]
    primary_key: list[str]
    non_retroactive: bool
    derived: bool
    source: str | None
    cql: str


class Relations(Shape):
    """All relations."""

    relations: list[Relation]


class Epoch(Shape):
    """The number of the epoch that is visible now."""

    epoch: int


class ClockReset(Shape):
    """What setting a clock back did: how many elements became rejects, and of which queries and
    derived streams changes were taken back."""

    rejected: int
    taken_back: list[str]


class Named(Shape):
    """The name of the object that the call changed."""

    name: str
