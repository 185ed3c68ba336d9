"""The shapes of responses, from which the OpenAPI document is made.

`millpond.api.encode` writes responses column by column, without these classes; a test compares
every response with its shape. A response has exactly the fields of its shape.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

#: An instant: ISO 8601 in UTC without a zone, or one of the two ends of time.
Instant = str


class Shape(BaseModel):
    """A JSON object with exactly these fields."""

    model_config = ConfigDict(extra="forbid")


# -- errors ----------------------------------------------------------------------------------------


class Place(Shape):
    """A place in the text that was sent.

    `line` and `column` count from 1; `start` and `end` are offsets that count from 0.
    """

    line: int
    column: int
    start: int
    end: int
    snippet: str


class ErrorFields(Shape):
    """An error: `message` says what is wrong, `detail` why, and `hint` what to do."""

    code: str
    message: str
    detail: str | None
    hint: str | None
    place: Place | None


class Problem(Shape):
    """The response of a call that failed."""

    error: ErrorFields


# -- rows ------------------------------------------------------------------------------------------


class Column(Shape):
    """A column: its name, its SQL type, whether it is NOT NULL (`required`), and of a computed
    column its expression."""

    name: str
    type: str
    required: bool = False
    computed: str | None = None


class TableRows(Shape):
    """A table: names and SQL types of the columns, and for each row the values in their order."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]


class Part(Shape):
    """Which part of an answer was given: `share` of it so far, from 0 to 1.

    `alone`: no rows of the answer were given before.
    """

    share: float
    probes: int
    rows: float
    whole: bool
    cursor: str | None
    alone: bool


class Loss(Shape):
    """Elements of a stream that are missing: why, of which instants, and how many.

    `missing`: at most so many rows are missing, and none is wrong; null: there is no bound.
    `kept`: of a sample, the per cent of the elements that was read.
    `wrong`: of a filter, of how many per cent of what is not there it may say that it is.
    """

    stream: str
    cause: Literal["expired", "damaged", "shed", "sampled", "shortened", "budget", "filtered"]
    since: Instant | None
    upto: Instant
    elements: int | None
    missing: int | None
    kept: float | None
    wrong: float | None
    text: str


class Bounds(Shape):
    """By column and row, an interval that holds an exact answer's value at that confidence."""

    confidence: float
    columns: dict[str, list[list[float] | None]]


class Promise(Shape):
    """Whether rows are exact; if not, what was lost, and intervals where any can be given."""

    exact: bool
    loss: list[Loss]
    bounds: Bounds | None


class Answer(TableRows, Promise):
    """A query's answer at the instant `as_of`.

    `final`: no element with a timestamp up to `as_of` can come any more. `epoch`: the last epoch
    whose changes the answer shows. `part`: of an answer with a budget. `estimated`: the summaries
    whose estimates are among the values.
    """

    query: str | None
    as_of: Instant
    final: bool
    epoch: int
    part: Part | None
    estimated: list[str]


class ChangesPage(TableRows, Promise):
    """Changes after a cursor.

    Send `cursor` as `after` to read on. `newest` is the number of the newest change there is.
    `redefined` is the query's new text, if its new definition begins with these changes.
    """

    query: str
    as_of: Instant
    final: bool
    cursor: str
    newest: int
    redefined: str | None


class FeedPage(Shape):
    """Events of a feed: each has `event`, and what it says. Send `cursor` as `after` to read on."""

    events: list[dict[str, Any]]
    cursor: str


class Receipt(Shape):
    """The receipt of a push: how many rows were accepted and shed, and which were rejected.

    `duplicate`: these rows came before, under the same idempotency key, and were not added again.
    """

    accepted: int
    rejected: int
    shed: int
    rejects: list[RejectedRow]
    duplicate: bool


class RejectedRow(Shape):
    """A rejected row: its position in the push, counting from 0, and the reason."""

    row: int
    reason: str


class StagedRows(Shape):
    """How many rows of a part are kept for its batch."""

    rows: int


# -- statements ------------------------------------------------------------------------------------


class MessageResult(Shape):
    """The result of a statement that has no rows to show: a message."""

    statement: str
    query: str | None
    message: str | None


class TextResult(Shape):
    """The result of EXPLAIN or SHOW CREATE: a text."""

    statement: str
    query: str | None
    text: str


class TableResult(TableRows):
    """The result of SHOW or DESCRIBE: a table; of DESCRIBE also `facts`, texts by name."""

    statement: str
    query: str | None
    as_of: None
    final: None
    facts: dict[str, str] = {}


class AnswerResult(Answer):
    """The result of INVOKE, or of a query that is asked once: an answer."""

    statement: str


