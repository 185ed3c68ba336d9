"""Definitions of streams, relations and queries, which the catalog holds under their names."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from millpond.model.constraints import Constraint
from millpond.model.schema import Field, Schema
from millpond.model.time import BEGINNING, END

#: What a stream has segments of: its elements, the rows it rejected, and counts of the elements it
#: shed. The last two have pseudo-streams, named by the stream's name and these suffixes. The change
#: log of a query with a budget also has the regions that wait to be looked at.
DATA, REJECTS, SHED, WAITING = "data", "rejects", "shed", "waiting"
SUFFIXES = {REJECTS: "$rejects", SHED: "$shed"}


def base_name(name: str) -> str:
    """The folded name of the stream a name stands for or is about.

    >>> base_name("Flights$Rejects"), base_name("flights")
    ('flights', 'flights')
    """
    folded = fold_name(name)
    for suffix in SUFFIXES.values():
        folded = folded.removesuffix(suffix)
    return folded


@dataclass(frozen=True)
class SourceDef:
    """Where a stream or relation comes from: a Spark format and its options.

    Attributes:
        format: The format, in lower case.
        options: Its options, by names in lower case.
        within: If a client of a server defined it: the directory its files must lie below, or the
            hosts of a database, with spaces between.
    """

    format: str
    options: dict[str, str]
    within: str | None = None


@dataclass(frozen=True)
class FileHistory:
    """What a stream reads once, before its source or pushes: what is there when it begins.

    Attributes:
        source: The files.
        until: The instant at which the history ends: its elements lie before, all others not.
            None if nothing but the files says where it ends.
        is_read: Whether it was read to its end.
    """

    source: SourceDef
    until: int | None = None
    is_read: bool = False


@dataclass(frozen=True)
class DefinitionMark:
    """Where in a query's changes another definition of the query begins.

    From the mark on, the changes add up to the new definition's answer. The first of them are the
    difference between the two definitions' answers. If the columns are others, the old answer's
    rows leave before the mark, and the difference is the whole answer.

    Attributes:
        number: The number of the last change before the mark.
        ends: The number of the last change of the difference.
        at: The instant of the difference.
        text: The CQL of the new definition.
    """

    number: int
    ends: int
    at: int
    text: str


@dataclass(frozen=True)
class Derived:
    """The query whose changes are a derived stream's elements (SEMANTICS, section 4).

    Attributes:
        text: The query's CQL.
        query_id: The standing query whose changes these are, for a change log; None for a stream
            made by CREATE STREAM … AS.
        on_system_time: Whether its present is the clock, as that of every stream it reads is.
        shared_log: Of a change log: the id of the shared log that has its changes, or had them.
        apart_from: The number of the first change that is not in the shared log, since the query
            left it; None while the query's changes go there.
        is_shared: Whether this is a shared log: it has the changes of all queries that differ from
            `text` in their predicates alone.
        periods: Of a change log whose query was reduced while it ran: from behind which instant on
            its changes are of which reduction.
        marks: Of a change log: where the query's later definitions begin, in order.
        known_by: Of a change log whose query once read other streams: the ids of the first ones.
        text_epoch: The epoch at which the text was given: it reads the columns streams had then.
    """

    text: str
    query_id: int | None = None
    on_system_time: bool = False
    shared_log: int | None = None
    apart_from: int | None = None
    is_shared: bool = False
    periods: tuple[tuple[int, str], ...] = ()
    marks: tuple[DefinitionMark, ...] = ()
    known_by: tuple[int, ...] | None = None
    text_epoch: int = 0


@dataclass(frozen=True)
class StreamDef:
    """A stream. Durations are microseconds; `timestamp_by` None means system time.

    `ahead` is how far ahead of the clock an element may be: None for the pond's default, END for
    any distance.

    The elements of a derived stream have the instants of the changes as their timestamps, so no
    column holds the timestamps.
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
    #: 'rejects' and 'shed' on the pseudo-streams `name$rejects` and `name$shed`.
    kind: str = DATA
    derived: Derived | None = None
    ahead: int | None = None
    #: What happens when there is more to do than can be done, as the option `overload` says.
    overload: str = "block"
    #: How often its clock was set back: its elements' numbers mean others from then on.
    resets: int = 0
    #: How many elements became rejects by that.
    taken_back: int = 0
    #: What its elements usually satisfy, for joins and groupings to need less memory.
    constraints: tuple[Constraint, ...] = ()
    history: FileHistory | None = None

    @property
    def reads_history(self) -> bool:
        """Whether the stream's history is not read to its end yet; its heartbeat waits for that."""
        return self.history is not None and not self.history.is_read

    def as_history(self) -> StreamDef:
        """The stream as if the files of its history were its source."""
        assert self.history is not None
        return replace(self, source=self.history.source, history=None)

    @property
    def is_read_from_outside(self) -> bool:
        """Whether there is, or was, something to read: a source, or a history."""
        return self.source is not None or self.history is not None

    @property
    def source_name(self) -> str | None:
        """The formats of its history and of its source; None if all rows are pushed."""
        live = None if self.source is None else self.source.format
        if self.history is None:
            return live
        return f"{self.history.source.format}, then {live or 'pushes'}"

    @property
    def instants_taken(self) -> tuple[int, int]:
        """The first and the last instant (excluded) of what is read now, and may be pushed."""
        if self.history is None or self.history.until is None:
            return BEGINNING, END
        until = self.history.until
        return (BEGINNING, until) if self.reads_history else (until, END)

    @property
    def sheds(self) -> bool:
        """Whether the stream may lose elements when there is too much to do."""
        return self.overload != "block"

    @property
    def on_system_time(self) -> bool:
        """Whether the clock is the stream's present."""
        if self.derived is not None:
            return self.derived.on_system_time
        return self.timestamp_by is None

    @property
    def is_change_log(self) -> bool:
        """Whether this stream holds changes of standing queries and has no name of its own."""
        return self.derived is not None and (
            self.derived.query_id is not None or self.derived.is_shared
        )

    @property
    def is_shared_log(self) -> bool:
        """Whether this stream holds the changes of many standing queries of one shape."""
        return self.derived is not None and self.derived.is_shared

    @property
    def shared_log(self) -> int | None:
        """The id of the shared log that a change log's changes go to now; None if to none."""
        if self.derived is None or self.derived.apart_from is not None:
            return None
        return self.derived.shared_log

    @property
    def is_pseudo(self) -> bool:
        """Whether nobody declared the stream: it tells of rows that are not elements, or of the
        pond. Its elements are read, and neither matched as they come nor pushed."""
        return self.kind != DATA or self.id < 0

    def pseudo(self, kind: str) -> StreamDef:
        """The pseudo-stream of what this stream rejected or shed, on system time."""
        return replace(
            self,
            name=f"{self.name}{SUFFIXES[kind]}",
            schema=PSEUDO_SCHEMAS[kind],
            timestamp_by=None,
            delay=0,
            idle_after=None,
            ahead=None,
            source=None,
            history=None,
            kind=kind,
            derived=None,
            constraints=(),
        )


