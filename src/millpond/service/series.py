"""A query's answers at many instants as one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millpond.errors import MillpondError
from millpond.model.durations import parse_duration
from millpond.model.loss import Loss, merge_losses
from millpond.model.time import Time, format_instant, to_instant
from millpond.service.results import Answer, count_text, python_values
from millpond.service.shown_tables import print_table, write_table

if TYPE_CHECKING:
    import pandas as pd

#: The most instants of a series.
MOST_INSTANTS = 10_000
#: The column of the instants; with underscores behind it if the query has a column of that name.
AT = "at"

#: The distance of two instants: a length of time, also of NumPy and pandas, or as text
#: (`'30 minutes'`), or microseconds.
Step = timedelta | np.timedelta64 | str | int


@dataclass(frozen=True)
class Series:
    """A query's answers at instants that are equally far apart.

    Attributes:
        table: The instant of the row, then the query's columns; ordered by the instant.
        instants: The instants, also those whose answers have no rows; µs since 1970 UTC.
        final: Whether all of the answers are final.
        loss: What any of the answers lacks, and why.
        exact: Whether all of the answers are exact.
        query: The query's name.
    """

    table: pa.Table
    instants: tuple[int, ...]
    final: bool
    loss: tuple[Loss, ...]
    exact: bool
    query: str | None = None

    @property
    def at(self) -> str:
        """The name of the column of the instants."""
        return str(self.table.column_names[0])

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas frame (pandas must be installed)."""
        return self.table.to_pandas()

    def __len__(self) -> int:
        return self.table.num_rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for any library that reads Arrow's PyCapsule interface."""
        return self.table.__arrow_c_stream__(requested_schema)

    def plot(self, ax: Any = None) -> Any:
        """Draw the columns of numbers over the instants (matplotlib must be installed).

        Rows that differ in the other columns are lines of their own. Where an answer has no row of
        a line, the line has a gap; where it has several, the last of them counts.

        Args:
            ax: The axes of matplotlib to draw in; None for new ones.

        Returns:
            The axes.

        Raises:
            ImportError: matplotlib is not installed.
            MillpondError: CQL-103, the query has no column of numbers.
        """
        lines = self.lines()
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError("plot() needs matplotlib: pip install matplotlib") from error
        if ax is None:
            ax = pyplot.figure().add_subplot()
        stamps = np.array(self.instants, "datetime64[us]")
        for label, values in lines.items():
            ax.plot(stamps, values, label=label, marker="." if len(stamps) < 50 else None)
        ax.set_title(self.query or "")
        if len(lines) > 1:
            ax.legend()
        ax.figure.autofmt_xdate()
        return ax

    def lines(self) -> dict[str, np.ndarray]:
        """The numbers of each line by its label: a value for each instant, NaN where there is none.

        Raises:
            MillpondError: CQL-103, the query has no column of numbers.
        """
        numbers: list[str] = []
        labels: list[str] = []
        for field in list(self.table.schema)[1:]:
            kind = field.type
            is_number = (
                pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
            )
            (numbers if is_number else labels).append(field.name)
        if not numbers:
            raise MillpondError(
                "CQL-103",
                "the series has no column of numbers to draw",
                hint="Select a count, a sum, or another number.",
            )
        places = {at: place for place, at in enumerate(self.instants)}
        stamps = [places[int(at)] for at in self.table[self.at].cast(pa.int64()).to_pylist()]
        keys = list(zip(*(python_values(self.table[name]) for name in labels), strict=True))
        found: dict[str, np.ndarray] = {}
        for name in numbers:
            for row, value in enumerate(self.table[name].to_pylist()):
                told = [str(part) for part in keys[row]] if labels else []
                label = ", ".join([*told, *([name] if len(numbers) > 1 or not told else [])])
                line = found.setdefault(label, np.full(len(self.instants), np.nan))
                line[stamps[row]] = np.nan if value is None else float(value)
        return found

    def _describe(self) -> str:
        counts = f"{count_text(len(self), 'row')} at {count_text(len(self.instants), 'instant')}"
        if self.instants:
            counts += f", {format_instant(self.instants[0])} to {format_instant(self.instants[-1])}"
        state = "final" if self.final else "not final"
        return f"{counts}, {state}{'' if self.exact else ', not exact'}"

    def __repr__(self) -> str:
        return f"<Series {self._describe()}>\n{print_table(self.table, python_values)}"

    def _repr_html_(self) -> str:
        """The first rows, as a notebook shows them."""
        return write_table(self.table, f"{self.query}: {self._describe()}", python_values)


def instants_between(start: Time, end: Time, step: Step) -> list[int]:
    """The instants from `start` to `end`, both included, that are `step` apart.

    Raises:
        MillpondError: CQL-103, an instant or the step is none, or there are too many instants.

    >>> instants_between(0, "1970-01-01 00:00:01", timedelta(milliseconds=400))
    [0, 400000, 800000]
    """
    first, last, length = to_instant(start), to_instant(end), _to_microseconds(step)
    if first is None or last is None or length <= 0:
        raise MillpondError(
            "CQL-103",
            "a series needs a start, an end and a step of some length",
            hint="q.series('2026-03-01', '2026-03-02', '10 minutes')",
        )
    count = max((last - first) // length + 1, 0)
    if count > MOST_INSTANTS:
        raise MillpondError(
            "CQL-103",
            f"the series has {count:,} instants",
            detail=f"It may have {MOST_INSTANTS:,}.",
            hint="Take a longer step, or ask in parts.",
        )
    return [first + number * length for number in range(count)]


def join_answers(instants: Sequence[int], answers: Sequence[Answer]) -> Series:
    """Put the answers at instants into one table.

    Raises:
        MillpondError: CQL-103, there are none.
    """
    if not answers:
        raise MillpondError(
            "CQL-103", "the series has no instant", hint="Its end is not before its start."
        )
    name = AT
    while name in answers[0].columns:
        name += "_"
    tables = []
    for at, answer in zip(instants, answers, strict=True):
        stamps = pa.array(np.full(len(answer), at, "datetime64[us]"))
        tables.append(answer.table.add_column(0, name, stamps))
    table = pa.concat_tables(tables, promote_options="permissive")
    return Series(
        table,
        tuple(instants),
        all(answer.final for answer in answers),
        merge_losses(loss for answer in answers for loss in answer.loss),
        all(answer.exact for answer in answers),
        answers[0].query,
    )


def _to_microseconds(step: Step) -> int:
    """A length of time in microseconds; 0 for what is none."""
    if isinstance(step, str):
        try:
            return parse_duration(step)
        except ValueError:
            return 0
    if isinstance(step, np.timedelta64):
        return 0 if np.isnat(step) else int(step.astype("timedelta64[us]").astype(np.int64))
    if isinstance(step, timedelta):
        return step // timedelta(microseconds=1) if step == step else 0  # pandas's NaT
    return step if isinstance(step, int) else 0