class ChangesResult(ChangesPage):
    """The result of FETCH: a page of changes."""

    statement: str


Result = AnswerResult | ChangesResult | TableResult | TextResult | MessageResult


class Results(Shape):
    """One result for each statement, in their order."""

    results: list[Result]


class StatementsProblem(Problem):
    """The error of a statement. `results` has the results of the statements before it."""

    results: list[Result] = []


# -- the language ------------------------------------------------------------------------------


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


# -- queries ---------------------------------------------------------------------------------------


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


class Plan(Shape):
    """A plan as EXPLAIN writes it."""

    level: str
    plan: str


class PlanNode(Shape):
    """A stream, an entity (`id` is that of its control table), a join, or queries that read alike.

    Nodes of one `group` may be shown as one. `queries`: names of queries it stands for, some of
    many. `lit`: it serves the query that was asked for.
    """

    id: str
    kind: Literal[
        "queue",
        "stream",
        "module",
        "synopsis",
        "eddy",
        "join",
        "operator",
        "derivation",
        "relation",
        "queries",
    ]
    label: str
    group: str
    figures: dict[str, Any]
    queries: list[str]
    lit: bool


class PlanEdge(Shape):
    """What goes from node to node; `elements` counts it since the stream began."""

    source: str
    target: str
    elements: int | None


class PlanGraph(Shape):
    """The one shared plan; `form` is the version of this form."""

    form: Literal[1]
    nodes: list[PlanNode]
    edges: list[PlanEdge]


class TracedTuple(Shape):
    """A tuple of a batch: its values, how many queries it `matched`, and the names of some.

    `path`: the ids of the nodes of the plan's graph that it went through.
    """

    at: Instant
    values: dict[str, Any]
    queries: list[str]
    matched: int
    path: list[str]


class Trace(Shape):
    """The last tuples of a stream's newest batch of `rows`, and the queries they went to.

    So many `predicates` of queries were looked at.
    """

    stream: str
    epoch: int | None
    rows: int
    predicates: int
    tuples: list[TracedTuple]


class PlannedQuery(Shape):
    """A query of a plan: its strategy, and the id of its last operator."""

    strategy: str
    operator: str


class PlannedOperator(Shape):
    """An operator of a plan, which the `queries` have that are named.

    What can be edited is not null where there is a choice: its `synopsis`, one of `synopses`; the
    `order` in which it joins; whether queries share it.
    """

    name: str
    detail: str
    pattern: str
    state: str
    synopsis: str | None
    synopses: list[str]
    order: list[str] | None
    shared: bool | None
    inputs: list[str]
    queries: list[str]


class PlanDocument(Shape):
    """The plans of queries; `form` is the version of this form.

    `adopted` is the number of the plan that was adopted last. `queries` are by name, `operators` by
    the id of their control tables.
    """

    form: Literal[1]
    adopted: int
    settings: dict[str, Any]
    queries: dict[str, PlannedQuery]
    operators: dict[str, PlannedOperator]


class ChangedSetting(Shape):
    """A setting of the pond that is other."""

    name: str
    before: Any
    after: Any


class ChangedStrategy(Shape):
    """A query whose strategy is other."""

    query: str
    before: str
    after: str


class ChangedOperator(Shape):
    """A field of an operator that is other."""

    id: str
    field: str
    before: Any
    after: Any


class Costs(Shape):
    """The shares of one core that a plan is expected to take."""

    before: float
    after: float


class ChangedPlan(Shape):
    """A query whose operators are other: the ids that go and come, and how many stay."""

    query: str
    goes: list[str]
    comes: list[str]
    stays: int
    cost: Costs
    plan: str


class PlanDifference(Shape):
    """What a document makes other; `pinned` operators are chosen from then on."""

    settings: list[ChangedSetting]
    strategies: list[ChangedStrategy]
    operators: list[ChangedOperator]
    plans: list[ChangedPlan]
    pinned: int


class ComparedPlan(PlanDifference):
    """What a document would make other; `base` stands for what it was compared with."""

    base: str


class AdoptedDifference(PlanDifference):
    """What the adopted plan of this number made other."""

    number: int


class AdoptedPlan(Shape):
    """A plan that was adopted: when, by whom, and what it changed."""

    number: int
    at: str
    by: str | None
    changed: list[str]


class AdoptedPlans(Shape):
    """The adopted plans that can be taken back, the last one first."""

    plans: list[AdoptedPlan]


class QueryPlan(Plan):
    """The plan of a registered query."""

    id: int


# -- streams and relations -------------------------------------------------------------------------


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


# -- observation -----------------------------------------------------------------------------------


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
