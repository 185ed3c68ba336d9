"""The shapes of the language, and of what is told of queries."""

from __future__ import annotations

from typing import Any, Literal

from millpond.api.shapes.answer_shapes import Column, ErrorFields
from millpond.api.shapes.shape import Instant, Shape


class ParsedStatement(Shape):
    """A statement of a text: its kind, where it stands, and its canonical text."""

    statement: str
    start: int
    end: int
    printed: str


class Parsed(Shape):
    """What a text says: its statements, and the first thing that is wrong, if anything is."""

    statements: list[ParsedStatement]
    wrong: ErrorFields | None


class Signature(Shape):
    """A function that queries may call, with the forms of its calls."""

    name: str
    kind: Literal["scalar", "set", "aggregate", "window"]
    calls: list[str]


class Language(Shape):
    """The words of the grammar, and the functions that queries may call."""

    keywords: list[str]
    functions: list[Signature]


class CallerFacts(Shape):
    """Who sends the request, and what the role is."""

    owner: str
    role: Literal["reader", "writer", "admin"]


class ChangesProgress(Shape):
    """How far a query's changes are computed: the newest change's number, and the instant.

    `stopped` is why they cannot be computed any further, where they cannot; it is tried again.
    """

    newest: int
    up_to: str
    stopped: str | None


class QueryDefinition(Shape):
    """A standing query; `reduced` says how far it was reduced when it was registered. `template`
    names its `parameters`, whose values are constants of CQL."""

    id: int
    name: str
    cql: str
    template: str | None
    parameters: dict[str, str]
    options: dict[str, Any]
    reduced: str | None
    active: bool
    suspended: str | None
    registered_at: Instant


class Query(QueryDefinition):
    """A standing query with its columns; `changes` is null while nobody follows it.

    `notes` say what is allowed, and probably not meant: that its last changes wait, for example.
    """

    columns: list[Column]
    changes: ChangesProgress | None
    notes: list[str]


class ListedQuery(QueryDefinition):
    """A standing query in a list."""

    registered_epoch: int
    changes_after: Instant


class QueryPage(Shape):
    """A page of queries in the order asked for. Send `next` as `after` for the next page."""

    queries: list[ListedQuery]
    total: int
    next: int | None


class QueryCost(Shape):
    """What a query costs: its share of matching, its answers, and its share of operators.

    `matching` and `answering` are seconds since the pond was opened, `matches` bytes. Operators are
    of `followed` queries: `memory` and `files` are bytes of state, `seconds` the time they took
    since they were made; `shared` of its `operators` are those of other queries, too.
    """

    id: int
    name: str
    followed: bool
    matching: float
    matches: float
    invocations: int
    answering: float
    pattern: str | None
    exact: bool
    memory: float
    files: float
    seconds: float
    rows: int
    operators: int
    shared: int
    changes: int
    up_to: Instant | None


class QueryCosts(Shape):
    """What queries cost: `total` queries, `followed` of them followed, and the sums of all."""

    queries: list[QueryCost]
    total: int
    followed: int
    matching: float
    matches: float
    invocations: int
    answering: float
    memory: float
    files: float
    seconds: float


class QueryCount(Shape):
    """How many queries a call was about."""

    queries: int


class Ticket(Shape):
    """A ticket for a feed: `path` follows the feed; it ends when nobody has for `idle_seconds`."""

    ticket: str
    path: str
    idle_seconds: float
