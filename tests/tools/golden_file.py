"""The `.cqt` format: one behaviour a file, readable as a specification, time as a column.

    -- ROWS windows count elements, not time.
    CREATE STREAM s (ts TIMESTAMP, k STRING, v INTEGER) TIMESTAMP BY ts;
    CREATE QUERY q AS SELECT k, v FROM s [ROWS 2];
    feed s:
      00:00:01 | a | 1
      00:00:02 | b | 2
    expect q at 00:00:02, not final:
      k | v
      a | 1
      b | 2

Each line at the left edge begins a step; steps happen in order. Indented lines belong to the step.

| step | meaning |
| --- | --- |
| a CQL statement, ended by `;` | it is executed |
| … with a table below it | its answer (a query asked once, INVOKE, SHOW, DESCRIBE) is the table |
| EXPLAIN, SHOW CREATE … with lines below it | it says these lines, indented like this |
| … with `error CODE: words` below it | it fails with the code, and says the words; a line of `^` |
| | under one of its lines is the place the error marks |
| `feed s:` `feed s (a, b):` | rows arrive on a stream, cut into epochs in any way |
| `epoch s:` | rows arrive as one epoch |
| `clock 00:01:00` | the clock moves on |
| `reopen` | the pond is closed and its store opened again |
| `expect q:` | q is invoked, now; `at T` as of an instant |
| `expect q over time:` | the first column is the instant; `.` for every other cell: nothing then |

In an `expect`, `as of T` is the instant that the answer must be for, and `final` or `not final` is
the finality that it must have. A feed's row may end in `=> rejected: words`: the row becomes a
reject whose reason contains the words. A row's first cell may be `@T`: the clock shows T when the
row arrives. `golden_table` defines cells; rows are a bag unless the query has an ORDER BY.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.tools.golden_table import parse_time, split_cells


@dataclass(frozen=True)
class Table:
    """An expected answer, as text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Failure:
    """An expected error: its code, words of its message, and the marked line with its marker."""

    code: str
    words: str = ""
    snippet: str | None = None


@dataclass(frozen=True)
class GoldenStep:
    """One step of a golden, and the line of the file it starts on."""

    line: int


@dataclass(frozen=True)
class RunStatement(GoldenStep):
    """A CQL statement, and its expected outcome if the golden states one."""

    text: str
    table: Table | None = None
    failure: Failure | None = None
    lines: tuple[str, ...] | None = None

    @property
    def words(self) -> list[str]:
        """The first words of the statement, in upper case."""
        return self.text.upper().split(maxsplit=3)[:3]


@dataclass(frozen=True)
class Arrival:
    """A row of a feed: its cells, and, if stated, when it arrives and why it is rejected."""

    cells: tuple[str, ...]
    clock: int | None = None
    rejected: str | None = None


@dataclass(frozen=True)
class FeedRows(GoldenStep):
    """Rows arriving on a stream; `whole` if they must be one epoch."""

    stream: str
    columns: tuple[str, ...] | None
    arrivals: tuple[Arrival, ...]
    whole: bool = False


@dataclass(frozen=True)
class MoveClock(GoldenStep):
    at: int


@dataclass(frozen=True)
class Reopen(GoldenStep):
    pass


@dataclass(frozen=True)
class Expect(GoldenStep):
    """An invocation of a standing query and the answer it must give."""

    query: str
    at: int | None = None
    as_of: int | None = None
    final: bool | None = None
    table: Table | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class Golden:
    """A golden file: the behaviour in words, and the steps that show it."""

    path: Path
    behaviour: str
    steps: tuple[GoldenStep, ...] = field(default=())


class MalformedGolden(ValueError):
    """A golden file that cannot be read."""


_EXPLAINS = re.compile(r"(?i)(EXPLAIN|SHOW CREATE)\b")
_FEED = re.compile(r"(feed|epoch)\s+([\w$]+)\s*(?:\(([^)]*)\))?\s*:")
_EXPECT = re.compile(
    r"expect\s+(\w+)"
    r"(?:(?P<series>\s+over\s+time)|\s+at\s+(?P<at>[\d: .-]+?))?"
    r"(?:,?\s+as\s+of\s+(?P<as_of>[\d: .-]+?|the beginning))?"
    r"(?:,\s*(?P<final>(?:not\s+)?final))?\s*:?"
)
_ERROR = re.compile(r"error\s+([A-Z]+-\d+)\s*(?::\s*(.*))?")
_REJECTED = re.compile(r"(.*?)\s*=>\s*rejected\s*(?::\s*(.*))?")
_MARKER = re.compile(r"\s*\^+\s*")


def read_golden(path: Path) -> Golden:
    """Read a golden file.

    Raises:
        MalformedGolden: the file cannot be read; the message has the file and line.
    """
    return parse_golden(path.read_text(encoding="utf-8"), path)


