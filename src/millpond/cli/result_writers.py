"""How statements' results are printed: tables for people, JSON and CSV for programs."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol, TextIO

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from millpond.api.encode import promise_facts
from millpond.cli.output_format import Format
from millpond.model.loss import Bounds
from millpond.model.time import format_instant, format_interval
from millpond.service.json_values import (
    format_instants,
    instant_text,
    json_rows,
    shorten_floats,
)
from millpond.service.results import Answer, Changes, StatementResult, python_values

#: Rows a printed table shows at most; JSON and CSV show all.
SHOWN_ROWS = 1000


class Writer(Protocol):
    """Prints results, one after the other."""

    def write(self, result: StatementResult) -> None: ...


def writer(format: Format, out: TextIO | None = None) -> Writer:
    """Make the writer of a format, to stdout by default."""
    out = out or sys.stdout
    match format:
        case Format.JSON:
            return JsonWriter(out)
        case Format.CSV:
            return CsvWriter(out)
        case Format.TABLE:
            return TableWriter(out)


class JsonWriter:
    """One object a line for every statement that answered with rows or with a text."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, result: StatementResult) -> None:
        """Prints a result; one that is only a message is not an answer and prints nothing."""
        table = rows_of(result)
        if table is None:
            return
        answer, changes = result.answer, result.changes
        at = answer if answer is not None else changes
        body = {
            "statement": result.statement,
            "query": (answer.query if answer is not None else None) or result.name,
            "as_of": instant_text(at.as_of) if at is not None else None,
            "final": at.final if at is not None else None,
            **(promise_facts(at) if at is not None else {}),
            **part_facts(answer),
            **({} if result.facts is None else {"facts": result.facts}),
            "columns": list(table.column_names),
            "rows": json_rows(table),
        }
        # ASCII, so that the line is the same whatever the terminal's encoding is.
        print(json.dumps(body), file=self._out, flush=True)


class CsvWriter:
    """A header and rows for every statement that answered; an empty line between two of them.

    NULL is an empty field and an empty text is two quotes, as in CSV that is pushed; Python's own
    writer tells them apart from 3.12 on. Booleans, lists and structures are as in JSON.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._started = False

    def write(self, result: StatementResult) -> None:
        """Prints a result, unless it is only a message."""
        table = rows_of(result)
        if table is None:
            return
        if self._started:
            print(file=self._out)
        self._started = True
        given = result.answer if result.answer is not None else result.changes
        if given is not None and (said := loss_text(given)):
            # A table of values has no room for it, and whoever reads the values must be told.
            print(said.removeprefix("; "), file=sys.stderr, flush=True)
        for row in (table.column_names, *json_rows(table)):
            # A line of one column is never empty: that would be the end of the answer.
            print(",".join(map(_field, row)) or '""', file=self._out)
        self._out.flush()


class TableWriter:
    """Tables with a last line that says as of when they hold; messages as they are."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(
            file=out,
            # A file or a pipe has no width, so no cell may be cut to fit.
            width=None if out.isatty() else 10_000,
            highlight=False,
            soft_wrap=True,
        )

    def write(self, result: StatementResult) -> None:
        """Prints a result."""
        if result.answer is not None:
            self._print(result.answer.table, footer(result.answer))
        elif result.changes is not None:
            shown = format_instants(result.changes, format_instant)
            self._print(shown, changes_footer(result.changes))
        elif result.table is not None:
            self._print(result.table, _count(result.table.num_rows))
            for name, value in (result.facts or {}).items():
                self._console.print(Text(f"{name}: {value}"))
        elif result.text is not None:
            self._console.print(Text(result.text.rstrip("\n")))
        elif result.message:
            self._console.print(Text(result.message, style="dim"))
        self._console.file.flush()

    def _print(self, rows: pa.Table, last: str) -> None:
        grid = Table(box=box.ROUNDED, header_style="bold", border_style="dim")
        for field in rows.schema:
            grid.add_column(Text(field.name), justify="right" if _is_number(field.type) else "left")
        shown = rows.slice(0, SHOWN_ROWS)
        columns = [python_values(shorten_floats(column)) for column in shown.columns]
        for row in zip(*columns, strict=True):
            grid.add_row(*(_cell(value) for value in row))
        self._console.print(grid)
        if rows.num_rows > SHOWN_ROWS:
            rest = rows.num_rows - SHOWN_ROWS
            self._console.print(Text(f"… {rest:,} more rows", style="yellow"))
        self._console.print(Text(last, style="dim"))


