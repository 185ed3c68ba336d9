"""The shapes of errors, rows, pages and the results of statements."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from millpond.api.shapes.shape import Instant, Shape

# -- errors ---------------------------------------------------------------------------------------


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


# -- rows -----------------------------------------------------------------------------------------


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


# -- statements -----------------------------------------------------------------------------------


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
    facts: dict[str, str] = Field(default={})


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

    results: list[Result] = Field(default=[])
