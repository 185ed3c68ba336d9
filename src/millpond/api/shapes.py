"""What the calls answer, as types: the OpenAPI document is made of these.

Answers are written by `millpond.api.encode`, column by column, and not by way of these classes: a
test holds every answer against its shape instead. A shape has exactly the fields it says.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

#: An instant: ISO 8601 in UTC without a zone, or one of the two ends of time.
Instant = str


class Shape(BaseModel):
    """What has these fields and no other."""

    model_config = ConfigDict(extra="forbid")


# -- errors ----------------------------------------------------------------------------------------


class Place(Shape):
    """A place in the text that was sent; lines and columns count from 1, offsets from 0."""

    line: int
    column: int
    start: int
    end: int
    snippet: str


class ErrorFields(Shape):
    """An error: what is wrong, why, and what to do."""

    code: str
    message: str
    detail: str | None
    hint: str | None
    place: Place | None


class Problem(Shape):
    """What every error answers."""

    error: ErrorFields


# -- rows ------------------------------------------------------------------------------------------


class Column(Shape):
    """A column, its SQL type, and whether it is NOT NULL."""

    name: str
    type: str
    required: bool = False


class TableRows(Shape):
    """Rows: in each as many values as there are columns."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]


class Part(Shape):
    """Which part of an answer was given: `share` of it so far, by an estimate from 0 to 1."""

    share: float
    probes: int
    rows: float
    whole: bool
    cursor: str | None


class Answer(TableRows):
    """A query's answer at an instant."""

    query: str | None
    as_of: Instant
    final: bool
    complete: bool
    complete_since: Instant | None
    epoch: int
    exact: bool
    part: Part | None
    estimated: list[str]


class ChangesPage(TableRows):
    """Changes after a cursor; `cursor` is where to read on, `newest` the last there is."""

    query: str
    as_of: Instant
    final: bool
    cursor: str
    newest: int


class Receipt(Shape):
    """What became of the rows of a push."""

    accepted: int
    rejected: int
    rejects: list[RejectedRow]
    duplicate: bool


class RejectedRow(Shape):
    """A row that was rejected, by its place in the push from 0."""

    row: int
    reason: str


# -- statements ------------------------------------------------------------------------------------


class MessageResult(Shape):
    """What a statement did."""

    statement: str
    query: str | None
    message: str | None


class TextResult(Shape):
    """What EXPLAIN says."""

    statement: str
    query: str | None
    text: str


class TableResult(TableRows):
    """What SHOW and DESCRIBE list."""

    statement: str
    query: str | None
    as_of: None
    final: None


class AnswerResult(Answer):
    """What INVOKE, or a query asked once, answers."""

    statement: str


class ChangesResult(ChangesPage):
    """What FETCH gives."""

    statement: str


Result = AnswerResult | ChangesResult | TableResult | TextResult | MessageResult


class Results(Shape):
    """One result for each statement, in their order."""

    results: list[Result]


class StatementsProblem(Problem):
    """The error of a statement; `results` are those of the statements before it, which are done."""

    results: list[Result] = []


# -- queries ---------------------------------------------------------------------------------------


class ChangesProgress(Shape):
    """How far a query's changes have come: the newest cursor, and the instant."""

    newest: int
    up_to: str


class QueryDefinition(Shape):
    """A standing query as it was registered."""

    id: int
    name: str
    cql: str
    options: dict[str, Any]
    active: bool
    suspended: str | None
    registered_at: Instant


class Query(QueryDefinition):
    """A standing query, and how it does."""

    columns: list[Column]
    changes: ChangesProgress | None


class ListedQuery(QueryDefinition):
    """A standing query in a list."""

    registered_epoch: int
    changes_after: Instant


class QueryPage(Shape):
    """Some of the queries, by id; `next` is the next page's `after`."""

    queries: list[ListedQuery]
    total: int
    next: int | None


class Plan(Shape):
    """A plan as EXPLAIN writes it."""

    level: str
    plan: str


class QueryPlan(Plan):
    """The plan of a registered query."""

    id: int


# -- streams and relations -------------------------------------------------------------------------


class StreamFigures(Shape):
    """How a stream does."""

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
    """A stream: its declaration, lengths of time in microseconds, and how it does."""

    id: int
    name: str
    columns: list[Column]
    timestamp_by: str | None
    delay_us: int
    idle_after_us: int | None
    ahead_us: int | None
    retain_us: int | None
    retain_rows: int | None
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
    """The epoch that is visible."""

    epoch: int


class Named(Shape):
    """The object a call was about."""

    name: str


# -- observation -----------------------------------------------------------------------------------


class Alive(Shape):
    """That the server lives."""

    status: Literal["alive", "ready"]


class Ready(Shape):
    """Whether the pond answers queries and takes rows."""

    status: Literal["ready", "not ready"]


class SetAside(Shape):
    """What lies in the store's folder for files that no epoch names."""

    files: int
    bytes: int


class Status(Shape):
    """The pond at a glance."""

    version: str
    ready: bool
    epoch: int
    queries: int
    followed: int
    relations: int
    uptime_s: float
    problems: list[ErrorFields]
    set_aside: SetAside
    runtime: dict[str, Any]
    streams: list[StreamFigures]


class Function(Shape):
    """A function of a user's: its signature, its limit, and what its calls have cost."""

    name: str
    arguments: list[str]
    returns: str
    cost: float | None
    max_seconds: float
    calls: int
    rows: int
    seconds: float


class Functions(Shape):
    """All functions of users."""

    functions: list[Function]


class Entity(Shape):
    """An operator, a queue or a synopsis: how it does, and what can be set of it."""

    id: str
    kind: Literal["operator", "queue", "synopsis"]
    of: str
    figures: dict[str, Any]
    settings: dict[str, Any]


class Entities(Shape):
    """All entities."""

    entities: list[Entity]