#: The steps of the ladders: when, what gave way, of which stream, why; how far it gave way before
#: and after (0 to 1), and what was measured (1: as much as is allowed).
SYSTEM_ACTIONS = StreamDef(
    -1,
    "system$actions",
    Schema(
        (
            Field("at", "TIMESTAMP"),
            Field("action", "VARCHAR"),
            Field("name", "VARCHAR"),
            Field("before", "DOUBLE"),
            Field("after", "DOUBLE"),
            Field("measured", "DOUBLE"),
            Field("why", "VARCHAR"),
        )
    ),
    retain_rows=100_000,
)
#: The control tables as a stream: at each look, an element for each entity. `rows` and `bytes` are
#: what it holds, where it holds any; `figures` are all of its figures, as JSON.
SYSTEM_ENTITIES = StreamDef(
    -2,
    "system$entities",
    Schema(
        (
            Field("at", "TIMESTAMP"),
            Field("id", "VARCHAR"),
            Field("kind", "VARCHAR"),
            Field("of", "VARCHAR"),
            Field("rows", "BIGINT"),
            Field("bytes", "BIGINT"),
            Field("figures", "VARCHAR"),
        )
    ),
    retain_rows=100_000,
)
#: The streams every pond has, by their ids, which no declared stream has.
SYSTEM_STREAMS = {stream.id: stream for stream in (SYSTEM_ACTIONS, SYSTEM_ENTITIES)}
SYSTEM = "system"


def is_reserved(name: str) -> bool:
    """Whether a name is the system's, or that of a pseudo-stream.

    >>> is_reserved("System"), is_reserved("flights$shed"), is_reserved("systems")
    (True, True, False)
    """
    folded = fold_name(name)
    return folded == SYSTEM or folded.startswith(f"{SYSTEM}$") or base_name(name) != folded


#: The columns of every `name$rejects`.
REJECTS_SCHEMA = Schema(
    (Field("rejected_at", "TIMESTAMP"), Field("reason", "VARCHAR"), Field("raw", "VARCHAR"))
)
#: The columns of every `name$shed`: when so many elements were shed whose timestamps are in the
#: second that begins at `second`, and which predicates' matches were spared (runs of slots).
SHED_SCHEMA = Schema(
    (
        Field("shed_at", "TIMESTAMP"),
        Field("second", "TIMESTAMP"),
        Field("elements", "BIGINT"),
        Field("spared", "VARCHAR"),
    )
)
PSEUDO_SCHEMAS = {REJECTS: REJECTS_SCHEMA, SHED: SHED_SCHEMA}


@dataclass(frozen=True)
class RelationDef:
    """A relation; `primary_key` names columns whose values are unique at every instant.

    `view` is set for CREATE RELATION … AS: the text of the query it stands for, which was given at
    the epoch `text_epoch` and reads the columns that streams had then.
    """

    id: int
    name: str
    schema: Schema
    primary_key: tuple[str, ...] = ()
    non_retroactive: bool = False
    source: SourceDef | None = None
    text: str = ""
    view: str | None = None
    text_epoch: int = 0


