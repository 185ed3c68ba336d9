"""Prints the demo: a live view at a terminal, plain lines anywhere else, tables at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from millpond.demo.replay import Tick
from millpond.demo.travellers import Traveller
from millpond.model.time import to_datetime
from millpond.service.results import Answer

#: Seconds between two lines where there is no terminal, with news and without.
_LINE_SECONDS, _QUIET_SECONDS = 1.0, 10.0
#: Rows shown of an answer.
_ROWS = 3
_WIDTH = 100


class Screen:
    """Prints the demo's parts in order; `live` between `begin` and `end`."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(highlight=False)
        if not console.is_terminal:
            # What is piped is read in files and logs, which have no width.
            console = Console(file=console.file, highlight=False, width=_WIDTH)
        self._console = console
        self._live: Live | None = None
        self._printed = 0.0
        self._shown = -1

    def title(self, text: str) -> None:
        """Print the demo's title."""
        self._console.print(f"\n[bold]{escape(text)}[/bold]")

    def part(self, text: str) -> None:
        """Print the heading of a new part."""
        self._console.print(f"\n[bold cyan]{escape(text)}[/bold cyan]")

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(f"  {escape(text)}", soft_wrap=True)

    def link(self, what: str, address: str) -> None:
        """Print an address to open or a command to type."""
        self._console.print(f"  {what:<14} [bold]{escape(address)}[/bold]", soft_wrap=True)

    # -- while the flights are replayed --------------------------------------------------------

    def begin(self) -> None:
        """Show the live view."""
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=8)
            self._live.start()

    def live(self, tick: Tick, queries: int, watched: Sequence[tuple[Traveller, Answer]]) -> None:
        """The replay's state; `watched` are some travellers and their answers as of now."""
        if self._live is not None:
            width = min(_WIDTH, self._console.width)
            self._live.update(_view(tick, queries, watched, width))
            return
        wait = _QUIET_SECONDS if tick.tuples == self._shown else _LINE_SECONDS
        if time.monotonic() - self._printed >= wait or tick.share >= 1:
            self._printed, self._shown = time.monotonic(), tick.tuples
            self._console.print(f"  {_line(tick, queries)}")

    def end(self) -> None:
        """Stop updating the live view and leave it on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    # -- afterwards ----------------------------------------------------------------------------

    def answers(self, traveller: Traveller, answers: Iterable[tuple[str, Answer]]) -> None:
        """Print a traveller's question and its answers, each with a word about its instant."""
        self._console.print()
        name = traveller.name.capitalize()
        self._console.print(f"  [bold]{name}[/bold]: {escape(traveller.question)}")
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        table.add_column("as of", style="cyan", no_wrap=True)
        shown = list(answers)
        columns = shown[0][1].columns
        for column, value in zip(columns, shown[0][1].table.schema.types, strict=True):
            numeric = not str(value).startswith(("string", "timestamp"))
            table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
        for remembered, answer in shown:
            at = f"{_format_instant(answer.as_of)} {remembered}".strip()
            rows = answer.rows()
            if not rows:
                table.add_row(at, *_pad("(nothing)", len(columns)))
            for row in rows[:_ROWS]:
                table.add_row(at, *(show_value(value) for value in row))
                at = ""
            if len(rows) > _ROWS:
                table.add_row("", *_pad(f"… {len(rows) - _ROWS} more", len(columns)))
        self._console.print(table)

    def summary(self, figures: Iterable[tuple[str, str]]) -> None:
        """Print the measured figures."""
        table = Table(box=box.SIMPLE, show_header=False, pad_edge=False, padding=(0, 1))
        table.add_column()
        table.add_column(style="bold")
        for what, figure in figures:
            table.add_row(f" {what}", figure)
        self._console.print(table)

    def verdict(self, text: str, good: bool) -> None:
        """Print the result of the proof."""
        self._console.print(f"  [bold {'green' if good else 'red'}]{escape(text)}[/]")


def show_value(value: Any) -> str:
    """A value of an answer, short."""
    match value:
        case None:
            return "–"
        case datetime():
            return f"{value:%m-%d %H:%M}"
        case float():
            return f"{value:.1f}".removesuffix(".0")
        case _:
            return str(value)


def seconds(value: float) -> str:
    """A duration in the unit that suits it.

    >>> seconds(0.00123), seconds(0.5), seconds(12.34)
    ('1.2 ms', '500 ms', '12.3 s')
    """
    if value < 0.01:
        return f"{value * 1e3:.1f} ms"
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.1f} s"


def _pad(text: str, columns: int) -> list[str]:
    return [text, *[""] * (columns - 1)]


def _format_instant(at: int) -> str:
    moment = to_datetime(at)
    return f"{moment:%Y-%m-%d %H:%M}" if moment else "–"


def _day(day: date) -> str:
    return f"{day:%d %B %Y}"


def _line(tick: Tick, queries: int) -> str:
    fresh = "–" if tick.freshness is None else seconds(tick.freshness)
    return (
        f"{tick.day}  {tick.tuples:>7,} tuples  {tick.tuples_rate:>7,.0f} tuples/s  "
        f"{tick.matches_rate:>7,.0f} matches/s  {queries:,} queries  fresh in {fresh}"
    )


def _view(
    tick: Tick, queries: int, watched: Sequence[tuple[Traveller, Answer]], width: int
) -> RenderableType:
    figures = Table.grid(padding=(0, 3))
    fresh = "–" if tick.freshness is None else seconds(tick.freshness)
    heads = ("tuples", "tuples/s", "matches", "matches/s", "standing queries", "freshness")
    figures.add_row(*(Text(head, style="dim") for head in heads))
    figures.add_row(
        *(
            Text(value, style="bold")
            for value in (
                f"{tick.tuples:,}",
                f"{tick.tuples_rate:,.0f}",
                f"{tick.matches:,}",
                f"{tick.matches_rate:,.0f}",
                f"{queries:,}",
                fresh,
            )
        )
    )
    bar = Table.grid(padding=(0, 2))
    bar.add_row(
        Text(f"{_day(tick.day):<18}", style="cyan"),
        ProgressBar(total=1.0, completed=tick.share, width=50),
        Text(f"{tick.share:4.0%}"),
    )
    people = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), width=width)
    people.add_column("traveller", no_wrap=True, min_width=9)
    people.add_column("asks", no_wrap=True, overflow="ellipsis", ratio=5)
    people.add_column("rows now", no_wrap=True, justify="right", min_width=8)
    people.add_column("the first", no_wrap=True, overflow="ellipsis", ratio=3)
    for traveller, answer in watched:
        rows = answer.rows()
        first = "  ".join(show_value(v) for v in rows[0]) if rows else "–"
        people.add_row(traveller.name.capitalize(), traveller.question, str(len(rows)), first)
    return Group(bar, Text(), figures, people)
