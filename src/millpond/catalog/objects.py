"""Definitions of streams, relations and queries: what the catalog holds under a name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from millpond.model.schema import Field, Schema
from millpond.model.time import BEGINNING

#: What is behind a stream's name in that of its rejects, and behind no other name.
REJECTS_SUFFIX = "$rejects"


@dataclass(frozen=True)
class SourceDef:
    """Where a stream or relation comes from: a Spark format and its options.

    Attributes:
        format: The format, in lower case.
        options: Its options, by names in lower case.
        within: The directory its files must lie below, if a client of a server defined it.
    """

    format: str
    options: dict[str, str]
    within: str | None = None


@dataclass(frozen=True)
class Derived:
    """What makes the elements of a derived stream: the changes of a query (SEMANTICS, section 4).

    Attributes:
        text: The query's CQL.
        query_id: The standing query whose changes these are, for a change log; None for a stream
            made by CREATE STREAM … AS.
        on_system_time: Whether the clock is its present, as it is that of every stream it reads.
    """

    text: str
    query_id: int | None = None
    on_system_time: bool = False


@dataclass(frozen=True)
class StreamDef:
    """A stream. Durations are microseconds; `timestamp_by` None means system time.

    `ahead` is how far ahead of the clock an element may be: None for the pond's default, END for
    any distance.

    The elements of a derived stream have the instants at which the changes they are happen, so it
    has no column they come from.
    """

    id: int
    name: str
    schema: Schema
    timestamp_by: str | None = None
    delay: int = 0
    idle_after: int | None = None
    retain: int | None = None
    retain_rows: int | None = None
    source: SourceDef | None = None
    text: str = ""
    #: Set on the pseudo-stream `name$rejects`: the id of the stream whose rejects it holds.
    rejects_of: int | None = None
    derived: Derived | None = None
    ahead: int | None = None

    @property
    def on_system_time(self) -> bool:
        """Whether the clock is the stream's present."""
        if self.derived is not None:
            return self.derived.on_system_time
        return self.timestamp_by is None

    @property
    def is_change_log(self) -> bool:
        """Whether it holds the changes of a standing query, and has no name of its own."""
        return self.derived is not None and self.derived.query_id is not None

    def rejects(self) -> StreamDef:
        """The pseudo-stream of this stream's rejected rows, on system time."""
        return replace(
            self,
            name=f"{self.name}{REJECTS_SUFFIX}",
            schema=REJECTS_SCHEMA,
            timestamp_by=None,
            delay=0,
            idle_after=None,
            ahead=None,
            source=None,
            rejects_of=self.id,
            derived=None,
        )


#: The columns of every `name$rejects`.
REJECTS_SCHEMA = Schema(
    (Field("rejected_at", "TIMESTAMP"), Field("reason", "VARCHAR"), Field("raw", "VARCHAR"))
)


@dataclass(frozen=True)
class RelationDef:
    """A relation; `primary_key` names columns whose values are unique at every instant.

    `view` is set for CREATE RELATION … AS: the text of the query it stands for.
    """

    id: int
    name: str
    schema: Schema
    primary_key: tuple[str, ...] = ()
    non_retroactive: bool = False
    source: SourceDef | None = None
    text: str = ""
    view: str | None = None


#: The options of a query that set none; never changed.
_NO_OPTIONS: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class QueryDef:
    """A standing query as it was registered. `text` is the query's CQL, without CREATE QUERY.

    `options` holds only what was set: materialize, weight, active, max_rows, seed, …
    `changes_after` is the last instant whose changes are not delivered, because it was final when
    the query was registered.
    """

    id: int
    name: str
    text: str
    options: dict[str, Any] = field(default_factory=dict)
    registered_epoch: int = 0
    registered_at: int = 0
    suspended: str | None = None
    changes_after: int = BEGINNING - 1

    def __post_init__(self) -> None:
        if not self.options:  # most of tens of thousands have none: they share it
            object.__setattr__(self, "options", _NO_OPTIONS)

    @property
    def active(self) -> bool:
        return bool(self.options.get("active", True)) and self.suspended is None


Definition = StreamDef | RelationDef | QueryDef


@dataclass(frozen=True)
class FunctionDef:
    """A user-defined function. Functions have names of their own, beside those of everything else.

    Attributes:
        name: As it is called, lower case.
        inside: As DuckDB knows it: a name of its content (`model.function_names`).
        arguments: Canonical type names.
        returns: Likewise.
        cost: What a row costs in its author's estimate, in microseconds; None if not said.
        max_seconds: How long one call may take.
        code: The Python function, by cloudpickle.
    """

    id: int
    name: str
    inside: str
    arguments: tuple[str, ...]
    returns: str
    cost: float | None
    max_seconds: float
    code: bytes = field(repr=False)

    @property
    def signature(self) -> str:
        """How it is called and what it gives, for people."""
        return f"{self.name}({', '.join(self.arguments)}) -> {self.returns}"


def fold_name(name: str) -> str:
    """A name as names are looked up; the same object where it is so already.

    >>> fold_name("Late"), fold_name(name := "late") is name
    ('late', True)
    """
    lower = name.lower()
    return name if lower == name else lower
