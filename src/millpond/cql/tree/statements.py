"""CQL's statements: one frozen dataclass for each kind (docs/spec/statements.md).

Queries stay sqlglot expressions (see `millpond.cql.print.dialect` for the nodes Millpond adds);
names are as written and nothing is resolved yet. Durations and instants are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from millpond.errors import MillpondError, Span
from millpond.model.budget import Budget
from millpond.model.constraints import Constraint


@dataclass(frozen=True)
class ColumnDef:
    """A declared column: its name, its type as written, its place, and whether it is NOT NULL.

    `computed` is the expression of a column that is computed from the others.
    """

    name: str
    type: str
    span: Span
    required: bool = False
    computed: exp.Expression | None = None


@dataclass(frozen=True)
class SourceClause:
    """`USING format OPTIONS (key 'value', …)`; option keys are lower case.

    Attributes:
        until: `UNTIL TIMESTAMP '…'`, where what it has ends.
        then: What stands behind THEN, which is read after it.
    """

    format: str
    options: dict[str, str]
    span: Span
    until: int | None = None
    then: SourceClause | None = None


@dataclass(frozen=True, kw_only=True)
class Statement:
    """The base of every statement: its own text and its place in the script.

    Attributes:
        text: The statement without its semicolon.
        offset: Where `text` starts in the script.
        name_span: The place in `text` of the name the statement is about, if there is one.
        query_span: The place in `text` of the query inside the statement, if there is one.
    """

    text: str
    offset: int = 0
    name_span: Span | None = None
    query_span: Span | None = None

    def error(
        self, code: str, primary: str, *, detail: str | None = None, hint: str | None = None
    ) -> MillpondError:
        """Make an error at the name the statement is about."""
        return MillpondError(
            code, primary, detail=detail, hint=hint, text=self.text, span=self.name_span
        )

    @property
    def query_text(self) -> str:
        """The text of the statement's query as written; `text` if the statement is a query."""
        span = self.query_span
        return self.text if span is None else self.text[span.start : span.end]


