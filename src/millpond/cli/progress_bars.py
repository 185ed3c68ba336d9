"""Progress bars while bounded sources are read, for a user who waits at a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from threading import Lock
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

#: Seconds of reading before the bars appear.
PATIENCE = 2.0


class ReadingProgress:
    """The callback of `open_pond`: one line a stream, from two seconds of reading on.

    One thread reads and calls this, another prints results: the lock keeps them apart.
    """

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console(file=sys.stderr)
        self._clock = clock
        self._lock = Lock()
        self._since: float | None = None
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._rows: dict[str, tuple[int, bool]] = {}

    def __call__(self, event: dict[str, Any]) -> None:
        """Takes note of `{"stream": name, "rows": rows so far, "done": whether that is all}`."""
        if not self._console.is_terminal:
            return
        with self._lock:
            now = self._clock()
            self._rows[event["stream"]] = (event["rows"], event["done"])
            self._since = now if self._since is None else self._since
            if all(done for _, done in self._rows.values()):
                self._stop()
            elif now - self._since >= PATIENCE:
                self._show()

    def pause(self) -> None:
        """Remove the bars, so that a result can be printed."""
        with self._lock:
            self._stop()

    close = pause

    def _show(self) -> None:
        if self._bars is None:
            self._bars = Progress(
                SpinnerColumn(),
                TextColumn("reading {task.fields[stream]}"),
                BarColumn(bar_width=20),
                TextColumn("{task.completed:,.0f} rows"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._bars.start()
        for stream, (rows, done) in self._rows.items():
            task = self._tasks.get(stream)
            if task is None:
                # The total number of rows is not known before all are read.
                task = self._bars.add_task("", total=None, stream=stream)
                self._tasks[stream] = task
            self._bars.update(task, completed=rows, total=rows if done else None)

    def _stop(self) -> None:
        if self._bars is not None:
            self._bars.stop()
        self._bars = None
        self._since = None
        self._tasks.clear()
        self._rows.clear()