#: The options of every query that sets none; never changed.
_NO_OPTIONS: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Template:
    """The text a query was registered with, with its parameters, and their values.

    Attributes:
        text: The query's CQL with parameters, `SELECT * FROM s WHERE price < $most`.
        constants: The constant of CQL that each parameter stands for, by name.
    """

    text: str
    constants: dict[str, str]


@dataclass(frozen=True, slots=True)
class QueryDef:
    """A standing query as it was registered. `text` is the query's CQL, without CREATE QUERY.

    `options` holds only the options that were set: materialize, weight, active, max_rows, seed, …
    `changes_after` is the last instant whose changes are not delivered, because the instant was
    final when the query was registered. `template` is what `text` was made of, if it had
    parameters. `replaced_epoch` is the epoch at which `text` replaced another one, 0 if none did.
    """

    id: int
    name: str
    text: str
    options: dict[str, Any] = field(default_factory=dict)
    registered_epoch: int = 0
    registered_at: int = 0
    suspended: str | None = None
    changes_after: int = BEGINNING - 1
    template: Template | None = None
    replaced_epoch: int = 0

    def __post_init__(self) -> None:
        if not self.options:  # most of tens of thousands of queries set none and share one mapping
            object.__setattr__(self, "options", _NO_OPTIONS)

    def note_registered(self, epoch: int) -> None:
        """Note the epoch at which it is registered, while only who registers it has it.

        A copy would leave holes in memory: very many queries are registered together.
        """
        object.__setattr__(self, "registered_epoch", epoch)

    @property
    def text_epoch(self) -> int | None:
        """The epoch at which the text was given: it reads the columns streams had then.

        None: it is given now.
        """
        return self.replaced_epoch or self.registered_epoch or None

    @property
    def active(self) -> bool:
        return bool(self.options.get("active", True)) and self.suspended is None


#: The key under which a query's options say how far the pond has reduced it; nobody can set it.
REDUCED = "reduced"


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that may be given to another query: all but how far the pond has reduced it."""
    return {name: value for name, value in options.items() if name != REDUCED}


Definition = StreamDef | RelationDef | QueryDef


@dataclass(frozen=True)
class FunctionDef:
    """A user-defined function. Functions may have the names of streams, relations and queries.

    Attributes:
        name: The name in CQL, lower case.
        inside: The name in DuckDB, made from the function's content (`model.function_names`).
        arguments: Canonical type names of the arguments.
        returns: The canonical type name of the result.
        cost: The author's estimate of the cost of a row, in microseconds; None if not given.
        max_seconds: How long one call may take.
        code: The Python function, by cloudpickle; empty where it is withheld, because no key of
            the user's has sealed it.
        seal: What the key of who defined it, or trusts it, says of all this
            (`state/function_key.py`); not a part of what the function is.
    """

    id: int
    name: str
    inside: str
    arguments: tuple[str, ...]
    returns: str
    cost: float | None
    max_seconds: float
    code: bytes = field(repr=False)
    seal: str = field(default="", repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """The function, but for its id, as JSON has it."""
        body = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "id"}
        return {**body, "code": base64.b64encode(self.code).decode()}

    @staticmethod
    def from_json(id: int, body: dict[str, Any]) -> FunctionDef:
        """Read what `to_json` wrote."""
        code = base64.b64decode(body["code"])
        given = {**body, "arguments": tuple(body["arguments"]), "code": code}
        return FunctionDef(id=id, **given)

    @property
    def signature(self) -> str:
        """The function's name, argument types and result type, for people."""
        return f"{self.name}({', '.join(self.arguments)}) -> {self.returns}"


@dataclass(frozen=True)
class SummaryFile:
    """Where a summary is stored: a cache of what the kept elements say.

    Attributes:
        path: The file's path, relative to the store.
        checksum: The checksum of its bytes.
        bytes: Its length.
        position: Up to which instant elements are in it.
    """

    path: str
    checksum: str
    bytes: int
    position: int


@dataclass(frozen=True)
class SummaryDef:
    """A summary of one attribute of a stream. Summaries have names of their own, as functions do.

    Attributes:
        stream_id: The stream's id.
        stream: The stream's name.
        attribute: The column, as declared.
        granularity: The length of the newest granularity, in microseconds.
        rate: How many times as long as the one before each older granularity is.
        depth: How many granularities there are.
        kind: 'count sketch', 'histogram' or 'sample'.
        memory: How many bytes its cells may take.
        text: The statement.
        file: Where it is stored; two definitions are equal wherever they are stored.
    """

    id: int
    name: str
    stream_id: int
    stream: str
    attribute: str
    granularity: int
    rate: int
    depth: int
    kind: str
    memory: int
    text: str = ""
    file: SummaryFile | None = field(default=None, compare=False)


def fold_name(name: str) -> str:
    """Fold a name to the case in which names are looked up; return the same object if possible.

    >>> fold_name("Late"), fold_name(name := "late") is name
    ('late', True)
    """
    lower = name.lower()
    return name if lower == name else lower
