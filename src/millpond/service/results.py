"""The results of statements and invocations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model import time
from millpond.model.far_times import format_ticks
from millpond.model.loss import Bounds, Loss
from millpond.service.shown_tables import print_table, write_table

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


@dataclass(frozen=True)
class Part:
    """Which part of an answer was given: that of a budget.

    Attributes:
        share: The part of the whole that was given so far, with what lies before the cursor; an
            estimate, from 0 to 1.
        probes: The probes this part took; a budget in time is recorded as these.
        rows: How many rows the whole answer is estimated to have.
        whole: Whether nothing is left.
        cursor: Where to go on; None if nothing is left.
        alone: Whether its rows are all that was given so far: of the first part, and of every part
            of an aggregate.
    """

    share: float
    probes: int
    rows: float
    whole: bool
    cursor: str | None
    alone: bool = True


@dataclass(frozen=True)
class Answer:
    """R(τ): a query's rows at an instant.

    Attributes:
        table: The rows; their order means something only if the query has ORDER BY.
        as_of: The instant τ, microseconds since 1970 UTC.
        final: Whether no element with a timestamp ≤ τ can come any more.
        loss: What the answer lacks, and why; empty for an exact answer.
        bounds: Intervals for the cells of an answer that is not exact, where any can be given.
        query: The handle's name, or None for a query asked once.
        epoch: The epoch whose effects, and all before it, the answer shows.
        part: Which part of the answer these rows are, if it was asked for with a budget.
        estimated: The summaries whose estimates are among the values.
    """

    table: pa.Table
    as_of: int
    final: bool
    loss: tuple[Loss, ...] = ()
    bounds: Bounds | None = None
    query: str | None = None
    epoch: int = 0
    part: Part | None = None
    estimated: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether this is what the query means, of all that was accepted and sent."""
        part = self.part
        is_all = part is None or (part.whole and part.alone)
        return is_all and not self.loss and not self.estimated

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as Python tuples; an instant beyond the years 1 to 9999 is its text."""
        columns = [python_values(column) for column in self.table.columns]
        return list(zip(*columns, strict=True)) if columns else [()] * self.table.num_rows

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas frame (pandas must be installed)."""
        return self.table.to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """The rows as a polars frame (polars must be installed)."""
        import polars

        frame = polars.from_arrow(self.table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    @property
    def as_of_time(self) -> datetime | None:
        """The instant τ as a naive datetime in UTC; None where there is no such datetime."""
        return time.to_datetime(self.as_of)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for any library that reads Arrow's PyCapsule interface."""
        return self.table.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return self.table.num_rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows())

    def _describe(self) -> str:
        state = "final" if self.final else "not final"
        if not self.exact:
            reasons = "; ".join(map(str, self.loss))
            state += f", not exact{f' ({reasons})' if reasons else ''}"
        rows = count_text(self.table.num_rows, "row")
        return f"{rows} as of {time.format_instant(self.as_of)}, {state}"

    def __repr__(self) -> str:
        return f"<Answer {self._describe()}>\n{print_table(self.table, python_values)}"

    def _repr_html_(self) -> str:
        """The first rows, as a notebook shows them, with the instant and what the answer is."""
        caption = f"{self.query}: {self._describe()}" if self.query else self._describe()
        return write_table(self.table, caption, python_values)


@dataclass(frozen=True)
class Change:
    """One change of a query: a row came to its answer, or went.

    Attributes:
        cursor: Its name; a reader gives it to read the changes after this one.
        at: The instant at which it happened, microseconds since 1970 UTC.
        sign: '+' or '-'.
        row: The row's values.
        loss: What the changes it was read with lack; empty if they are exact.
        number: Its number among the changes of its query, from 1 on.
    """

    cursor: str
    at: int
    sign: str
    row: tuple[Any, ...]
    loss: tuple[Loss, ...] = ()
    number: int = field(kw_only=True)

    @property
    def exact(self) -> bool:
        """Whether the changes it was read with are exact."""
        return not self.loss

    @property
    def timestamp(self) -> str:
        """The instant as text."""
        return time.format_instant(self.at)


