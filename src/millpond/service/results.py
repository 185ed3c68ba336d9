"""What statements and invocations give back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.model import time

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


@dataclass(frozen=True)
class Answer:
    """R(τ): a query's rows at an instant.

    Attributes:
        table: The rows; their order means something only if the query has ORDER BY.
        as_of: The instant τ, microseconds since 1970 UTC.
        final: Whether no element with a timestamp ≤ τ can come any more.
        complete: Whether everything the windows reach back to is still kept.
        complete_since: If not complete, the instant from which everything is kept.
        query: The handle's name, or None for a query asked once.
        epoch: The epoch whose effects, and all before it, the answer shows.
    """

    table: pa.Table
    as_of: int
    final: bool
    complete: bool = True
    complete_since: int | None = None
    query: str | None = None
    epoch: int = 0

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as Python tuples; an instant beyond the years 1 to 9999 is its text."""
        columns = [_values(column) for column in self.table.columns]
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

    def __len__(self) -> int:
        return self.table.num_rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows())

    def __repr__(self) -> str:
        state = "final" if self.final else "not final"
        at = time.format_instant(self.as_of)
        return f"<Answer {self.table.num_rows} rows as of {at}, {state}>\n{self.table}"


def _values(column: pa.ChunkedArray) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [_value(scalar) for scalar in column]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):  # Python has no object for it
        return scalar.cast(pa.string()).as_py()


@dataclass(frozen=True)
class IngestReceipt:
    """What became of pushed rows, all of it durable before the receipt is given.

    Attributes:
        accepted: Rows that became elements.
        rejected: Rows that went to the stream's rejects.
        rejects: The first 100 of them: {"row": position from 0, "reason": …}.
        duplicate: True when the idempotency key was seen before and nothing was done again.
    """

    accepted: int
    rejected: int
    rejects: list[dict[str, Any]] = field(default_factory=list)
    duplicate: bool = False


@dataclass(frozen=True)
class StatementResult:
    """What one statement gave: an answer, a table, a text, or a message.

    Attributes:
        statement: The statement's kind in the words of CQL: 'invoke', 'ask', 'create query', ….
        name: The object it named.
        answer: For INVOKE and a query asked once.
        table: For SHOW and DESCRIBE.
        text: For EXPLAIN.
        message: For everything else, one line.
    """

    statement: str
    name: str | None = None
    answer: Answer | None = None
    table: pa.Table | None = None
    text: str | None = None
    message: str | None = None
