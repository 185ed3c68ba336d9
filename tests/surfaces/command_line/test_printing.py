"""How results and progress are printed."""

from __future__ import annotations

import io
import json
from decimal import Decimal

import pyarrow as pa
from rich.console import Console

from millpond.cli.output_format import Format
from millpond.cli.progress_bars import ReadingProgress
from millpond.cli.result_writers import SHOWN_ROWS, footer, writer
from millpond.model.loss import Bounds, Cause, Loss
from millpond.service.results import Answer, StatementResult


def printed(format: Format, *results: StatementResult) -> str:
    out = io.StringIO()
    write = writer(format, out)
    for result in results:
        write.write(result)
    return out.getvalue()


def answer(table: pa.Table, **facts) -> StatementResult:
    return StatementResult("invoke", "q", answer=Answer(table, 1_000_000, final=True, **facts))


def test_texts_and_tables_and_messages():
    plan = StatementResult("explain", text="a\n  b\n")
    shown = StatementResult("show streams", table=pa.table({"name": ["s"]}))
    message = StatementResult("insert", "s", message="1 row inserted")
    assert printed(Format.TABLE, plan, message) == "a\n  b\n1 row inserted\n"
    lines = printed(Format.JSON, plan, shown, message).splitlines()
    assert [json.loads(line)["rows"] for line in lines] == [[["a\n  b\n"]], [["s"]]]
    assert printed(Format.CSV, shown, message, shown) == "name\ns\n\nname\ns\n"


def test_a_long_table_says_what_it_does_not_show():
    table = pa.table({"i": range(SHOWN_ROWS + 5)})
    text = printed(Format.TABLE, answer(table))
    assert "… 5 more rows" in text
    assert f"{SHOWN_ROWS + 5:,} rows as of 1970-01-01 00:00:01, final" in text
    assert len(json.loads(printed(Format.JSON, answer(table)))["rows"]) == SHOWN_ROWS + 5


def test_cells():
    table = pa.table({"t": [None, "a\nb", "[bold]x[/]"], "long": ["y" * 300] * 3})
    text = printed(Format.TABLE, answer(table))
    lengths = pa.table({"apart": pa.array([pa.MonthDayNano([0, 1, 0])])})
    assert "│ 1 day │" in printed(Format.TABLE, answer(lengths))
    assert "NULL" in text
    assert "a\\nb" in text
    assert "[bold]x[/]" in text
    assert "y" * 300 in text


def test_numbers_read_as_they_were_written():
    table = pa.table(
        {
            "none": pa.array([Decimal("0E-8")], pa.decimal128(9, 8)),
            "float": pa.array([0.1], pa.float32()),
            "list": pa.array([[Decimal("1E-8"), None]], pa.list_(pa.decimal128(9, 8))),
        }
    )
    text = printed(Format.TABLE, answer(table))
    assert "│ 0.00000000 │   0.1 │ [0.00000001, NULL] │" in text


def test_csv_tells_null_from_an_empty_text():
    table = pa.table({"t": ["", None, "a,b"], "b": [True, False, None], "l": [[1], None, [None]]})
    assert printed(Format.CSV, answer(table)) == ('t,b,l\n"",true,[1]\n,false,\n"a,b",,[null]\n')
    alone = printed(
        Format.CSV, answer(table.select(["l"]).slice(1, 1)), answer(table.select(["b"]))
    )
    assert alone == 'l\n""\n\nb\ntrue\nfalse\n""\n'


def test_an_incomplete_answer_says_so():
    table = pa.table({"i": [1]})
    facts = Answer(table, 5_000_000, final=False, loss=(Loss("s", Cause.EXPIRED, None, 2_000_000),))
    assert footer(facts) == (
        "1 row as of 1970-01-01 00:00:05, not final; "
        'not exact: elements of stream "s" up to 1970-01-01 00:00:02 are not kept any more'
    )


def test_an_estimated_answer_says_how_far_it_may_be_off():
    table = pa.table({"g": ["a", "b"], "n": [100, 2000], "m": [1.5, None]})
    loss = (Loss("s", Cause.SAMPLED, None, 2_000_000, kept=5.0),)
    bounds = Bounds(0.95, {"n": [(90.0, 115.0), (1950.0, 2060.0)], "m": [(1.0, 2.0), None]})
    assert footer(Answer(table, 5_000_000, final=True, loss=loss, bounds=bounds)).endswith(
        "were sampled: 5 % of them were read; n ± 60 at most, m without bounds, each at 95 %"
    )


class Reading:
    """Progress on a terminal that is not there, by a clock that is set."""

    def __init__(self, terminal: bool = True) -> None:
        self.out = io.StringIO()
        self.now = 0.0
        console = Console(file=self.out, force_terminal=terminal, width=80, color_system=None)
        self.progress = ReadingProgress(console, clock=lambda: self.now)

    def at(self, now: float, rows: int, done: bool = False) -> str:
        self.now = now
        self.progress({"stream": "flights", "rows": rows, "done": done})
        return self.out.getvalue()


def test_progress_shows_after_two_seconds():
    reading = Reading()
    assert reading.at(0.0, 10) == ""
    assert reading.at(1.9, 20) == ""
    assert reading.at(2.1, 31_000) != ""
    reading.progress.pause()
    assert "reading flights" in reading.out.getvalue()
    assert "31,000 rows" in reading.out.getvalue()


def test_progress_of_what_is_read_at_once_is_not_shown():
    reading = Reading()
    reading.at(0.0, 10)
    assert reading.at(5.0, 20, done=True) == ""
    reading.progress.close()


def test_no_progress_without_a_terminal():
    reading = Reading(terminal=False)
    reading.at(0.0, 1)
    assert reading.at(9.0, 2) == ""