def parse_golden(text: str, path: Path = Path("golden.cqt")) -> Golden:
    """Read the text of a golden file."""
    behaviour: list[str] = []
    lines = text.split("\n")
    for line in lines:
        if not line.startswith("--"):
            break
        behaviour.append(line.removeprefix("--").strip())
    if not behaviour:
        raise MalformedGolden(f"{path}:1: a golden begins with a comment that says the behaviour")
    steps: list[GoldenStep] = []
    for number, head, body in _blocks(lines):
        try:
            steps += _steps(number, head, body)
        except ValueError as error:
            raise MalformedGolden(f"{path}:{number}: {error}") from error
    return Golden(path, " ".join(behaviour), tuple(steps))


def _blocks(lines: list[str]) -> Iterator[tuple[int, list[str], list[str]]]:
    """Split lines by step: where a step starts, its head, and the lines that belong to it.

    A head is one line, or, for a statement, all lines up to its semicolon with its markers. The
    lines that belong to a step are the indented lines and `error` lines below its head.
    """
    here = 0
    while here < len(lines):
        line = lines[here].rstrip()
        if not line or line.startswith("--"):
            here += 1
            continue
        start, head = here, [line]
        if not re.match(r"(feed|epoch|clock|expect|reopen)\b", line):
            while not head[-1].rstrip().endswith(";"):
                here += 1
                if here >= len(lines):
                    raise MalformedGolden(f"line {start + 1}: a statement without its semicolon")
                head.append(lines[here].rstrip())
            if here + 1 < len(lines) and _MARKER.fullmatch(lines[here + 1]):
                here += 1
                head.append(lines[here].rstrip())
        here += 1
        body = []
        while here < len(lines):
            below = lines[here].rstrip()
            if below and not below[0].isspace() and not below.startswith(("error ", "--")):
                break
            if below and not below.lstrip().startswith("--"):
                body.append(below if _EXPLAINS.match(head[0]) else below.strip())
            here += 1
        yield start + 1, head, body


def _steps(number: int, head: list[str], body: list[str]) -> Iterator[GoldenStep]:
    first = head[0]
    if first.startswith("clock "):
        yield MoveClock(number, parse_time(first.removeprefix("clock ")))
    elif first == "reopen":
        yield Reopen(number)
    elif match := _FEED.fullmatch(first):
        columns = tuple(c.strip() for c in match[3].split(",")) if match[3] else None
        arrivals = tuple(_arrival(line) for line in body)
        yield FeedRows(number, match[2], columns, arrivals, match[1] == "epoch")
    elif first.startswith("expect "):
        yield from _expectations(number, first, body)
    else:
        yield _statement(number, head, body)


def _arrival(line: str) -> Arrival:
    rejected = None
    if match := _REJECTED.fullmatch(line):
        line, rejected = match[1], (match[2] or "").strip()
    cells = split_cells(line)
    clock = None
    if cells[0].startswith("@"):
        clock, cells = parse_time(cells[0][1:]), cells[1:]
    return Arrival(tuple(cells), clock, rejected)


def _statement(number: int, head: list[str], body: list[str]) -> RunStatement:
    text: list[str] = []
    snippet = None
    for line in head:
        if _MARKER.fullmatch(line) and text:
            snippet = f"{text[-1].rstrip().rstrip(';')}\n{line.rstrip()}"
        else:
            text.append(line)
    if _EXPLAINS.match(head[0]) and body and not body[0].strip().startswith("error "):
        lines = tuple(textwrap.dedent("\n".join(body)).split("\n"))
        return RunStatement(number, "\n".join(text), lines=lines)
    failure = _failure([line.strip() for line in body], snippet)
    table = _table(body) if body and failure is None else None
    return RunStatement(number, "\n".join(text), table, failure)


def _failure(body: list[str], snippet: str | None = None) -> Failure | None:
    if len(body) == 1 and (match := _ERROR.fullmatch(body[0])):
        return Failure(match[1], (match[2] or "").strip(), snippet)
    return None


def _table(body: list[str]) -> Table:
    if not body:
        raise ValueError("a table needs at least its line of columns")
    columns, *rows = (tuple(split_cells(line)) for line in body)
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"a row of {len(row)} cells under {len(columns)} columns: {row}")
    return Table(columns, tuple(rows))


def _expectations(number: int, head: str, body: list[str]) -> Iterator[Expect]:
    match = _EXPECT.fullmatch(head)
    if match is None:
        raise ValueError(f"cannot be read: {head}")
    final = None if match["final"] is None else match["final"] == "final"
    if failure := _failure(body):
        at = parse_time(match["at"]) if match["at"] else None
        yield Expect(number, match[1], at, failure=failure)
        return
    table = _table(body)
    if not match["series"]:
        at = parse_time(match["at"]) if match["at"] else None
        as_of = parse_time(match["as_of"]) if match["as_of"] else None
        yield Expect(number, match[1], at, as_of, final, table)
        return
    instants: dict[int, list[tuple[str, ...]]] = {}
    for row in table.rows:
        held = instants.setdefault(parse_time(row[0]), [])
        if any(cell != "." for cell in row[1:]):
            held.append(row[1:])
    for at, rows in instants.items():
        answer = Table(table.columns[1:], tuple(rows))
        yield Expect(number, match[1], at, None, final, answer)