@dataclass(frozen=True)
class Changes:
    """Changes of a query in the order in which they happened; for each instant '-' before '+'.

    Attributes:
        table: `cursor` (int64, the number that ends a change's cursor), `timestamp` (int64,
            microseconds since 1970 UTC), `change` ('+' or '-'), and then the query's columns.
        query: The query's name.
        cursor: Where to read on: the last change's cursor, or the given one when there is none.
        newest: The number of the last change so far.
        as_of: All changes up to this instant are here or before the cursor.
        loss: What the changes from the one at the given cursor up to here lack, and why; empty for
            exact changes.
        redefined: The CQL of the query's new definition, if it begins with these changes: from
            here on they add up to its answer, and the first of them are the difference to the old
            one's. None of other changes.
    """

    table: pa.Table
    query: str
    cursor: str
    newest: int
    as_of: int
    loss: tuple[Loss, ...] = ()
    redefined: str | None = None

    #: Changes have no intervals: a bound is of a cell of an answer.
    bounds = None

    @property
    def exact(self) -> bool:
        """Whether these are the changes the query means, of all that was accepted and sent."""
        return not self.loss

    @property
    def position(self) -> int:
        """The number at the end of `cursor`; while it is less than `newest`, there is more."""
        return int(self.cursor.rpartition(".")[2])

    def cursor_at(self, number: int) -> str:
        """The cursor of the change of that number."""
        return f"{self.cursor.rpartition('.')[0]}.{number}"

    @property
    def final(self) -> bool:
        """Always true: only changes at final instants are returned, and none is revised."""
        return True

    @staticmethod
    def of(
        query: str,
        columns: list[str],
        found: pa.Table,
        prefix: str,
        after: int,
        upto: int,
        newest: int,
        as_of: int,
        loss: tuple[Loss, ...] = (),
        redefined: str | None = None,
    ) -> Changes:
        """Changes from the elements of a change log or of a derived stream."""
        count = found.num_rows
        cursors = pa.array(range(after + 1, after + 1 + count), pa.int64())
        stamps = found["__ts"]
        if "__sign" in found.column_names:
            signs = pc.if_else(pc.greater(found["__sign"], 0), "+", "-")
        else:
            signs = pa.array(["+"] * count, pa.string())
        values = [found[name] for name in columns]
        table = pa.Table.from_arrays(
            [cursors, stamps, signs, *values], names=["cursor", "timestamp", "change", *columns]
        )
        return Changes(table, query, f"{prefix}.{upto}", newest, as_of, loss, redefined)

    @property
    def columns(self) -> list[str]:
        """The names of the query's columns."""
        return list(self.table.column_names[3:])

    def rows(self) -> list[tuple[Any, ...]]:
        """Yield for each change its number, its instant (µs), its sign and the row's values."""
        return list(zip(*(python_values(column) for column in self.table.columns), strict=True))

    def __iter__(self) -> Iterator[Change]:
        for number, at, sign, *row in self.rows():
            yield Change(self.cursor_at(number), at, sign, tuple(row), self.loss, number=number)

    def __len__(self) -> int:
        return self.table.num_rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The changes for any library that reads Arrow's PyCapsule interface."""
        return self.table.__arrow_c_stream__(requested_schema)

    def _describe(self) -> str:
        upto = time.format_instant(self.as_of)
        state = "" if self.exact else ", not exact"
        return f"Changes of {self.query}: {len(self)} up to {upto}, cursor {self.position}{state}"

    def __repr__(self) -> str:
        return f"<{self._describe()}>"

    def _repr_html_(self) -> str:
        """The first changes, as a notebook shows them."""
        at = self.table.column_names.index("timestamp")
        instants = [time.format_instant(value) for value in self.table["timestamp"].to_pylist()]
        shown = self.table.set_column(at, "timestamp", pa.array(instants, pa.string()))
        return write_table(shown, self._describe(), python_values)


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """A column's values as Python's; the text of a value Python has no object for."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [_value(scalar) for scalar in column]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        kind = scalar.type
    if pa.types.is_timestamp(kind):
        ticks = scalar.cast(pa.timestamp("us", kind.tz)).value
        text = format_ticks(np.array([ticks], "datetime64[us]"))[0].replace("T", " ")
        return text if kind.tz is None or text.endswith("infinity") else f"{text}+00:00"
    if pa.types.is_date32(kind):
        return format_ticks(np.array([scalar.value], "datetime64[D]"))[0]
    if isinstance(scalar, pa.StructScalar):
        return {name: _value(part) for name, part in scalar.items()}
    parts = [_value(part) for part in scalar.values]
    return [tuple(part.values()) for part in parts] if isinstance(scalar, pa.MapScalar) else parts


@dataclass(frozen=True)
class IngestReceipt:
    """What became of pushed rows. They are durable before the receipt is returned.

    Attributes:
        accepted: Rows that became elements.
        rejected: Rows that went to the stream's rejects.
        shed: Elements that were lost, because the stream sheds and there was too much to do. What
            was sent is what was accepted, rejected and shed.
        rejects: The first 100 of them: {"row": position from 0, "reason": …}.
        duplicate: True when the idempotency key was seen before and nothing was done again.
    """

    accepted: int
    rejected: int
    rejects: list[dict[str, Any]] = field(default_factory=list)
    duplicate: bool = False
    shed: int = 0

    def __str__(self) -> str:
        """Describe the receipt in one line, with the reason of the first reject.

        >>> print(IngestReceipt(2, 1, [{"row": 2, "reason": "no timestamp"}]))
        2 accepted, 1 rejected (no timestamp)
        """
        text = f"{self.accepted} accepted"
        if self.rejected:
            reason = self.rejects[0]["reason"] if self.rejects else ""
            text += f", {self.rejected} rejected ({reason})"
        return f"{text}, {self.shed} shed" if self.shed else text


#: The facts of DESCRIBE that tell of others' queries, or of where rows come from.
FACTS_OF_ADMINS = ("read by", "source", "sinks")


@dataclass(frozen=True)
class StatementResult:
    """The result of one statement: an answer, a table, a text, or a message.

    Attributes:
        statement: The statement's kind in the words of CQL: 'invoke', 'ask', 'create query', ….
        name: The object it named.
        answer: For INVOKE and a query asked once.
        changes: For FETCH.
        table: For SHOW and DESCRIBE.
        facts: For DESCRIBE, what is known besides the columns, by name.
        text: For EXPLAIN and SHOW CREATE.
        message: For everything else, one line.
    """

    statement: str
    name: str | None = None
    answer: Answer | None = None
    changes: Changes | None = None
    table: pa.Table | None = None
    text: str | None = None
    message: str | None = None
    facts: dict[str, str] | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of its rows."""
        table = self.table
        if self.answer is not None:
            table = self.answer.table
        elif self.changes is not None:
            table = self.changes.table
        return 0 if table is None else table.nbytes


def report(statement: str, name: str, what: str) -> StatementResult:
    """Make the result of a statement that has only a message: what it did, to which object."""
    kind = statement.split()[-1]
    subject = (
        f"{kind} {name}" if kind in ("stream", "relation", "query", "summary", "sink") else name
    )
    return StatementResult(statement, name, message=f"{subject}: {what}")


def count_text(number: int, noun: str, plural: str | None = None) -> str:
    """Write a number of things for people.

    >>> count_text(1, "row"), count_text(1200, "row"), count_text(2, "query", "queries")
    ('1 row', '1,200 rows', '2 queries')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
