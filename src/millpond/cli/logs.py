"""The log of the commands: on stderr, as text or as JSON lines.

A line says when, how bad, who says it, what, and what it is about. Modules log with the standard
library's `logging`, by loggers named `millpond.…`. What a line is about are attributes of the
record, by the names of `FIELDS`; the request is known from the context.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice

from millpond.work import current_request

#: What a line may be about: attributes of a record, in the order in which they are printed.
FIELDS = ("request", "epoch", "stream", "query", "sink")


#: The flags of every command that are about the log.
_FLAGS = ("--log-level", "--log-format")


def find_fields(record: logging.LogRecord) -> dict[str, object]:
    """Find what a line is about."""
    found = {name: getattr(record, name, None) for name in FIELDS}
    found["request"] = found["request"] or current_request.get()
    return {name: value for name, value in found.items() if value is not None}


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.000Z WARNING millpond.spark: Spark runs again (stream=s)`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record; a stack trace follows on lines of its own."""
        text = super().format(record)
        head, _, rest = text.partition("\n")
        about = " ".join(f"{name}={value}" for name, value in find_fields(record).items())
        line = f"{_format_time(record)} {record.levelname} {record.name}: {head}"
        if about:
            line = f"{line} ({about})"
        # Indented, so that no text of a client's looks like a line of its own.
        return "\n    ".join([line, *rest.splitlines()])


class JsonLines(logging.Formatter):
    """One JSON object a line: `at`, `level`, `logger`, `message`, the fields, and `stack`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        line: dict[str, object] = {
            "at": _format_time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **find_fields(record),
        }
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        # A lone surrogate cannot be written.
        return json.dumps(line, ensure_ascii=False, default=str).encode(errors="replace").decode()


def _format_time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"


class LogLevel(StrEnum):
    """From which level on lines are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The forms of the log."""

    TEXT = "text"
    JSON = "json"


def move_log_flags(args: list[str]) -> list[str]:
    """The arguments with `--log-level` and `--log-format` before the command, where they belong.

    >>> move_log_flags(["serve", "--log-format", "json", "--port", "1", "--", "--log-level"])
    ['--log-format', 'json', 'serve', '--port', '1', '--', '--log-level']
    """
    moved: list[str] = []
    rest: list[str] = []
    left = iter(args)
    for arg in left:
        if arg == "--":
            rest += [arg, *left]
        elif arg in _FLAGS:
            moved += [arg, *islice(left, 1)]
        elif arg.partition("=")[0] in _FLAGS:
            moved.append(arg)
        else:
            rest.append(arg)
    return [*moved, *rest]


def start_log(level: LogLevel, form: LogFormat) -> None:
    """Write what Millpond logs from a level on, and warnings of all others, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form is LogFormat.JSON else TextLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("millpond").setLevel(level.value.upper())
    # Its logger writes the stack of every error of a batch, which the stream's status reports.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
