"""The demo's replay: day after day is dropped into the directories that the pond watches.

A day's file is written beforehand and renamed into place, so Spark never sees half a file. The
replay runs as fast as the pond takes the rows: it is at most some days ahead of the rows that
answers already show. On a slow machine it runs further ahead, which makes batches larger and fewer.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

from millpond.demo.data import DayFile, ReplayedRows
from millpond.errors import MillpondError
from millpond.service.pond import Pond

#: How many days the replay may be ahead of the answers, and how many more on a slow machine.
_AHEAD_DAYS = 21
_AT_MOST = 8
#: Seconds the replay should take where that is possible.
_AIM = 30.0
#: Seconds over which the live rates are taken.
_RATE_SECONDS = 5.0
#: Seconds without any progress after which something must be wrong.
_PATIENCE = 120.0


class Meter:
    """Notes when rows were dropped and when answers showed them; safe to use from any thread.

    This is a pond's `progress` callback: the pond calls it with a stream's number of rows right
    after publishing the epoch that made the rows visible.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._dropped: dict[str, deque[tuple[int, float]]] = {}
        self._sent: dict[str, int] = {}
        #: Seconds from a file's drop to the epoch that shows its last row, file by file.
        self.freshness: list[float] = []

    def note_drop(self, file: DayFile) -> None:
        """A file is about to be dropped."""
        with self._lock:
            self._sent[file.stream] = self._sent.get(file.stream, 0) + file.rows
            waiting = self._dropped.setdefault(file.stream, deque())
            waiting.append((self._sent[file.stream], time.monotonic()))

    def __call__(self, event: dict[str, Any]) -> None:
        """Takes note of `{"stream": name, "rows": rows visible so far, …}`."""
        now = time.monotonic()
        with self._lock:
            waiting = self._dropped.get(event["stream"], deque())
            while waiting and waiting[0][0] <= event["rows"]:
                self.freshness.append(now - waiting.popleft()[1])

    @property
    def sent(self) -> int:
        """Rows dropped so far."""
        with self._lock:
            return sum(self._sent.values())


@dataclass(frozen=True)
class Tick:
    """How far the replay is, several times a second.

    Attributes:
        day: The last day that was dropped.
        tuples: Elements that answers show.
        rejected: Rows the streams rejected.
        matches: Pairs of element and predicate matched so far.
        tuples_rate: Per second, over the last seconds.
        matches_rate: The same.
        freshness: Seconds from drop to answer of the last file, or None before the first.
        elapsed: Seconds since the replay began.
        share: Of the elements that answers show, 0 to 1.
    """

    day: date
    tuples: int
    rejected: int
    matches: int
    tuples_rate: float
    matches_rate: float
    freshness: float | None
    elapsed: float
    share: float


class Replay:
    """Drops a feed's files at the pace the pond takes them."""

    def __init__(
        self,
        feed: ReplayedRows,
        pond: Pond,
        meter: Meter,
        send: Callable[[DayFile], None] | None = None,
    ) -> None:
        """Prepare; `send` brings a day's rows to where the pond reads, which else are files."""
        self._send = send or self._rename
        self._feed = feed
        self._pond = pond
        self._meter = meter
        self._past: deque[tuple[float, int, int]] = deque()
        self._clock = 0.0

    def run(self) -> Iterator[Tick]:
        """Replays everything; ends when answers show the last row.

        The caller does its own work between two ticks, while data streams in.

        Raises:
            MillpondError: POND-406 when a stream stopped, or nothing happens any more.
        """
        days = iter(self._feed.days)
        following = next(days, None)
        began = moved = time.monotonic()
        self._clock = time.time() - 3600
        done, last_day = 0, self._feed.days[0][0]
        while True:
            elapsed = time.monotonic() - began
            allowed = done + self._ahead(elapsed, done / self._feed.rows)
            while following is not None and self._meter.sent < allowed:
                last_day = following[0]
                for file in following[1]:
                    self._meter.note_drop(file)
                    self._send(file)
                following = next(days, None)
            tick = self._tick(last_day, elapsed)
            if tick.tuples + tick.rejected > done:
                done, moved = tick.tuples + tick.rejected, time.monotonic()
            yield tick
            if done >= self._feed.rows:
                return
            if time.monotonic() - moved > _PATIENCE:
                self._give_up()

    def _ahead(self, elapsed: float, share: float) -> int:
        """Rows the replay may be ahead."""
        expected = elapsed / max(share, 0.1)
        hurry = min(max(expected / _AIM, 1.0), _AT_MOST)
        return round(self._feed.rows / len(self._feed.days) * _AHEAD_DAYS * hurry)

    def _rename(self, file: DayFile) -> None:
        # Spark takes files in the order of their modification times, so no two may be equal.
        self._clock += 0.01
        os.utime(file.path, (self._clock, self._clock))
        os.replace(file.path, self._feed.directory / file.stream / file.path.name)

    def _tick(self, day: date, elapsed: float) -> Tick:
        tuples = rejected = 0
        for stream in self._pond.status()["streams"]:
            tuples += stream["rows"]
            rejected += stream["rejected"]
        matches = count_matched(self._pond)
        self._past.append((elapsed, tuples, matches))
        while len(self._past) > 2 and self._past[1][0] < elapsed - _RATE_SECONDS:
            self._past.popleft()
        since, tuples_then, matches_then = self._past[0]
        seconds = max(elapsed - since, 0.1)
        fresh = self._meter.freshness
        return Tick(
            day,
            tuples,
            rejected,
            matches,
            (tuples - tuples_then) / seconds,
            (matches - matches_then) / seconds,
            fresh[-1] if fresh else None,
            elapsed,
            (tuples + rejected) / self._feed.rows,
        )

    def _give_up(self) -> None:
        reasons = [s["reason"] for s in self._pond.status()["streams"] if s["reason"]]
        raise MillpondError(
            "POND-406",
            f"nothing has been read for {_PATIENCE:.0f} seconds",
            detail=reasons[0] if reasons else None,
            hint="Try again when the machine has less to do.",
        )


def count_matched(pond: Pond) -> int:
    """Pairs of element and predicate matched as elements came, over all streams."""
    total = 0.0
    for stream in pond.streams():
        labels = {"stream": stream.name}
        total += pond.metrics.get_sample_value("millpond_matches_total", labels) or 0.0
    return round(total)