@dataclass(frozen=True, kw_only=True)
class CreateStream(Statement):
    name: str
    columns: tuple[ColumnDef, ...]
    timestamp_by: str | None = None
    timestamp_span: Span | None = None
    delay: int = 0
    idle_after: int | None = None
    ahead: int | None = None
    retain: int | None = None
    retain_rows: int | None = None
    source: SourceClause | None = None
    options: dict[str, Any] = field(default_factory=dict)
    if_not_exists: bool = False
    constraints: tuple[Constraint, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CreateRelation(Statement):
    name: str
    columns: tuple[ColumnDef, ...]
    primary_key: tuple[str, ...] = ()
    non_retroactive: bool = False
    timestamp_by: str | None = None
    timestamp_span: Span | None = None
    delay: int = 0
    idle_after: int | None = None
    ahead: int | None = None
    source: SourceClause | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateDerived(Statement):
    """`CREATE STREAM | RELATION name [(column, …)] AS query`; `kind` is 'stream' or 'relation'.

    Attributes:
        columns: The names given to its columns, if any.
        relation_span: The place of the query without ISTREAM, DSTREAM or RSTREAM around it.
    """

    kind: str
    name: str
    query: exp.Expression
    columns: tuple[str, ...] = ()
    relation_span: Span | None = None

    @property
    def query_text(self) -> str:
        """The text of its query, with the columns renamed to `columns`."""
        if not self.columns or self.relation_span is None:
            return self.written_query
        relation = self.text[self.relation_span.start : self.relation_span.end]
        names = ", ".join('"' + name.replace('"', '""') + '"' for name in self.columns)
        renamed = f"SELECT * FROM ({relation}\n) AS renamed ({names})"
        kind = self.query.args.get("kind") if self.relation_span != self.query_span else None
        return f"{kind}({renamed})" if kind else renamed

    @property
    def written_query(self) -> str:
        """The text of its query as written."""
        return super().query_text

    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateSummary(Statement):
    """`CREATE SUMMARY name ON stream (attribute) WITH GRANULARITY … AND COLLAPSE (rate, depth)`.

    Attributes:
        granularity: The length of the newest granularity, in microseconds.
        rate: How many times as long as the one before each older granularity is.
        depth: How many granularities there are.
        kind: 'count sketch', 'histogram' or 'sample'.
        memory: How many bytes it may take; None for the default.
        stream_span: The place of the stream's name.
        attribute_span: The place of the attribute's name.
    """

    name: str
    stream: str
    attribute: str
    granularity: int
    rate: int
    depth: int
    kind: str = "count sketch"
    memory: int | None = None
    stream_span: Span | None = None
    attribute_span: Span | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateSink(Statement):
    """`CREATE SINK name USING format (key value, …) FROM QUERY q | QUERIES TAGGED t | OF OWNER o`.

    Exactly one of `query`, `tag` and `owner` is given. `KEY (column, …)` may stand behind that.
    """

    name: str
    format: str
    options: dict[str, Any]
    query: str | None = None
    tag: str | None = None
    owner: str | None = None
    key: tuple[str, ...] = ()
    query_name_span: Span | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateQuery(Statement):
    """`CREATE [OR REPLACE] QUERY [IF NOT EXISTS] name [WITH (…)] AS query`.

    Attributes:
        query: The query's tree, with constants for its parameters.
        constants: The constant of CQL that each parameter of the query stands for, by name.
        template: If the query has parameters: its tokens as they are written, with spaces between.
        filled_text: If the query has parameters: its text with constants for them.
    """

    name: str
    query: exp.Expression
    options: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    template: str = ""
    filled_text: str = ""
    if_not_exists: bool = False
    or_replace: bool = False

    @property
    def query_text(self) -> str:
        """The text of the query, with constants for its parameters."""
        return self.filled_text or self.written_query

    @property
    def written_query(self) -> str:
        """The text of the query as written, with its parameters."""
        return super().query_text


#: What creates something that has a name.
Created = CreateStream | CreateRelation | CreateDerived | CreateSummary | CreateSink | CreateQuery


def kind_of(statement: Created) -> str:
    """The kind of what a statement creates, as `Drop` names it."""
    match statement:
        case CreateDerived():
            return statement.kind
        case CreateStream():
            return "stream"
        case CreateRelation():
            return "relation"
        case CreateSummary():
            return "summary"
        case CreateSink():
            return "sink"
        case CreateQuery():
            return "query"


@dataclass(frozen=True, kw_only=True)
class Invoke(Statement):
    """`INVOKE name [AT TIMESTAMP '…'] [BUDGET '…'] [AFTER cursor]`; a cursor is opaque text."""

    name: str
    at: int | None = None
    budget: Budget | None = None
    after: str | None = None


@dataclass(frozen=True, kw_only=True)
class Fetch(Statement):
    """`FETCH name [AFTER cursor] [LIMIT n]`; a cursor is opaque text."""

    name: str
    after: str | None = None
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class Ask(Statement):
    """A query asked once."""

    query: exp.Expression


@dataclass(frozen=True, kw_only=True)
class Alter(Statement):
    """`ALTER kind name SET (…)`; `kind` is 'query', 'stream' or 'sink'.

    `constants` are the new values of a query's parameters, constants of CQL by name.
    """

    kind: str
    name: str
    options: dict[str, Any]
    constants: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AlterConstraint(Statement):
    """`ALTER STREAM name ADD constraint`, or `ALTER STREAM name DROP CONSTRAINT drop`."""

    name: str
    add: Constraint | None = None
    drop: str | None = None


@dataclass(frozen=True, kw_only=True)
class AddColumn(Statement):
    """`ALTER STREAM name ADD COLUMN [IF NOT EXISTS] column TYPE`."""

    name: str
    column: ColumnDef
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class ResetClock(Statement):
    """`ALTER STREAM name RESET CLOCK TO TIMESTAMP '…'`: elements after `to` become rejects."""

    name: str
    to: int


@dataclass(frozen=True, kw_only=True)
class AlterSystem(Statement):
    """`ALTER SYSTEM SET (…)`: settings of the pond."""

    options: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Drop(Statement):
    """`DROP kind [IF EXISTS] name [CASCADE]`; `kind` is 'query', 'stream', 'relation', …

    With `cascade`, all that reads it goes with it.
    """

    kind: str
    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, kw_only=True)
class Insert(Statement):
    """`INSERT INTO name [(columns)] VALUES (…), …` or `… query`.

    Values are constant scalar expressions. With a query, `rows` is empty.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[exp.Expression, ...], ...] = ()
    query: exp.Expression | None = None
    at: int | None = None


@dataclass(frozen=True, kw_only=True)
class Update(Statement):
    name: str
    assignments: tuple[tuple[str, exp.Expression], ...]
    where: exp.Expression | None = None
    at: int | None = None


@dataclass(frozen=True, kw_only=True)
class Delete(Statement):
    name: str
    where: exp.Expression | None = None
    at: int | None = None


@dataclass(frozen=True, kw_only=True)
class Heartbeat(Statement):
    name: str
    at: int


@dataclass(frozen=True, kw_only=True)
class Explain(Statement):
    """`EXPLAIN [level] query-or-name`; `level` is lower case, 'logical' when not given.

    `options` are those that the query would be registered with: of EXPLAIN APPROXIMATION alone.
    """

    level: str
    name: str | None = None
    query: exp.Expression | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Show(Statement):
    """`SHOW what`; `what` is 'streams', 'relations', 'queries', 'functions', …, in lower case."""

    what: str


@dataclass(frozen=True, kw_only=True)
class ShowCreate(Statement):
    """`SHOW CREATE kind name`; `kind` is as that of `Drop`."""

    kind: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Describe(Statement):
    name: str
