"""Counts the refusals of a minute, so that a flood of them is a few lines of the audit log.

Refusals of one kind are those that one caller gets for one reason: one token or, without a token,
one address; one method, status and code. The first of a kind in a minute are written as they come.
Those behind them are counted, and the minute ends with a line that has their number. So no refusal
goes untold, and a minute has a bounded number of lines, whoever sends how many requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: How long refusals are counted, in seconds.
MINUTE = 60.0
#: How many refusals of a kind are written as they come in a minute, and how many kinds are told
#: apart; of the other kinds all is counted together.
MOST_WRITTEN, MOST_KINDS = 10, 200

#: The members of a line that a kind has.
_KIND = ("owner", "role", "token", "client", "method", "status", "code")


@dataclass
class _Kind:
    """A kind of refusals in this minute; `line` is the first that was not written."""

    written: int = 0
    counted: int = 0
    line: dict[str, Any] | None = None


class Refusals:
    """Writes refusals, or counts them; safe to use from any thread."""

    def __init__(
        self,
        write: Callable[[dict[str, Any]], None],
        call_later: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        """Make an empty count.

        Args:
            write: Writes a line.
            call_later: Calls a function after some seconds; by default in a thread.
        """
        self._write = write
        self._call_later = call_later or _call_in_thread
        self._lock = threading.Lock()
        self._kinds: dict[tuple[Any, ...], _Kind] = {}

    def note(self, line: dict[str, Any]) -> None:
        """Write a refusal, or count it if there were enough of its kind in this minute."""
        if self._is_written(line):
            self._write(line)

    def _is_written(self, line: dict[str, Any]) -> bool:
        """Whether a refusal is written as it comes; if it is not, count it."""
        kind = tuple(line[name] for name in _KIND if name != "client" or line["token"] is None)
        with self._lock:
            if not self._kinds:
                self._call_later(MINUTE, self.end_minute)
            if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
                kind, line = (), {**line, **dict.fromkeys(_KIND)}
                seen = self._kinds.setdefault(kind, _Kind(written=MOST_WRITTEN))
            else:
                seen = self._kinds.setdefault(kind, _Kind())
            if seen.written < MOST_WRITTEN:
                seen.written += 1
                return True
            seen.counted += 1
            if seen.line is None:
                seen.line = {**line, "since": line["at"]}
            seen.line["at"] = line["at"]
            if seen.line["path"] != line["path"]:
                seen.line["path"] = None
            return False

    def end_minute(self) -> None:
        """Write how many refusals were counted, and count anew."""
        with self._lock:
            kinds, self._kinds = self._kinds, {}
        for seen in kinds.values():
            if seen.line is not None:
                self._write({**seen.line, "statements": [], "refusals": seen.counted})


def _call_in_thread(seconds: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()