def _field(value: Any) -> str:
    """A value of JSON as a field of CSV.

    >>> print(",".join(map(_field, (None, "", "a, b", True, [1, None], 0.5))))
    ,"","a, b",true,"[1, null]",0.5
    """
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    plain = text and text.strip() == text and not any(c in text for c in ',"\r\n')
    return text if plain else '"' + text.replace('"', '""') + '"'


def rows_of(result: StatementResult) -> pa.Table | None:
    """The rows of a result: an answer's, a table's, a text as one row; None for a message."""
    if result.answer is not None:
        return result.answer.table
    if result.changes is not None:
        return format_instants(result.changes)
    if result.table is not None:
        return result.table
    name = "plan" if result.statement == "explain" else "statement"
    return pa.table({name: [result.text]}) if result.text is not None else None


def part_facts(answer: Answer | None) -> dict[str, Any]:
    """What an answer says of a part and of estimates, for JSON; nothing where there are none."""
    facts: dict[str, Any] = {}
    if answer is not None and answer.part is not None:
        facts["part"] = asdict(answer.part)
    if answer is not None and answer.estimated:
        facts["estimated"] = list(answer.estimated)
    return facts


def footer(answer: Answer) -> str:
    """Write the line below an answer's rows."""
    state = "final" if answer.final else "not final"
    line = f"{_count(len(answer))} as of {format_instant(answer.as_of)}, {state}"
    if (part := answer.part) is not None and not part.whole:
        line += (
            f"; about {100 * part.share:.3g} % of about {part.rows:,.0f}"
            f" row{'' if round(part.rows) == 1 else 's'}, {part.probes:,} probes;"
            f" more AFTER '{part.cursor}'"
        )
    return line + loss_text(answer)


def loss_text(given: Answer | Changes) -> str:
    """Write what answers or changes lack, and bounds, behind their last line; empty if nothing."""
    said = [] if given.bounds is None else [_bounds_text(given.table, given.bounds)]
    if given.exact:
        return f"; {said[0]}" if said else ""
    reasons = [str(loss) for loss in given.loss]
    if isinstance(given, Answer) and given.estimated:
        reasons.append(f"estimates of {', '.join(given.estimated)}")
    if isinstance(given, Answer) and (part := given.part) is not None:
        reasons += (
            [] if part.whole and part.alone else ["the last part" if part.whole else "a part"]
        )
    return f"; not exact: {'; '.join(reasons + said)}"


def _bounds_text(table: pa.Table, bounds: Bounds) -> str:
    """Say how far exact values may be from estimates: the farthest of each column."""
    said = []
    for name, cells in bounds.columns.items():
        values = table[name].to_pylist()
        ends = [c for c in cells if c is not None]
        if len(ends) < len(cells) or None in values:
            said.append(f"{name} without bounds")
            continue
        reach = max(
            (max(float(v) - c[0], c[1] - float(v)) for v, c in zip(values, ends, strict=True)),
            default=0.0,
        )
        said.append(f"{name} ± {reach:,.3g} at most")
    return f"{', '.join(said)}, each at {100 * bounds.confidence:g} %"


def changes_footer(changes: Changes) -> str:
    """Write the line below changes: how many, up to when, and the cursor to read on from."""
    count = "1 change" if len(changes) == 1 else f"{len(changes):,} changes"
    line = f"{count} up to {format_instant(changes.as_of)}"
    if changes.position < changes.newest:
        line += f"; {changes.newest - changes.position:,} more AFTER {changes.position}"
    else:
        line += f", cursor {changes.position}"
    return line + loss_text(changes)


def _count(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows:,} rows"


def _is_number(arrow: pa.DataType) -> bool:
    kinds = pa.types
    return bool(kinds.is_integer(arrow) or kinds.is_floating(arrow) or kinds.is_decimal(arrow))


def _cell(value: Any) -> Text:
    if value is None:
        return Text("NULL", style="dim italic")
    # A line break or a tab within a cell would break the grid, an escape the terminal.
    text = _text(value)
    return Text(text if text.isprintable() else repr(text)[1:-1])


def _text(value: Any) -> str:
    """A value as a person reads it; within a list or a struct as well.

    >>> _text([Decimal("0E-8"), None, {"a": "x"}, [(1, "one")]])
    '[0.00000000, NULL, {a: x}, [1: one]]'
    """
    match value:
        case None:
            return "NULL"
        case Decimal():
            return f"{value:f}"
        case datetime():
            return value.isoformat(sep=" ")
        case pa.MonthDayNano():
            return format_interval(*value)
        case dict():
            return "{" + ", ".join(f"{k}: {_text(v)}" for k, v in value.items()) + "}"
        case tuple():
            return ": ".join(map(_text, value))
        case list():
            return "[" + ", ".join(map(_text, value)) + "]"
        case _:
            return str(value)
